"""Launches looked through: a few programs of each run in the interpreter, on tensors that have no memory.

Loads give zeros, stores do nothing, and a loop takes its first two turns and its last. What is left is what a launch
exercises: the kernel's constants and dtypes, further programs and turns, and the lines that run. It takes milliseconds
for a launch of any size.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, InterpreterBuilder

from perfci.core.model import Feature, Reason
from perfci.device.source import is_own, stable
from perfci.extensions.common.launches import bind_launch

MOST_LINES = 50_000  # of a launch. One that runs more waits for a value that zeros never become

Line = tuple[str, int]  # file and number

_is_own = functools.cache(is_own)


@dataclass
class Exercise:
    """Features and lines that the launches of some calls exercise."""

    features: set[Feature] = field(default_factory=set)
    lines: set[Line] = field(default_factory=set)
    unseen: Reason | None = None  # why they could not be looked through


class _NoMemory:
    """In the place of the interpreter's memory."""

    def load(self, pointers: Any, _mask: Any, _other: Any, dtype: Any) -> Any:
        return np.zeros(pointers.shape, dtype)

    def store(self, *_: Any) -> None: ...

    def atomic_cas(self, _pointers: Any, _expected: Any, values: Any, *_: Any) -> Any:
        return np.zeros_like(values)

    def atomic_rmw(self, _operation: Any, _pointers: Any, values: Any, *_: Any) -> Any:
        return np.zeros_like(values)


class _TooLongError(Exception):
    pass


@contextmanager
def watch_dry_launches() -> Iterator[Exercise]:
    """Look through every launch inside. The process has to run with TRITON_INTERPRET=1."""
    exercise, exercises = Exercise(), dict[str, Exercise]()

    def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
        given, sides = bind_launch(inspect.signature(executor.fn), args, kwargs, executor.grid)
        if 0 in sides:
            return
        key = f"{executor.fn.__module__}.{executor.fn.__qualname__} {sides} {stable(given, _describe)}"
        if key not in exercises:
            exercises[key] = _look_through(executor, given, sides)
        exercise.features |= exercises[key].features
        exercise.lines |= exercises[key].lines

    with mock.patch.object(GridExecutor, "__call__", launch):
        yield exercise


def list_lines(folder: Path) -> Iterator[Line]:
    """Lines of the jitted functions that a folder's files define, as far as they are imported. None of a `def`."""
    for module in list(sys.modules.values()):
        if Path(getattr(module, "__file__", None) or "/").parent == folder:
            for var in vars(module).values():
                if isinstance(var, InterpretedFunction) and var.fn.__module__ == module.__name__:
                    code = var.rewrite().__code__
                    numbers = {number for *_, number in code.co_lines() if number and number > code.co_firstlineno}
                    yield from ((code.co_filename, number) for number in numbers)


def _describe(value: Any) -> str | None:
    """Dtype, shape and strides of a tensor, which is not looked into, and what a descriptor describes."""
    if hasattr(value, "block_shape"):
        return f"{_describe(value.base)} {value.shape} {value.strides} {value.block_shape}"
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "data_ptr") else None


def _look_through(executor: Any, given: dict[str, Any], sides: tuple[int, int, int]) -> Exercise:
    constants = ",".join(f"{name}={_spell(given[name])}" for name in sorted(executor.constexprs))
    values = {name: getattr(value, "base", value) for name, value in given.items() if name not in executor.constexprs}
    dtypes = ",".join(
        f"{name}:{str(value.dtype).removeprefix('torch.')}" if hasattr(value, "data_ptr") else f"{name}:None"
        for name, value in values.items()
        if value is None or hasattr(value, "data_ptr")
    )
    name, done = executor.fn.__name__, Exercise()
    done.features.add(Feature(name, constants, dtypes))
    done.features |= {Feature(name, constants, what="program", place=str(axis)) for axis in range(3) if sides[axis] > 1}
    with _Trace(name, constants, done) as trace:
        patches = interpreter._patch_lang(executor.fn)
        try:
            args = {key: v if key in executor.constexprs else interpreter._implicit_cvt(v) for key, v in given.items()}
            interpreter.interpreter_builder.set_grid_dim(*sides)
            corners = itertools.product(*({0, side - 1} for side in sides))
            for place in dict.fromkeys([*corners, tuple(side // 2 for side in sides)]):
                interpreter.interpreter_builder.set_grid_idx(*place)
                trace.run(executor.fn, args)
        finally:
            patches.restore()
    return done


def _spell(value: Any) -> str:
    value = getattr(value, "value", value)
    return str(getattr(value, "__name__", value))


COUNTERS = frozenset({"_perfci_count"})  # what counts the turns of a loop in an interpreted function


class _Trace:
    """Notes lines and loops of the op's functions, and cuts loops short."""

    def __init__(self, name: str, constants: str, done: Exercise) -> None:
        self._name, self._constants, self._done = name, constants, done
        self._stack = contextlib.ExitStack()
        self._changed: list[tuple[dict[str, Any], dict[str, Any]]] = []  # globals of functions, and what stood there
        self._left = MOST_LINES

    def __enter__(self) -> _Trace:
        patch_language = interpreter._patch_lang_core

        def patch(language: Any, *rest: Any) -> None:
            patch_language(language, *rest)
            language.static_range = _count  # which has all its turns: what they make may be looked up by number

        for owner, name, value in (
            (interpreter, "_interpreter", _NoMemory()),
            (interpreter, "_patch_lang_core", patch),
            (interpreter, "range", self._turns),
            (InterpreterBuilder, "create_dot", lambda _self, _a, _b, total, *_: total),
        ):
            self._stack.enter_context(mock.patch.object(owner, name, value, create=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for names, before in self._changed:
            names.pop("range", None)
            names.update(before)

    def run(self, function: Callable[..., Any], args: dict[str, Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            function(**args)
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _value: Any) -> Any:
        if not _is_own(frame.f_code.co_filename):
            return None
        names = frame.f_globals
        if "range" not in names:
            self._changed.append((names, {name: names[name] for name in COUNTERS & names.keys()}))
            names.update(dict.fromkeys({"range", *COUNTERS}, self._turns))
        return self._note_line

    def _note_line(self, frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line":
            self._done.lines.add((frame.f_code.co_filename, frame.f_lineno))
            self._left -= 1
            if self._left < 0:
                raise _TooLongError
        return self._note_line

    def _turns(self, *args: Any, **_options: Any) -> Any:
        turns, frame = range(*(int(arg) for arg in args)), sys._getframe(1)
        if frame.f_code.co_name == "_new_range":
            frame = frame.f_back or frame
        elif not _is_own(frame.f_code.co_filename):
            return turns
        if len(turns) > 1:
            place = f"{frame.f_code.co_name}:{frame.f_lineno}"
            self._done.features.add(Feature(self._name, self._constants, what="turn", place=place))
        some = turns if len(turns) <= 3 else [turns[0], turns[1], turns[-1]]
        return [next(interpreter._perfci_count(turn, turn + 1)) for turn in some]


def _count(start: Any, end: Any = None, step: Any = 1) -> range:
    return range(int(start)) if end is None else range(int(start), int(end), int(step))
