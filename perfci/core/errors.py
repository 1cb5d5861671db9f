"""Everything that can go wrong in perfci, with a reason. What a *kernel* does wrong becomes a `Reason` in the run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfci.core import extensions
from perfci.core.model import Reason


class PerfciError(Exception):
    """perfci cannot go on. Carries its reason, with a sentence that is the error's text."""

    def __init__(self, kind: str, /, **facts: str | int | float | bool | None) -> None:
        super().__init__(kind, facts)
        self.reason = Reason(kind, facts)

    def __str__(self) -> str:
        """The sentence that the command line prints: what happened, where, and what to do next."""
        from perfci.core.wording import sentence

        return sentence(self.reason)

    def __reduce__(self) -> tuple[Callable[[], PerfciError], tuple[()]]:
        """Survive the way out of a process of a pool."""
        return functools.partial(type(self), self.reason.kind, **self.reason.facts), ()


class UsageError(PerfciError):
    """The command line or a setting in `[tool.perfci]` is off."""


class ContractError(PerfciError):
    """An op breaks the four-file contract."""


class StoredFileError(PerfciError):
    """A stored file is damaged, foreign or of a newer format. It is never overwritten."""


class GitError(PerfciError):
    """Git cannot answer: it, a repository or what was asked for is missing."""


class DeviceError(PerfciError):
    """The device, or the timer asked for, cannot be used."""


class RecordsLostError(DeviceError):
    """Fewer records of the timer's than were queued: what they delimit is lost, and may be measured again."""


class MissingPackageError(PerfciError):
    """An optional package is needed for this step and is not installed."""


class HandoverError(BaseException):
    """A call that another process does not make, and why. No handler of what kernels raise takes it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.kind)
        self.reason = reason


def require(point: str, name: str, needed_by: str) -> Any:
    """Returns what the extension of this name provides at a point. Raises UsageError if it was removed."""
    for thing in extensions.provided(point):
        return thing
    raise UsageError("extension_missing", name=name, option=needed_by)
