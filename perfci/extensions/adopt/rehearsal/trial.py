"""Calls for real, of small sizes in Triton's interpreter: what is read, what is written, whether the values agree."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from perfci.device.tensors import TorchArrays
from perfci.measure.inputs import call_exact

_NEAR = 2e-2  # error of a right answer at most, of its size: float16 and TF32 are right, another formula is not
_MASK = 1e5  # numbers from here on stand for a mask, and say nothing about the others' size
_MOST = 0.5  # of a tensor that a launch reads at least. None of it is read of one that only shows a shape
_BY_CHANCE = 0.5  # of the values differ: which others agree says nothing
_ROOM = 2 << 30  # bytes that a call may take beside what the process has
_MADE = ("empty", "zeros", "ones", "full", "rand", "new_", "bernoulli")  # functions that ask for a tensor's form alone

BEYOND = "the kernel reaches beyond its tensors"  # as a trial's problem
_PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "linear"})
GRADIENT = "gradient"  # what a backward pass takes beside the function's inputs

Array = np.ndarray[Any, Any]
_CALL_S, _ACCESS_S, _ELEMENT_S = 6e-3, 6e-4, 3e-8
"""What a call takes in Triton's interpreter, each load and store in it, and each of their elements"""


@dataclass(frozen=True)
class Trial:
    """What kernel and reference did with one case's inputs."""

    problem: str | None = None  # what one of them raised
    written: tuple[str, ...] = ()  # tensors that the kernel writes into
    rewritten: tuple[str, ...] = ()  # tensors that the reference writes into
    unread: tuple[str, ...] = ()  # tensors that the kernel leaves unread for the most part
    ignored: tuple[str, ...] = ()  # tensors of which it reads nothing
    races: bool = False  # programs of one launch store different values at one address
    idle: tuple[str, ...] = ()  # tensors on which the reference's values do not depend
    is_finite: bool = False  # the reference's values
    picks: tuple[int | str, ...] | None = None
    """what the reference gives too: places among what the kernel returns, or names of tensors that it writes into"""
    returned: int | None = None  # how many values the kernel returns in a tuple. None: it returns one, or none
    expected: tuple[int, ...] | None = None  # places of tensors in what the reference returns, if not all are
    shares: tuple[float, ...] = ()  # of the values that differ, for each of the reference's outputs
    outputs: tuple[tuple[int, ...], ...] = ()  # shapes of the reference's outputs
    dtypes: tuple[str, ...] = ()  # of the reference's outputs
    is_alike: bool = True  # the kernel's have the same dtypes
    strides: tuple[tuple[int, ...], ...] = ()
    """of the first output that has gaps or another order in memory, and of the reference's"""
    launches: int = 0
    shift: int = 0  # by how many bits the kernel moves integers to the right, at most
    seconds: float = 0.0  # that such a call usually takes

    @property
    def share(self) -> float:
        """Of the values that differ."""
        return max(self.shares, default=1.0)

    @property
    def share_at_most(self) -> float:
        """The same as a note shows it, rounded up to a thousandth: few are not 0.0 %."""
        return math.ceil(self.share * 1000) / 1000

    @property
    def agrees(self) -> bool:
        """Whether kernel and reference gave the same finite values."""
        return self.problem is None and self.is_finite and not self.share

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to say against this form of a call."""
        return self.agrees and not self.unread and not self.idle and not self.races

    @property
    def rank(self) -> tuple[Any, ...]:
        """The least is the best: of what raises that which a kernel raises."""
        lost, raised = len(self.unread) + len(self.idle) + self.races, self.problem or ""
        stage = 0 if not raised else 1 if raised.startswith("InterpreterError") else 2
        return stage, not self.is_finite, lost, min(self.share, _BY_CHANCE), len(self.ignored), not self.launches


def try_call(
    kernel: Callable[..., Any], reference: Callable[..., Any], given: Mapping[str, Any], seconds: float
) -> Trial:
    """Returns what both do with these inputs, which stay as they are.

    seconds: that the kernel's launches may take, as a trial has them.
    """
    for_kernel, for_reference = _copy(given), _copy(given)
    tensors = {name: value for name, value in for_kernel.items() if isinstance(value, torch.Tensor)}
    gather = any(not value.is_floating_point() and value.dtype != torch.bool for value in tensors.values())
    watched = _Accesses(tensors, seconds)
    try:
        with bounded_memory():
            with watched.watch():
                answer = kernel(**for_kernel)
            right = reference(**for_reference)
    except (Exception, SystemExit) as error:  # whatever other people's code raises
        line = traceback.extract_tb(error.__traceback__)[-1].line  # which an assertion without a message is
        return Trial(f"{type(error).__name__}: {str(error) or line}"[:300], seconds=watched.spent_s)
    listed = _list(right)
    full = [(place, value) for place, value in listed if value.numel()]
    listed = full or listed  # one without elements stands for an output that was not asked for
    expected = [value for _, value in listed]
    written = _list_changed(given, for_kernel)
    shares = {name: watched.share_of(name) for name in tensors if name not in written}
    given_back = [name for name in shares if any(_is_one(value, for_kernel[name]) for _, value in _list(answer))]
    unread = [name for name, share in shares.items() if 0 < share < _MOST and not gather]
    unread += [name for name in given_back if shares[name] < _MOST and name not in unread]  # nothing is computed
    rewritten = _list_changed(given, for_reference)
    outputs: list[tuple[int | str, torch.Tensor]] = [
        (place, value)
        for place, value in _list(answer)
        if all(not _is_one(value, for_kernel[name]) for name in written)
    ]
    outputs += [(name, for_kernel[name]) for name in written]
    if rewritten or not expected:
        names = rewritten or written
        expected = [one for one in expected if all(one is not for_reference[name] for name in names)]
        expected += [for_reference[name] for name in names]
    rewriting = {name: for_reference[name] for name in rewritten}
    picks = _pick(outputs, expected)
    by_place = dict(outputs)
    pairs = [*zip(picks or (), expected, strict=False)]
    is_whole = not any(value.is_floating_point() for value in tensors.values())
    differing = tuple(_differ(by_place[place], value, is_whole=is_whole) for place, value in pairs)
    alike = all(by_place[place].dtype == value.dtype for place, value in pairs)
    returned = ((by_place[place], value) for place, value in pairs if isinstance(place, int))
    loose = ((one.stride(), value.stride()) for one, value in returned if one.is_contiguous() < value.is_contiguous())
    # A gradient may depend on no input, such as that of a sum.
    compared = shares if differing and not any(differing) and GRADIENT not in given else {}
    return Trial(
        written=tuple(written), rewritten=tuple(rewritten), unread=tuple(unread) if watched.launches else (),
        ignored=tuple(name for name, share in shares.items() if not share),
        is_finite=all(bool(value.double().isfinite().all()) for value in expected if value.is_floating_point()),
        picks=picks, returned=len(answer) if isinstance(answer, list | tuple) else None, shares=differing,
        expected=tuple(place for place, _ in listed) if len(listed) < _count(right) else None,
        outputs=tuple(tuple(value.shape) for value in expected), launches=watched.launches,
        dtypes=tuple(str(value.dtype).removeprefix("torch.") for value in expected), is_alike=alike,
        races=watched.races, strides=next(loose, ()), shift=watched.shift, seconds=watched.spent_s,
        idle=tuple(name for name in compared if shares[name] and _is_idle(reference, given, name, right, rewriting)),
    )  # fmt: skip


def watch(kernel: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Returns the kernel such that it raises where it reaches beyond its tensors, or takes more seconds."""

    def call(**given: Any) -> Any:
        with _Accesses({}, seconds).watch():
            return kernel(**given)

    return call


