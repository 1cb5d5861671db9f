"""What is shown while a run is under way: a moving line on a terminal, one plain line a stage elsewhere. On stderr."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from perfci import report
from perfci.core.model import AccuracyCase, Reason, Suite
from perfci.core.model.place import UNTIMED
from perfci.core.stages import OF_BASE
from perfci.core.wording import describe_stage, say, sentence
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain
from perfci.runs.bench import Listener
from perfci.runs.schedule import STEPS
from perfci.worker.protocol import DONE, Doing, Failed, LockAsked, Message, Noted, Position, Ready, Waiting

SHORT_STAGES = frozenset({"import", "smoke", DONE})  # stages that are over too soon for a line of a log


def _describe_stage(stage: str) -> str:
    alone = stage.removesuffix(OF_BASE)
    text = describe_stage(alone)
    return text if alone == stage else say("{stage} the base", stage=text)


def write_position(position: Position, passed_s: float = 0.0) -> str:
    """Returns how far a run is: op 5 of 14, 37 of 112 cases, about 1 min 10 s left. passed_s: seconds since then."""
    total, number = position.total, position.done + 1
    if position.later:
        place = say("later look {number} of {total}", number=number, total=total)
    elif position.under_way > 1:
        place = say("{done} of {total} ops", done=position.done, total=total)
    else:
        place = say("op {number} of {total}", number=number, total=total)
    done, cases = position.cases_done, position.cases
    parts = [place] if position.later else [place, say("{done} of {cases} cases", done=done, cases=cases)]
    left = None if position.left_s is None else round(position.left_s - passed_s)
    if left is not None and left > 0:
        minutes, seconds = divmod(left, 60)
        time = say("{minutes} min {seconds} s", minutes=minutes, seconds=seconds) if minutes else f"{seconds} s"
        parts.append(say("about {time} left", time=time))
    return say(", ").join(parts)


@dataclass
class _Line:
    """The moving line, written anew whenever the terminal shows it, so that its time counts down."""

    doing: str = ""
    position: Position | None = None
    since: float = 0.0  # when the position was heard

    def __rich__(self) -> Text:
        where = write_position(self.position, time.monotonic() - self.since) + ": " if self.position else ""
        # As text, not as markup: a case's id may hold brackets.
        return Text(where + self.doing, no_wrap=True, overflow="ellipsis")


class Imports:
    """A listener that imports what reports are made with while workers time ops. Nothing else has pictures."""

    def __init__(self, listener: Listener, suites: Collection[Suite]) -> None:
        self._listener, self._thread = listener, threading.Thread(target=report.import_libraries, daemon=True)
        self._suites, self._has_timer = suites, False

    def __call__(self, message: Message) -> None:
        """Hear one message of a worker."""
        self._listener(message)
        self._has_timer |= isinstance(message, Ready) and message.device.kind not in UNTIMED
        begins = isinstance(message, Doing) and message.stage in STEPS
        if begins and self._has_timer and Suite.PERFORMANCE in self._suites and self._thread.ident is None:
            self._thread.start()

    def join(self) -> None:
        """Wait for the end: beside another thread pictures are not drawn on all cores."""
        if self._thread.ident is not None:
            self._thread.join()


class Progress:
    """A listener for the pipeline, used as a context."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._quiet = quiet  # only the moving line, which leaves nothing behind
        self._console = console or Console(stderr=True)
        self._status: Status | None = None
        self._line = _Line()
        self._begun = (False, 0)  # whether later looks are under way, and how many ops or looks were begun
        self._last = ""
        self._shown: set[tuple[str, str]] = set()  # op and stage of every line so far
        self._failed = False  # a failure of the op under way was shown

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._line.doing = say("starting")
            self._status = self._console.status(self._line)
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, message: Message) -> None:
        """Hear one message of a worker."""
        match message:
            case Ready(device) if ("", "device") not in self._shown:
                self._shown.add(("", "device"))
                self._print(say("device: {name}", name=device.name))
            case Doing():
                self._show_stage(message)
            case Position():
                self._show_position(message)
            case Waiting(holder):
                self._print(sentence(Reason("device_waiting", {"holder": holder})))
            case LockAsked(_, Reason() as displaced):
                self._print(sentence(displaced))
            case AccuracyCase(failure=Reason() as failure) if not self._failed:
                self._failed = True
                self._print(sentence(failure), "  ")
            case Failed(reason):
                self._print(sentence(reason), "  ")
            case Noted(reason):
                self._print(sentence(reason))

    def _show_stage(self, doing: Doing) -> None:
        self._failed = self._failed and doing.stage != "import"
        stage = _describe_stage(doing.stage)
        if self._status and doing.stage != DONE:
            count = f" {doing.done + 1}/{doing.total}" if doing.total else ""
            self._line.doing = plain(f"{doing.op}: {stage}{count} {doing.case or ''}", NAME_LIMIT)
        elif doing.stage.removesuffix(OF_BASE) not in SHORT_STAGES and (doing.op, stage) not in self._shown:
            self._shown.add((doing.op, stage))
            total = say(", {count:check|checks}", count=doing.total) if doing.total else ""
            self._print(say("{op}: {told}", op=doing.op, told=f"{stage}{total}"))

    def _show_position(self, position: Position) -> None:
        """Show where the run is. A log has a line for each op or later look, if there are several."""
        self._line.position, self._line.since = position if position.under_way else None, time.monotonic()
        begun = (position.later, position.done + position.under_way)
        if begun != self._begun:
            self._begun, self._line.doing = begun, say("starting")
            if not self._status and position.total > 1:
                self._print(write_position(position))

    def _print(self, text: str, indent: str = "") -> None:
        """Print a line unless it is the one printed last."""
        if text != self._last and not self._quiet:
            self._last = text
            # As text, not as markup, and in one line: a worker sends what its op makes it send.
            self._console.print(Text(indent + plain(text, BLOCK_LIMIT)), soft_wrap=True)
