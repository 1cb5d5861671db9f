"""Signals that end perfci, from its first moment to its last: a sentence, no traceback, and the shell's exit code.

Imports little, since it is at work before anything else of perfci is imported.
"""

import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
"""Signal -> exit code of a program that it stopped"""

GRACE_S = 3.0
"""How long further signals count as the first: `make`, `uv` and others pass on the Ctrl-C that a terminal has sent."""


class Stopped(BaseException):
    """A signal arrived that ends perfci. Like KeyboardInterrupt it passes through `except Exception`."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class _Watch:
    """The signals that have arrived, and the effect of one more."""

    name: str | None = None  # of the first signal
    arrived = -GRACE_S  # when one was last obeyed, monotonic seconds
    code: int | None = None  # of a program that is over


_watch = _Watch()


def listen() -> None:
    """From now on such a signal raises Stopped in the main thread. One that is ignored, as by nohup, stays so.

    Raises Stopped at once for one that an import has swallowed.
    """
    _watch.code = None
    # SIGINT too: typer would end the program itself on KeyboardInterrupt, without a word about what was saved.
    for number in _list_numbers():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if _watch.name is not None:
        raise Stopped(_watch.name)


def _stop(number: int, _: FrameType | None) -> None:
    if _watch.code is not None:
        os._exit(_watch.code)
    now = time.monotonic()
    if now - _watch.arrived < GRACE_S:
        return
    _watch.arrived = now
    _watch.name = _watch.name or signal.Signals(number).name
    raise Stopped(_watch.name)


def exit_with(work: Callable[[], int]) -> NoReturn:
    """Do a program's work, which imports what it needs, and exit with the code that it returns."""
    atexit.register(_ignore)  # as the first one, which runs last
    _watch.code = _do(work)
    sys.exit(_watch.code)


def _ignore() -> None:
    """Behind this Python takes its handlers away, and a signal would end the process as if it had done nothing."""
    for number, handler in ((number, signal.getsignal(number)) for number in _list_numbers()):
        if handler is _stop:
            signal.signal(number, signal.SIG_IGN)


def _list_numbers() -> list[signal.Signals]:
    return [getattr(signal, name) for name in CODES if hasattr(signal, name)]  # Windows has no SIGHUP


def _do(work: Callable[[], int]) -> int:
    try:
        listen()
        return work()
    except BaseException:
        # A module that is imported may turn what a signal raises in it into another error.
        if _watch.name is None:
            raise
    return tell(_watch.name)


def tell(signal_name: str) -> int:
    """Print that a signal ended it, and return its exit code."""
    from perfci.core.model import Reason
    from perfci.core.wording import sentence

    _watch.name = None
    with contextlib.suppress(OSError, ValueError):  # a terminal that hung up takes no words
        print(f"\nperfci: {sentence(Reason('stopped_by_signal', {'signal': signal_name}))}", file=sys.stderr)
    return CODES[signal_name]
