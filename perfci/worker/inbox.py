"""Where all messages of a worker arrive. It is testimony: what its task does not allow is no message, and ends it.

Each kind of message has a rule in its task's `answers`: about which ops and cases it may be, how often, in which order.
A message that has a field which perfci alone writes (`BY_PERFCI` of perfci.core.model) breaks the rules too.
"""

from collections import Counter
from typing import Any

from perfci.core.errors import PerfciError
from perfci.core.model import Fact, Reason
from perfci.worker.answers import GONE, LATE, Rule, Said, describe, find_forged
from perfci.worker.handover import Called
from perfci.worker.protocol import Began, Doing, Failed, Message, Ready, TurnAsked, UnaskedError, unpack
from perfci.worker.tasks import Task

LONGEST = 1 << 25
"""Bytes of a message at most: an op that writes into the pipe itself would fill this process's memory."""

MOST = 1 << 17  # messages of a worker, without its signs of life


class Inbox:
    """The messages of one worker."""

    def __init__(self, task: Task) -> None:
        self._task, self._rest = task, b""
        self._said = Said(task, Doing("start", task.op if task.place.ops else type(task).__name__.lower()))
        self._counts = Counter[Any]()  # messages, by kind and what they are about
        self._steps: dict[str, int] = {}  # the last step of each case
        self.asking = False  # its last message is to be answered
        self.done = False  # it has sent its last message
        self.memory: int | None = None  # the file system in which its processes share memory, once it has begun
        self.failure: Reason | None = None  # why it has failed, in its words
        self.breach: tuple[str, dict[str, Fact]] | None = None
        """kind and facts of the reason by which it has broken the rules of what may be sent"""

    @property
    def doing(self) -> Doing:
        """What it is at."""
        return self._said.doing

    def take(self, data: bytes) -> list[Message]:
        """Returns the messages that came whole with what was read. Nothing after one that ends the worker."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        heard: list[Message] = []
        for line in whole:
            try:
                message = unpack(line + b"\n", self._task.answers)
            except UnaskedError as error:
                self.breach = "worker_unasked", {"message": str(error)}
                return heard
            except (ValueError, PerfciError):
                continue  # user code wrote into the pipe
            if unasked := self._find_breach(message):
                self.breach = "worker_unasked", {"message": unasked}
                return heard
            if isinstance(message, Failed):
                self.failure = message.reason
                return heard
            self._note(message)
            heard += [] if isinstance(message, Began) else [message]
        if len(self._rest) > LONGEST or self._counts.total() > MOST:
            self.breach = "worker_flooded", {"size": LONGEST}
        return heard

    def _note(self, message: Message) -> None:
        if isinstance(message, Doing):
            self._said.doing = message
        elif isinstance(message, Ready):
            self._said.device = message.device
        elif isinstance(message, Began):
            self.memory = message.memory
        self.asking |= isinstance(message, TurnAsked | Called)
        self.done = self.done or self._task.ends(message)

    def _find_breach(self, message: Message) -> str | None:
        """Returns what is wrong with a message. None if it may come now."""
        rule, kind = self._task.answers[type(message)], type(message)
        subject = rule.about(self._said, message)
        if isinstance(message, Failed):
            return None if self._may_fail(message.reason.kind) else describe(message)
        if field := find_forged(message):
            return f"{describe(message)} with {field}"
        if subject is None or self.done or (self.asking and kind in {TurnAsked, Called}):
            return describe(message)
        key = (kind, rule.case and rule.case(message), subject)
        if rule.most or not isinstance(message, Doing):
            self._counts[key] += 1
        is_late = rule.case is not None and not self._takes_step(rule, rule.case(message))
        return describe(message) if is_late or (rule.most and self._counts[key] > rule.most) else None

    def _may_fail(self, kind: str) -> bool:
        """Whether this reason may end a worker. That the device is gone can be known before an op is imported alone."""
        return kind != LATE and (kind != GONE or self._said.device is None or self._task.is_judge)

    def _takes_step(self, rule: Rule, case: str) -> bool:
        """Whether a case's message comes in its turn."""
        last = self._steps.get(case, 0)
        self._steps[case] = rule.step
        return max(last, 1) <= rule.step and (last > 0 or rule.step == 1)
