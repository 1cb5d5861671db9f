"""What is shown while a run is under way: a moving line on a terminal, one plain line a stage elsewhere. On stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from perfci.core.model import Reason
from perfci.core.wording import say, sentence
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain
from perfci.worker.protocol import DONE, Checked, Doing, Failed, Message, Ready, Waiting


def _stages() -> dict[str, str]:
    return {
        "import": say("importing"),
        "accuracy": say("accuracy"),
        "prepare": say("preparing"),
        "smoke": say("one launch of the performance suite"),
        "peers": say("calling peers"),
        "measure": say("measuring"),
        "static": say("compiling"),
        "tune": say("trying"),
        "chain": say("checking the chain"),
        "threads": say("two threads at once"),
        "memory": say("memory over many calls"),
        "decay": say("speed over many calls"),
        "determinism": say("the same answer over many calls"),
        "streams": say("several streams at once"),
        "large": say("arrays of more than 2^31 elements"),
    }


_OF_BASE = " of the base"
"""How the stage of a worker ends that runs the base revision."""

_UNTOLD = frozenset({"import", "smoke", DONE})
"""Stages that are over too soon for a line of a log."""

_LASTING = frozenset({"accuracy", "smoke", "prepare", "peers", "measure"})
"""Stages of an op until it is done: on several devices several are under way."""


class Progress:
    """A listener for the pipeline; use it as a context."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status: Status | None = None
        self._last = ""
        self._told: set[tuple[str, str]] = set()
        self._failed: set[str] = set()
        """ops of which a failure was shown; "" for the only one under way"""
        self._going: dict[str, str] = {}
        """op -> what it is doing"""

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
            case Doing():
                self._step(message)
            case Waiting(holder):
                self._line(sentence(Reason("device_waiting", {"holder": holder})))
            case Checked(case, op) if case.failure and op not in self._failed:
                self._failed.add(op)
                told = sentence(case.failure)
                self._line(say("{op}: {told}", op=op, told=told) if op else told, "  ")
            case Failed(reason):
                self._line(sentence(reason), "  ")

    def _step(self, step: Doing) -> None:
        if step.stage == "import":
            self._failed -= {"", step.op}
        own = step.stage.removesuffix(_OF_BASE)
        stage = _stages().get(own, own)
        stage = say("{stage} the base", stage=stage) if own != step.stage else stage
        if self._status:
            count = f" {step.done + 1}/{step.total}" if step.total else ""
            self._move(step, own, f"{step.op}: {stage}{count} {step.case or ''}")
        elif own not in _UNTOLD and (step.op, stage) not in self._told:
            self._told.add((step.op, stage))
            total = say(", {count:check|checks}", count=step.total) if step.total else ""
            self._line(say("{op}: {told}", op=step.op, told=f"{stage}{total}"))

    def _move(self, step: Doing, stage: str, text: str) -> None:
        """Show what every op that is under way is doing."""
        assert self._status is not None
        # As text, not as markup: a case's id may hold brackets.
        self._going.pop(step.op, None)
        if stage in _LASTING:
            self._going[step.op] = plain(text, NAME_LIMIT)
        if self._going or stage != DONE:
            self._status.update(
                Text(" | ".join(self._going[op] for op in sorted(self._going)) or plain(text, NAME_LIMIT))
            )

    def _line(self, text: str, indent: str = "") -> None:
        """Print a line unless it is the one printed last."""
        if text != self._last:
            self._last = text
            # As text, not as markup, and in one line: a worker says what its op makes it say.
            self._console.print(Text(indent + plain(text, BLOCK_LIMIT)), soft_wrap=True)
