"""What is shown while a run is under way: a moving line on a terminal, one plain line a stage elsewhere. On stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from perfci.model import Reason
from perfci.wording import say, sentence
from perfci.worker.protocol import Checked, Failed, Message, Ready, Step, Waiting


def _stages() -> dict[str, str]:
    return {
        "import": say("importing"),
        "accuracy": say("accuracy"),
        "prepare": say("preparing"),
        "smoke": say("one launch of the performance suite"),
        "measure": say("measuring"),
        "static": say("compiling"),
    }


_OF_BASE = " of the base"
"""How the stage of a worker ends that runs the base revision."""

_UNTOLD = frozenset({"import", "smoke"})
"""Stages that are over too soon for a line of a log."""


class Progress:
    """A listener for the pipeline; use it as a context."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status: Status | None = None
        self._last = ""
        self._told: set[tuple[str, str]] = set()
        self._failed = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(say("starting"))
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, message: Message) -> None:
        """Hear one message of a worker."""
        match message:
            case Ready(device, None) if ("", "device") not in self._told:
                self._told.add(("", "device"))
                self._line(say("device: {name}", name=device.name))
            case Step():
                self._step(message)
            case Waiting(holder):
                self._line(sentence(Reason("device_waiting", {"holder": holder})))
            case Checked(case) if case.failure:
                self._failed += 1
                if self._failed == 1:
                    self._line(f"  {sentence(case.failure)}")
            case Failed(reason):
                self._line(f"  {sentence(reason)}")

    def _step(self, step: Step) -> None:
        if step.stage == "import":
            self._failed = 0
        own = step.stage.removesuffix(_OF_BASE)
        stage = _stages().get(own, own)
        stage = say("{stage} the base", stage=stage) if own != step.stage else stage
        if self._status:
            count = f" {step.done + 1}/{step.total}" if step.total else ""
            # As text, not as markup: a case's id may hold brackets.
            self._status.update(Text(f"{step.op}: {stage}{count} {step.case or ''}"))
        elif own not in _UNTOLD and (step.op, stage) not in self._told:
            self._told.add((step.op, stage))
            total = say(", {count} checks", count=step.total) if step.total else ""
            self._line(f"{step.op}: {stage}{total}")

    def _line(self, text: str) -> None:
        """Print a line unless it is the one printed last."""
        if text != self._last:
            self._last = text
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
