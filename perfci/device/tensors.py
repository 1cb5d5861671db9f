"""The array half of the seam for torch: inputs, guards and comparisons on any of its devices."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfci.core.model import ErrorStats
from perfci.device.seam import (
    LOWEST,
    PLACES,
    ArrayFacts,
    Arrays,
    Damage,
    Deviation,
    DtypeFacts,
    ErrorsBySize,
    Memory,
    Mismatch,
    other_number,
)

Host = np.ndarray[Any, Any]

GUARD_BYTES = 16384  # zone on either side of an array: a multiple of every alignment that kernels specialise on
GUARD_VALUE = 77  # Stands in the guard zones of a second call. A stray write often copies a stray read's NaN.
GAP = 16  # elements behind each row of a pitched tensor: rows stay as well aligned as their length makes them
CHUNK = 1 << 24  # elements compared at once, so that a large output needs little more memory
FEW = 1 << 14  # elements up to which errors are computed on the host


class TorchArrays(Arrays):
    """Tensors on one device. `reference_device` computes float64 for a device that cannot."""

    kind = torch.Tensor

    def __init__(self, device: str, reference_device: str | None = None) -> None:
        self.device = device
        self._reference_device = reference_device

    def facts(self, array: torch.Tensor) -> ArrayFacts:
        return ArrayFacts(tuple(array.shape), _name(array.dtype), array.device.type, array.is_contiguous())

    def strides(self, array: torch.Tensor) -> tuple[int, ...]:
        return tuple(array.stride())

    def dtype_facts(self, array: torch.Tensor) -> DtypeFacts | None:
        if not array.dtype.is_floating_point:
            return None
        info = torch.finfo(array.dtype)
        return DtypeFacts(_name(array.dtype), info.max, info.smallest_normal, info.smallest_normal * info.eps, info.eps)

    def host(self, array: torch.Tensor) -> Host:
        return np.array(self._upcast(array.detach()).cpu().contiguous().numpy())

    def round_like(self, values: Host, like: torch.Tensor) -> Host:
        return np.asarray(_float64(torch.from_numpy(values).to(like.dtype)).numpy())

    def like(self, values: Host, array: torch.Tensor) -> torch.Tensor:
        """It has the other tensor's strides, unless elements of that share memory."""
        made = torch.from_numpy(np.array(values, order="C")).to(array.dtype).to(array.device)
        if not _is_apart(array):
            return made
        return torch.empty_strided(array.shape, array.stride(), dtype=made.dtype, device=made.device).copy_(made)

    def spoil(self, array: torch.Tensor) -> None:
        if array.numel():
            last = array.detach()[(-1,) * array.ndim]
            last.copy_(torch.tensor(other_number(last.item())))

    def same_bits(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        alike = left.shape == right.shape and left.dtype == right.dtype
        return alike and torch.equal(_bits(left), _bits(right))

    def overlap(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        both = left.numel() and right.numel()
        return bool(both and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr())

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_GuardedAllocations]:
        with _GuardedAllocations(torch.device(self.device).type, filler) as watch:
            yield watch

    def is_filler(self, array: torch.Tensor) -> Host:
        return np.asarray((array == GUARD_VALUE).cpu().numpy())

    def mismatch(self, actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> Mismatch:
        count, worst, place, share = 0, -1.0, 0, 0.0
        for number, (left, right) in enumerate(self._chunks(actual, expected)):
            differing, error, index = _compare(left, right, rtol, atol)
            count += differing
            if differing and error > worst:
                worst, place = error, number * CHUNK + index
            share = share if differing else max(share, error)
        if not count:
            return Mismatch(0, 0.0, (), share)
        return Mismatch(count, worst, tuple(int(i) for i in np.unravel_index(place, tuple(actual.shape))))

    def unfinite(self, array: torch.Tensor) -> int:
        narrow = array.dtype.is_floating_point and array.element_size() == 1  # float8 has no isfinite
        chunks = (left for left, _ in self._chunks(array, array))
        return sum(int((~torch.isfinite(_float64(chunk) if narrow else chunk)).sum()) for chunk in chunks)

    def deviation(self, actual: torch.Tensor, expected: torch.Tensor) -> Deviation | None:
        """Errors of a tensor that would take the host long, chunk by chunk."""
        if actual.numel() <= FEW:
            return None
        pieces = ((_float64(left), _float64(right)) for left, right in self._chunks(actual, expected))
        return measure_deviation(pieces, tuple(actual.shape))

    def errors_by_size(
        self, actual: torch.Tensor, exact: torch.Tensor, rtol: float, atol: float, *, summed: bool
    ) -> ErrorsBySize | None:
        if actual.numel() <= FEW:
            return None
        sizes = exact.abs()
        if summed:
            sizes += exact.masked_fill(~exact.isfinite(), 0.0).square().mean(-1, keepdim=True).sqrt()
        largest = torch.zeros(PLACES, dtype=torch.float64, device=self._reference_device or actual.device)
        counts, squares = torch.zeros_like(largest), torch.zeros_like(largest[0])
        for (got, due), (_, size) in zip(self._chunks(actual, exact), self._chunks(actual, sizes), strict=True):
            left, right = _float64(got), _float64(due)
            finite = left.isfinite() & right.isfinite()
            error = (left - right).abs().masked_fill(~finite, 0.0)
            place = torch.frexp(size.masked_fill(~finite | (size == 0), 2.0**LOWEST)).exponent.long() - LOWEST
            beyond = error.masked_fill(error <= atol + rtol * right.abs(), 0.0)
            largest.scatter_reduce_(0, place, beyond, "amax")
            counts.scatter_add_(0, place, finite.to(torch.float64))
            squares += error.square().sum()
        rms = math.sqrt(float(squares) / max(float(counts.sum()), 1.0))
        return ErrorsBySize(counts.cpu().numpy(), largest.cpu().numpy(), rms)

    def memory_of(self, array: torch.Tensor) -> Memory:
        storage = array.untyped_storage()
        place = tuple(array.shape), array.stride(), array.storage_offset()
        return Memory(storage.data_ptr() or id(array), storage.nbytes(), _name(array.dtype), *place)

    def bytes_of(self, array: torch.Tensor) -> memoryview:
        storage = array.untyped_storage()
        return memoryview((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())).cast("B")

    def view(self, memory: Any, place: Memory) -> torch.Tensor:
        if not isinstance(memory, torch.Tensor):
            empty = torch.empty(0, dtype=torch.uint8)
            memory = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else empty
        made = torch.empty(0, dtype=getattr(torch, place.dtype), device=memory.device)
        return made.set_(memory.untyped_storage(), place.offset, place.shape, place.strides)

    def twin(self, array: torch.Tensor) -> torch.Tensor | None:
        if array.device.type == "cpu":
            return None
        storage, made = array.untyped_storage().clone(), torch.empty(0, dtype=array.dtype, device=array.device)
        return made.set_(storage, array.storage_offset(), array.shape, array.stride())

    def open_to_others(self, array: torch.Tensor) -> str | None:
        if array.device.type == "cpu":
            return None
        parts = array.untyped_storage()._share_cuda_() if array.untyped_storage().nbytes() else []  # without handles
        return json.dumps([part.hex() if isinstance(part, bytes) else part for part in parts])

    def take_back(self) -> None:
        if self.device == "cuda":
            torch.cuda.ipc_collect()

    def open_foreign(self, handle: str) -> torch.Tensor:
        if not (packed := json.loads(handle)):
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        device, memory, size, offset, counter, place, event, needed = packed
        parts = bytes.fromhex(memory), size, offset, bytes.fromhex(counter), place, bytes.fromhex(event), needed
        storage = torch.UntypedStorage._new_shared_cuda(device, *parts)
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)

    def spell(self, value: Any) -> Any:
        match value:
            case torch.dtype() | torch.layout() | torch.memory_format():
                return {"torch": str(value).removeprefix("torch.")}
            case torch.device():
                return {"device": value.type}
        return None

    def unspell(self, spelled: Mapping[str, Any]) -> Any:
        if "device" in spelled:
            return torch.device(spelled["device"])
        value = getattr(torch, spelled["torch"])
        if not isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            raise TypeError(f"torch.{spelled['torch']} is no dtype")
        return value

    def memory_in_use(self) -> int | None:
        module = torch.get_device_module(self.device)
        return int(module.memory_allocated()) if hasattr(module, "memory_allocated") else None

    def _upcast(self, array: torch.Tensor) -> torch.Tensor:
        moved = self._for_reference(array)
        return _float64(moved) if moved.dtype.is_floating_point else moved

    def _for_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._reference_device is None else tensor.to(self._reference_device)

    def _chunks(self, actual: torch.Tensor, expected: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Both piece by piece, on the device that computes float64."""
        left = actual.detach().reshape(-1)
        right = expected.to(self._reference_device or actual.device).reshape(-1)
        for start in range(0, left.numel(), CHUNK):
            yield self._for_reference(left[start : start + CHUNK]), right[start : start + CHUNK]

    def _place(self, array: torch.Tensor, layout: str, number: int) -> torch.Tensor:
        """The axes of a dense tensor keep their order in memory: kernels have own paths for transposed ones."""
        if layout == "expanded" and array.dim() and array.shape[0]:
            return self._place(array[:1].contiguous(), "contiguous", number).expand(array.shape)
        strides = array.stride()
        if layout != "contiguous" or not _is_apart(array):
            if (order := _order(array)) is not None:
                return self._place(array.permute(order), layout, number).permute(_inverse(order))
            step, gap = 2 + number if layout == "strided" else 1, GAP * (1 + number) if layout == "pitched" else 0
            rows = (*array.shape[:-1], array.shape[-1] * step + gap) if array.dim() else ()
            strides = tuple(math.prod(rows[axis + 1 :]) for axis in range(array.dim() - 1))
            strides = (*strides, step) if array.dim() else ()
        guard = GUARD_BYTES // array.element_size()
        room = torch.full(
            (_extent(array.shape, strides) + 2 * guard,), _poison(array.dtype), dtype=array.dtype, device=array.device
        )
        return room.as_strided(array.shape, strides, guard).copy_(array)

    def _copy(self, array: torch.Tensor) -> torch.Tensor:
        return array.clone()

    def _can_overwrite(self, old: torch.Tensor, new: torch.Tensor) -> bool:
        apart = all(stride != 0 for size, stride in zip(old.shape, old.stride(), strict=True) if size > 1)
        return old.shape == new.shape and old.dtype == new.dtype and apart

    def _overwrite(self, pairs: list[tuple[Any, Any]]) -> None:
        olds = tuple(old for old, _ in pairs)
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(olds):
            for old, new in pairs:
                old.copy_(new)


_EMPTY = frozenset(
    {torch.ops.aten.empty.memory_format}
    | {
        getattr(torch.ops.aten, name).default
        for name in ("empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
    }
)
_FILLED = frozenset(
    getattr(torch.ops.aten, f"{before}{name}{after}").default
    for name in ("zeros", "ones", "full")
    for before, after in (("", ""), ("", "_like"), ("new_", ""))
)


class Mode(TorchDispatchMode):
    """A dispatch mode that stands for itself: torch hides others from torch._dynamo, whose import takes a second."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _GuardedAllocations(Mode):
    """Replaces every fresh allocation by the middle of a larger one, with ends that show writes past its own.

    What is uninitialised is NaN (the largest integer) or GUARD_VALUE, so that it differs between two calls. So are the
    ends: NaN shows what reads beyond its memory.
    """

    def __init__(self, device_type: str, filler: str) -> None:
        super().__init__()
        self._device_type = device_type
        self._filler = filler
        self._rooms: list[tuple[torch.Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _EMPTY | _FILLED or result.device.type != self._device_type:
            return result
        if result.layout != torch.strided:
            return result
        guarded = self._guard(result)
        return guarded.copy_(result) if func in _FILLED else guarded

    def find_damage(self) -> Damage:
        damage = Damage()
        for room, guard in self._rooms:
            if written := self._list_written(room[:guard]):
                damage = damage.join(Damage(1, before=guard - written[0]))
            if written := self._list_written(room[-guard:]):
                damage = damage.join(Damage(1, after=written[-1] + 1))
        return damage

    def _list_written(self, zone: torch.Tensor) -> list[int]:
        """The places of a guard zone that no longer hold what it was filled with."""
        now, before = _bits(zone), _bits(torch.full_like(zone, self._edge(zone.dtype)))
        return [] if torch.equal(now, before) else (now != before).nonzero().flatten().tolist()

    def _edge(self, dtype: torch.dtype) -> Any:
        return _poison(dtype) if self._filler == "nan" else False if dtype is torch.bool else GUARD_VALUE

    def _guard(self, plain: torch.Tensor) -> torch.Tensor:
        guard = GUARD_BYTES // plain.element_size()
        length = _extent(plain.shape, plain.stride()) + 2 * guard
        room = torch.full((length,), self._edge(plain.dtype), dtype=plain.dtype, device=plain.device)
        if plain.dtype is not torch.bool:
            self._rooms.append((room, guard))
        return room.as_strided(plain.shape, plain.stride(), guard)


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first of a tensor to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0


def _is_apart(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory, as far as each axis steps over those that step less."""
    sides = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    return all(
        stride >= _extent([size for _, size in sides[:axis]], [step for step, _ in sides[:axis]])
        for axis, (stride, _) in enumerate(sides)
    )


def _order(tensor: torch.Tensor) -> list[int] | None:
    """The axes of a dense tensor as they lie in memory, outermost first. None if it is row-major or has gaps."""
    if tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return order if tensor.permute(order).is_contiguous() else None


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _compare(actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> tuple[int, float, int]:
    """How many elements break the tolerance, the largest error of them, and its place.

    If none does, the largest error / tolerance.
    """
    left, right = _float64(actual), _float64(expected.to(actual.dtype))
    error, allowed = (left - right).abs(), atol + rtol * right.abs()
    # Beside an infinite value any distance would be within rtol of it.
    near = (error <= allowed) & right.isfinite()
    good = near | (left == right) | (left.isnan() & right.isnan())
    count = int((~good).sum())
    if not count:
        shares = torch.where(near & (error > 0), error / allowed, torch.zeros_like(error))
        return 0, float(shares.max()) if shares.numel() else 0.0, 0
    error = torch.where(good, -torch.ones_like(error), error.nan_to_num(nan=float("inf"), posinf=float("inf")))
    index = int(error.argmax())
    return count, float(error[index]), index


def _float64(tensor: torch.Tensor) -> torch.Tensor:
    # float8 converts through float32 only
    wide = tensor.to(torch.float32) if tensor.dtype.is_floating_point and tensor.element_size() == 1 else tensor
    return wide.to(torch.float64)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    dense = tensor.contiguous()
    return dense.view(sizes[dense.element_size()]) if dense.dtype.is_floating_point else dense


def _poison(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


LATER = frozenset(  # namespaces that torch itself registers when a part of it is first used, such as torch.compile
    {"_inductor_debug", "_inductor_test", "ao", "bucketing", "c10d_functional", "cplib", "device_mesh", "flex_lib",
     "fsdp", "mempool", "onnx", "onnx_symbolic", "pippy", "quantized_decomposed", "semi_structured", "streams",
     "torch_attn", "torch_nn", "torch_vendor_quack", "triton"}
)  # fmt: skip


def operator_namespaces() -> frozenset[str]:
    """Namespaces of all torch operators that are registered in this process: torch's own, those of libraries."""
    return LATER | {name.split("::")[0] for name in torch._C._dispatch_get_all_op_names()}


# --- errors of a large output: it may be as large as the memory allows, so it is read piece by piece ------------------

QUANTILES = (0.5, 0.9, 0.99)
_CUT = 14  # lowest bits of a float32 that quantiles lack


def measure_deviation(pieces: Iterable[tuple[torch.Tensor, torch.Tensor]], shape: Sequence[int]) -> Deviation:
    """Errors over the elements that are finite in both. A figure that leaves float64's range is None.

    pieces: flat, of an output and its reference, in float64. Quantiles are found by counting bit patterns, since
    sorting would take several times the memory. So they are cut, by less than 1 part in 500.
    """
    sums = _Sums()
    counts = np.zeros(1 << (31 - _CUT), dtype=np.int64)
    for actual, exact in pieces:
        error = sums.take(actual, exact)
        # Those of 0 would all be counted in one place.
        patterns = error[error > 0].to(torch.float32).view(torch.int32) >> _CUT
        counts += torch.bincount(patterns, minlength=len(counts)).cpu().numpy()
    total, shares, errors, squares, sizes, relative = sums.figures.tolist()
    if not total:
        return Deviation(ErrorStats(0))
    count = int(total)
    counts[0] += count - counts.sum()
    ranks = [math.ceil(q * (count - 1)) for q in QUANTILES]
    places = np.searchsorted(np.cumsum(counts), ranks, side="right")
    p50, p90, p99 = (places << _CUT).astype(np.int32).view(np.float32).tolist()
    worst = tuple(int(index) for index in np.unravel_index(sums.place, tuple(shape))) if shape else ()
    rmse, exact = math.sqrt(squares / count), math.sqrt(sizes / count)
    stats = ErrorStats(
        count=count,
        max_abs=_or_none(sums.worst),
        mean_abs=_or_none(errors / count),
        max_rel=_or_none(sums.worst_share) if shares else None,
        mean_rel=_or_none(relative / shares) if shares else None,
        p50_abs=_or_none(p50),
        p90_abs=_or_none(p90),
        p99_abs=_or_none(p99),
        rmse=_or_none(rmse),
        l2=_or_none(rmse / exact) if exact else None if rmse else 0.0,
        worst_index=worst,
    )
    return Deviation(stats, exact)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


class _Sums:
    """What one look over all pieces adds up."""

    def __init__(self) -> None:
        self.figures = np.zeros(6)  # elements, shares, and the sums of errors, their squares, sizes' squares, shares
        self.place = self._start = 0
        self.worst, self.worst_share = -1.0, 0.0

    def take(self, actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Add a piece. Gives its errors, -1 if either is not finite."""
        error = (actual - exact).abs().masked_fill(~(actual.isfinite() & exact.isfinite()), -1.0)
        both = error >= 0
        if error.numel() and (worst := float(error.max())) > self.worst:
            self.worst, self.place = worst, self._start + int(error.argmax())
        self._start += error.numel()
        seen, size = error.clamp(min=0.0), exact.abs().masked_fill(~both, 0.0)
        share = (seen / size).masked_fill(size == 0, 0.0)
        figures = (both.sum(), (size > 0).sum(), seen.sum(), seen.square().sum(), size.square().sum(), share.sum())
        self.figures += torch.stack([figure.to(torch.float64) for figure in figures]).cpu().numpy()
        if share.numel():
            self.worst_share = max(self.worst_share, float(share.max()))
        return error