@contextmanager
def bounded_memory() -> Iterator[None]:
    """What takes more memory than _ROOM beyond the present one raises inside, where the system has such a limit."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()  # of data
        before = resource.getrlimit(resource.RLIMIT_DATA)
    except (ImportError, OSError):
        yield
        return
    most = used + _ROOM if before[1] == resource.RLIM_INFINITY else min(used + _ROOM, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def answer_alike(
    kernel: Callable[..., Any], reference: Callable[..., Any], trial: Trial
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns both sides such that they leave their inputs as they are, and give the same outputs in the same order."""

    def give(side: Callable[..., Any], picks: Sequence[int | str] | None) -> Callable[..., Any]:
        def call(**given: Any) -> tuple[torch.Tensor, ...]:
            made = _copy(given)
            outputs = dict(_list(side(**made)))
            names = trial.rewritten if picks is None else ()
            places = [place for place in outputs if all(outputs[place] is not made[name] for name in names)]
            return tuple(made[pick] if isinstance(pick, str) else outputs[pick] for pick in picks or (*places, *names))

        return call

    return give(kernel, trial.picks), give(reference, None if trial.rewritten else trial.expected)


def find_rounding(
    reference: Callable[..., tuple[torch.Tensor, ...]], given: Mapping[str, Any]
) -> Iterator[tuple[str, float]]:
    """Yields each output's dtype, and how far it is off if factors of products are rounded as the inputs are."""
    arrays = TorchArrays("cpu")
    exact = call_exact(reference, arrays.upcast(given), arrays, ())
    with _Rounds(next(value.dtype for value in given.values() if torch.is_tensor(value) and value.is_floating_point())):
        rounded = reference(**given)
    for one, right in zip(rounded, exact, strict=True):
        if one.is_floating_point():
            yield str(one.dtype).removeprefix("torch."), float((one.double() - right.double()).abs().max())


