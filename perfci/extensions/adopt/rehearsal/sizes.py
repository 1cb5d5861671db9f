"""Sizes that remember how they were computed, and note what they are compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tree = Any  # a number, (operator, left, right), ("rank", argument), or ("number" or "stride", what has it, value)


@dataclass
class Trace:
    """What a call without memory did with the sizes of its tensors, in order."""

    calls: int = 0  # of torch, and comparisons, which show how far a call got
    in_reference: bool = False
    notes: list[tuple[str, Tree, Tree]] = field(default_factory=list)
    """comparisons that are to be reversed, as (sign, left, right), divisions with a rest, as ("%", size, number), and
    sizes that are looked for in a set, as ("in", size, 0)"""
    asked: tuple[str, int] = ("", 0)  # the argument whose shape was asked for last, and its number of axes
    parts: int = 0  # how many tensors the last call of torch gave
    failed: tuple[str, ...] = ()  # arguments of the call of torch that raised
    shapes: list[list[int]] = field(default_factory=list)  # of the tensors of that call
    is_product: bool = False  # it multiplies matrices

    def follow(self, name: str, value: Any) -> Any:
        """Returns an argument such that what is done with it is noted."""
        if isinstance(value, torch.Tensor):
            value._origin = name
        return Size.make(value, self, ("number", name, value)) if type(value) is int else value

    def see(self, name: str, args: Sequence[Any], result: Any) -> Any:
        """Returns what torch answered when a tensor was asked for its form, such that its uses are noted."""
        tensor, origin = args[0], getattr(args[0], "_origin", "")
        if isinstance(result, torch.Size):
            self.asked = origin, len(result)
            return torch.Size([Size.make(size, self, int(size)) for size in result])
        if name in {"dim", "ndim", "ndimension"}:
            return Size.make(result, self, ("rank", origin))
        if type(result) is int and name in {"size", "stride", "numel", "nelement"}:
            self.asked = origin, torch.Tensor.dim(tensor)
            is_stride = name == "stride" and args[1:]
            return Size.make(result, self, ("stride", (origin, int(args[1])), result) if is_stride else result)
        return result


class Size(int):
    """A number that a tensor's form has, or that is computed of such numbers."""

    trace: Trace
    tree: Tree

    @classmethod
    def make(cls, value: int, trace: Trace, tree: Tree) -> Size:
        """Returns the number with where it comes from."""
        made = cls(value)
        made.trace, made.tree = trace, tree
        return made

    def __hash__(self) -> int:
        self.trace.calls += 1
        self.trace.notes.append(("in", self.tree, 0))  # it is looked for in a set
        return int.__hash__(self)

    def __bool__(self) -> bool:
        if int(self):
            self.trace.notes.append(("!=", self.tree, 0))
        return bool(int(self))


def _tree_of(value: Any) -> Tree:
    return value.tree if isinstance(value, Size) else int(value)


def _compare(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Size, Any], Any]:
    def method(self: Size, other: Any) -> Any:
        if not isinstance(other, int):
            return compare(int(self), other)
        self.trace.calls += 1
        holds = compare(int(self), int(other))
        if (sign, holds) not in {("==", True), ("!=", False)}:
            self.trace.notes.append((sign, self.tree, _tree_of(other)))
        return holds

    return method


def _compute(sign: str, compute: Callable[[Any, Any], Any], *, turned: bool) -> Callable[[Size, Any], Any]:
    def method(self: Size, other: Any) -> Any:
        if not isinstance(other, int):
            return compute(other, int(self)) if turned else compute(int(self), other)
        left, right = (other, self) if turned else (self, other)
        trees = _tree_of(left), _tree_of(right)
        if sign == "//" and int(right) and int(left) % int(right):
            self.trace.notes.append(("%", *trees))
        return Size.make(compute(int(left), int(right)), self.trace, (sign, *trees))

    return method


_COMPARED: Sequence[tuple[str, str]] = (
    ("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")
)  # fmt: skip
_COMPUTED: Sequence[tuple[str, str]] = (
    ("+", "add"), ("-", "sub"), ("*", "mul"), ("//", "floordiv"), ("%", "mod")
)  # fmt: skip
for _sign, _name in _COMPARED:
    setattr(Size, f"__{_name}__", _compare(_sign, getattr(operator, _name)))
for _sign, _name in _COMPUTED:
    setattr(Size, f"__{_name}__", _compute(_sign, getattr(operator, _name), turned=False))
    setattr(Size, f"__r{_name}__", _compute(_sign, getattr(operator, _name), turned=True))
