"""How long interpreted calls may take: a launch of thousands of programs takes minutes, and a GPU no time."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from perfci.device.seam import LateError

_ends: list[float] = []
"""When each bound ends that is in force. The innermost alone counts."""


@contextmanager
def bound_calls(seconds: float) -> Iterator[None]:
    """Inside, launches raise LateError once so many seconds of a core are over, as they begin a program or load.

    Not in between: what is interrupted anywhere may leave anything behind.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    with nullcontext() if _ends else _bound_builder():
        _ends.append(time.process_time() + seconds)
        try:
            yield
        finally:
            _ends.pop()


@contextmanager
def _bound_builder() -> Iterator[None]:
    from triton.runtime.interpreter import interpreter_builder as builder

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if time.process_time() > _ends[-1]:
                raise LateError("no time is left in Triton's interpreter")
            return function(*args, **kwargs)

        return call

    with (
        mock.patch.object(builder, "set_grid_idx", bound(builder.set_grid_idx)),
        mock.patch.object(builder, "create_masked_load", bound(builder.create_masked_load)),
    ):
        yield