class _Rounds(TorchFunctionMode):
    """Rounds what torch multiplies as matrices to a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_product = getattr(func, "__name__", "") in _PRODUCTS
        return func(*map(self._round, args) if is_product else args, **(kwargs or {}))

    def _round(self, value: Any) -> Any:
        is_rounded = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._dtype).to(value.dtype) if is_rounded else value


def _is_idle(
    reference: Callable[..., Any], given: Mapping[str, Any], name: str, right: Any, rewritten: Mapping[str, Any]
) -> bool:
    """Whether other values of a tensor change nothing, as where a norm's groups have one element each."""
    value = given[name]
    if not value.is_floating_point() or value.numel() < 2:
        return False
    # Not all by one factor, as a norm undoes that, and not in another order, which a sum does not see.
    uneven = torch.linspace(0.4, 0.9, value.numel()).reshape(value.shape).to(value.dtype)
    for other in (value * uneven, -value):
        made = _copy({**given, name: other})
        pairs = zip(_list(reference(**made)), _list(right), strict=False)
        if any(before.shape != after.shape or _differ(before, after) for (_, before), (_, after) in pairs):
            return False
        if any(_differ(made[one], given_one) for one, given_one in rewritten.items() if one != name):
            return False
    return True


def _copy(given: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that lie in memory as the originals do."""

    def copy(value: torch.Tensor) -> torch.Tensor:
        room = value.as_strided((_extent(value),), (1,)).clone()
        return room.as_strided(value.shape, value.stride())

    return {name: copy(value) if isinstance(value, torch.Tensor) else value for name, value in given.items()}


def _extent(value: torch.Tensor) -> int:
    """How many elements of memory a tensor reaches over."""
    steps = zip(value.shape, value.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if value.numel() else 0


def _count(value: Any) -> int:
    """How many outputs there are, of tensors or not."""
    return len(value) if isinstance(value, list | tuple) else 1


def _list(value: Any) -> list[tuple[int, torch.Tensor]]:
    """The tensors of an answer, and their places in it."""
    outputs = list(value) if isinstance(value, list | tuple) else [value]
    tensors = ((place, output) for place, output in enumerate(outputs) if torch.is_tensor(output))
    return [(place, output.detach() if output.requires_grad else output) for place, output in tensors]


def _list_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    tensors = {name: value for name, value in before.items() if isinstance(value, torch.Tensor)}
    return [name for name, value in tensors.items() if not _is_same(value, after[name])]


def _is_one(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are the same elements of memory, as an autograd.Function gives a tensor that it wrote into back."""
    return (one.data_ptr(), one.shape) == (other.data_ptr(), other.shape)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, 0.0, 0.0, equal_nan=True)


