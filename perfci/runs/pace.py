"""How far a run is, how long it will still take, and where its seconds went."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfci.core.model import AccuracyCase, Suite
from perfci.worker.protocol import OF_BASE, Doing, Finished, Message, OpDone, Position

START, LATER = "start", "later"
STEPS = {
    "suites": "accuracy",
    "accuracy": "accuracy",
    "prepare": "prepare",
    "peers": "prepare",
    "measure": "measure",
}
"""What a worker says it is doing -> the step that its seconds belong to. All else is starting, importing and ending."""


class Stopwatch:
    """Where the seconds of one op's workers go, by what they say they are doing."""

    def __init__(self) -> None:
        self._step, self._since = START, time.monotonic()
        self._spent_s: dict[str, float] = {}

    def hear(self, message: Message) -> None:
        """Take one message: it ends the step before, if it begins another one."""
        if isinstance(message, Doing | OpDone):
            stage = message.stage.removesuffix(OF_BASE) if isinstance(message, Doing) else START
            self._turn_to(STEPS.get(stage, START))

    def stop(self) -> Mapping[str, float]:
        """Returns the seconds of each step so far."""
        self._turn_to(START)
        return {step: round(seconds, 3) for step, seconds in self._spent_s.items()}

    def _turn_to(self, step: str) -> None:
        now = time.monotonic()
        self._spent_s[self._step] = self._spent_s.get(self._step, 0.0) + now - self._since
        self._step, self._since = step, now


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
        under_way = [name for name in self._began if name not in self._done]
        finished = {name: min(len(self._seen[name]), self.cases[name]) for name in under_way}
        finished |= {name: self.cases[name] for name in self._done}
        return Position(
            done=len(self._done),
            under_way=len(under_way),
            total=len(self.cases),
            cases_done=sum(finished.values()),
            cases=sum(self.cases.values()),
            left_s=self._estimate(under_way, finished, expected),
            later=self.later,
        )

    def _estimate(
        self, under_way: list[str], finished: Mapping[str, int], expected: Callable[[str], float | None]
    ) -> float | None:
        """Seconds until all have ended: what is left of each, on as many at once as now."""
        took = {name: time.monotonic() - self._began[name] for name in under_way}
        left = []
        for name, count in self.cases.items():
            if name in self._done:
                continue
            seconds = expected(name)
            if seconds is None:  # the first op of a project: as long a case as its cases so far
                cases = sum(finished[each] for each in under_way)
                if not cases:
                    return None
                seconds = count * sum(took.values()) / cases
            left.append(max(seconds - took.get(name, 0.0), 0.0))
        return max(max(left, default=0.0), sum(left) / max(len(under_way), 1))
