"""How far a run is, how long it will still take, and where its seconds went."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfci.core.model import AccuracyCase, Suite
from perfci.core.stages import OF_BASE
from perfci.worker.protocol import Doing, Finished, Message, OpDone, Position

START, LATER = "start", "later"
STEPS = {"suites": "accuracy", "accuracy": "accuracy", "prepare": "prepare", "peers": "prepare", "measure": "measure"}
"""What a worker says it is doing -> the step that its seconds belong to. All else is starting, importing and ending."""


class Stopwatch:
    """Where the seconds of one op's workers go, by the stages that they report."""

    def __init__(self) -> None:
        self.step, self._since, self._spent_s = START, time.monotonic(), Counter[str]()

    def hear(self, message: Message) -> None:
        """Take one message: it ends the step before, if it begins another one."""
        if isinstance(message, Doing | OpDone):
            stage = message.stage.removesuffix(OF_BASE) if isinstance(message, Doing) else START
            now = time.monotonic()
            self._spent_s[self.step] += now - self._since  # type: ignore[assignment]
            self.step, self._since = STEPS.get(stage, START), now

    def stop(self) -> Mapping[str, float]:
        """Returns the seconds of each step so far."""
        self.hear(OpDone())
        return {step: round(seconds, 3) for step, seconds in self._spent_s.items()}


@dataclass
class Pace:
    """How far a run is with its ops, or with later looks, which may be under way several at once."""

    cases: Mapping[str, int]  # those of each op, or of each later look
    accuracy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # op -> accuracy cases among them
    later: bool = False
    _began: dict[str, float] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _seen: dict[str, set[tuple[Suite, str]]] = field(default_factory=dict)  # finished cases
    _checked: dict[str, str] = field(default_factory=dict)  # accuracy case that more checks of may come

    def begin(self, name: str) -> None:
        """Note that an op is begun."""
        self._began[name], self._seen[name] = time.monotonic(), set()

    def end(self, name: str) -> None:
        """Note that an op has ended, whether it was begun or left out."""
        self._done.add(name)

    def hear(self, name: str, message: Message) -> bool:
        """Take one message of an op's workers. Returns whether one more case is done."""
        seen, checked = self._seen[name], self._checked.get(name)
        before = len(seen)
        if isinstance(message, AccuracyCase) and message.case in self.accuracy.get(name, ()):
            self._checked[name] = message.case
        if checked and (self._checked[name] != checked or (isinstance(message, Doing) and message.stage != "accuracy")):
            seen.add((Suite.ACCURACY, checked))
        if isinstance(message, Finished):
            seen.add((Suite.PERFORMANCE, message.case.case))
        return len(seen) > before

    def find_position(self, expected: Callable[[str], float | None]) -> Position:
        """Returns where the run is now. expected: seconds of an op as a whole, None if nothing is known yet."""
        took = {name: time.monotonic() - at for name, at in self._began.items() if name not in self._done}
        finished = {name: min(len(self._seen[name]), self.cases[name]) for name in took}
        cases, whole = sum(finished.values()), sum(self.cases[name] for name in self._done)
        # The first op of a project: as long a case as its cases so far.
        a_case = sum(took.values()) / cases if cases else None
        left = []
        for name, count in self.cases.items():
            seconds = expected(name) or (a_case and count * a_case)
            if name not in self._done:
                left.append(None if seconds is None else max(seconds - took.get(name, 0.0), 0.0))
        estimates = [seconds for seconds in left if seconds is not None]
        # As many at once as now.
        left_s = (
            max(max(estimates, default=0.0), sum(estimates) / max(len(took), 1))
            if len(estimates) == len(left)
            else None
        )
        number = len(self._done), len(took), len(self.cases)
        return Position(*number, whole + cases, sum(self.cases.values()), left_s, self.later)