def _pick(
    outputs: Sequence[tuple[int | str, torch.Tensor]], expected: Sequence[torch.Tensor]
) -> tuple[int | str, ...] | None:
    """Which outputs have the forms of what is expected, in order, those of like values first."""
    picks, left = list[int | str](), dict(outputs)
    for value in expected:
        fitting = [place for place, output in left.items() if output.shape == value.shape]
        if not fitting:
            return None
        picks.append(min(fitting, key=lambda place: _differ(left[place], value)))
        del left[picks[-1]]
    return tuple(picks) or None


def _differ(output: torch.Tensor, expected: torch.Tensor, *, is_whole: bool = False) -> float:
    """The share of the values that are not those expected. is_whole: of whole numbers alone, which nothing rounds."""
    if not expected.numel():
        return 0.0
    if is_whole and not (output.is_floating_point() or expected.is_floating_point()):
        return float((output != expected).double().mean())
    given, right = output.to(torch.float64), expected.to(torch.float64)
    sizes = right.abs()
    usual = sizes[sizes.isfinite() & (sizes < _MASK)]
    allowed = _NEAR * (sizes + (usual.square().mean().sqrt() if usual.numel() else 0.0))
    if expected.dtype in (torch.int8, torch.uint8):
        allowed = torch.ones_like(right)  # a step, by which roundings differ
    wrong = ~((given - right).abs() <= allowed) & (given != right) & ~(given.isnan() & right.isnan())
    return float(wrong.double().mean())


