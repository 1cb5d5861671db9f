"""Where all that a worker says arrives. What its task does not allow is no message, and ends it."""

from perfci.core.errors import PerfciError
from perfci.core.model import Fact, Reason
from perfci.worker.handover import Called
from perfci.worker.protocol import Doing, Failed, Message, TurnAsked, UnaskedError, unpack
from perfci.worker.tasks import Task

LATE = "worker_late"  # kind of the failure of a worker that was ended because its time was up

LONGEST = 1 << 25
"""Bytes of a message at most: an op that writes into the pipe itself would fill this process's memory."""


class Inbox:
    """What one worker has said."""

    def __init__(self, task: Task) -> None:
        self._task, self._rest = task, b""
        self.doing = Doing("start", task.op if task.place.ops else type(task).__name__.lower())
        self.asking = False  # its last message is to be answered
        self.done = False  # it has sent its last message
        self.failure: Reason | None = None  # why it has failed, in its words
        self.breach: tuple[str, dict[str, Fact]] | None = None
        """kind and facts of the reason by which it has broken the rules of what may be sent"""

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
                continue  # a crash cut it off, or user code wrote into the pipe
            if isinstance(message, Failed):
                if message.reason.kind == LATE:
                    continue  # which this side alone can know: user code wrote it
                self.failure = message.reason
                return heard
            if isinstance(message, Doing):
                self.doing = message
            self.asking = isinstance(message, TurnAsked | Called)
            self.done = self.done or self._task.ends(message)
            heard.append(message)
        if len(self._rest) > LONGEST:
            self.breach = "worker_flooded", {"size": LONGEST}
        return heard