@dataclass
class _Accesses:
    """Which elements of tensors are read inside, by launches and torch. Refuses what no tensor of a launch has.

    Ends launches that take too long.
    """

    tensors: Mapping[str, torch.Tensor]
    seconds: float
    spent_s: float = _CALL_S  # counted, not measured: what ends by it ends at the same place each time
    launches: int = 0
    races: bool = False
    shift: int = 0  # the most bits that integers are moved to the right by
    _stores: list[tuple[Array, Array, Array]] = field(default_factory=list)  # addresses, values, number of the program
    _read: dict[str, Array] = field(default_factory=dict)  # name -> for each element whether it was read
    _spans: list[tuple[int, int]] = field(default_factory=list)  # addresses of the launch under way

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Notes what happens inside."""
        from triton.runtime import interpreter

        self._read = {name: np.zeros(value.numel(), bool) for name, value in self.tensors.items()}
        memory, run, copy = interpreter._interpreter, interpreter.GridExecutor.__call__, interpreter._implicit_cvt

        def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self.launches += 1
            self._spans.clear()
            self._stores.clear()
            result = run(executor, *args, **kwargs)
            self.races |= _collide(*map(np.concatenate, zip(*self._stores, strict=True))) if self._stores else False
            return result

        def convert(value: Any) -> Any:
            base = getattr(value, "base", value)
            if hasattr(base, "untyped_storage"):
                storage = base.untyped_storage()
                self._spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            return copy(value)

        def note(shift: Callable[..., Any]) -> Callable[..., Any]:
            def move(builder: Any, value: Any, bits: Any) -> Any:
                self.shift = max(self.shift, int(np.max(bits.data, initial=0)))
                return shift(builder, value, bits)

            return move

        builder = interpreter.InterpreterBuilder
        with (
            mock.patch.object(builder, "create_ashr", note(builder.create_ashr)),
            mock.patch.object(builder, "create_lshr", note(builder.create_lshr)),
            mock.patch.object(interpreter, "_interpreter", _Memory(memory, self, interpreter.interpreter_builder)),
            mock.patch.object(interpreter.GridExecutor, "__call__", launch),
            mock.patch.object(interpreter, "_implicit_cvt", convert),
            _Reads(self),
        ):
            yield

    def share_of(self, name: str) -> float:
        """How much of a tensor was read."""
        read = self._read[name]
        return float(read.mean()) if read.size else 1.0

    def note_launch(self, pointers: Array, mask: Any, *, reads: bool) -> None:
        """Notes a load, or a store.

        Raises IndexError if it is of no tensor of the launch, TimeoutError if launches take too long.
        """
        self.spent_s += _ACCESS_S + pointers.size * _ELEMENT_S
        if self.spent_s > self.seconds:
            raise TimeoutError(f"the launches take more than {self.seconds:g} s in Triton's interpreter")
        addresses = pointers.reshape(-1).astype(np.int64)
        chosen = np.broadcast_to(np.asarray(mask), pointers.shape).reshape(-1).astype(bool)
        addresses = addresses if chosen.all() else addresses[chosen]
        if not addresses.size:
            return
        least, most = int(addresses.min()), int(addresses.max())
        if not any(begin <= least and most < end for begin, end in self._spans):
            inside = [(addresses >= begin) & (addresses < end) for begin, end in self._spans]
            if not np.any(inside, axis=0).all():
                raise IndexError(BEYOND)
        for name, tensor in self.tensors.items() if reads else ():
            begin, size = tensor.data_ptr(), tensor.element_size()
            if least < begin + tensor.numel() * size and most >= begin:
                at = (addresses - begin) // size
                self._read[name][at[(at >= 0) & (at < tensor.numel())]] = True

    def note_store(self, pointers: Array, values: Array, mask: Any, program: tuple[int, ...]) -> None:
        """Notes what one program stores."""
        chosen = np.broadcast_to(np.asarray(mask), pointers.shape).astype(bool)
        number = (program[0] << 40) + (program[1] << 20) + program[2]
        stored = np.broadcast_to(np.asarray(values), pointers.shape)[chosen].astype(np.float64)
        self._stores.append((pointers[chosen].astype(np.int64), stored, np.full(stored.shape, number)))
        self.races |= _collide(*self._stores[-1], alone=True)

    def note_torch(self, value: torch.Tensor) -> None:
        """Torch computes with a tensor: it reads all of it."""
        for name, tensor in self.tensors.items():
            if tensor.numel() and value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                self._read[name][:] = True


def _collide(addresses: Array, values: Array, programs: Array, *, alone: bool = False) -> bool:
    """Whether programs stored different values at one address, or the lanes of one store if it is alone."""
    order = np.argsort(addresses, kind="stable")
    addresses, values, programs = addresses[order], values[order], programs[order]
    is_shared = (addresses[1:] == addresses[:-1]) & (alone | (programs[1:] != programs[:-1]))
    return bool((is_shared & (values[1:] != values[:-1])).any())


class _Memory:
    """Stands in for the interpreter's memory."""

    def __init__(self, memory: Any, accesses: _Accesses, builder: Any) -> None:
        self._memory, self._accesses, self._builder = memory, accesses, builder

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Any:
        self._accesses.note_launch(pointers, mask, reads=True)
        return self._memory.load(pointers, mask, other, dtype)

    def store(self, pointers: Array, values: Array, mask: Array) -> Any:
        self._accesses.note_launch(pointers, mask, reads=False)
        self._accesses.note_store(pointers, values, mask, self._builder.grid_idx)
        return self._memory.store(pointers, values, mask)

    def atomic_rmw(self, operation: Any, pointers: Array, values: Array, mask: Array, *order: Any) -> Any:
        self._accesses.note_launch(pointers, mask, reads=True)
        return self._memory.atomic_rmw(operation, pointers, values, mask, *order)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


class _Reads(TorchFunctionMode):
    """Notes tensors that torch computes with, but for those of which it makes views or asks the form."""

    def __init__(self, accesses: _Accesses) -> None:
        super().__init__()
        self._accesses = accesses

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        outputs = result if isinstance(result, list | tuple) else [result]
        given = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
        if name.startswith(_MADE) or not all(isinstance(output, torch.Tensor) for output in outputs):
            return result
        made = {output.untyped_storage().data_ptr() for output in outputs if output.device.type == "cpu"}
        for value in given:
            if value.device.type == "cpu" and value.untyped_storage().data_ptr() not in made:
                self._accesses.note_torch(value)
        return result
