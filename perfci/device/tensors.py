"""The array half of the seam for torch: inputs, guards and comparisons on any of its devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfci.device.deviations import deviation
from perfci.device.seam import ArrayFacts, Deviation, DtypeFacts, Inputs, Mismatch, other_number, pairs_to_refill

Host = np.ndarray[Any, Any]

GUARD_BYTES = 16384
"""Guard zone on either side of an array; a multiple of every alignment that kernels specialise on."""

GUARD_VALUE = 77
"""Stands in the guard zones of outputs; no NaN, since a stray write often copies a stray read's NaN."""

CHUNK = 1 << 24
"""Elements compared at once, so that a large output needs little more memory."""


FEW = 1 << 14
"""Elements up to which errors are computed on the host."""


class TorchArrays:
    """Tensors on one device; see `seam.Arrays` for what each method is for.

    reference_device: where float64 is computed, for a device that has none.
    """

    def __init__(self, device: str, reference_device: str | None = None) -> None:
        self.device = device
        self._reference_device = reference_device

    def is_array(self, value: Any) -> bool:
        """Whether it is a tensor."""
        return isinstance(value, torch.Tensor)

    def facts(self, array: torch.Tensor) -> ArrayFacts:
        """Shape, dtype, device and density."""
        return ArrayFacts(tuple(array.shape), _name(array.dtype), array.device.type, array.is_contiguous())

    def dtype_facts(self, array: torch.Tensor) -> DtypeFacts | None:
        """Range of a floating-point tensor's type."""
        if not array.dtype.is_floating_point:
            return None
        info = torch.finfo(array.dtype)
        return DtypeFacts(_name(array.dtype), info.max, info.smallest_normal, info.smallest_normal * info.eps, info.eps)

    def host(self, array: torch.Tensor) -> Host:
        """A float64 copy of floating-point tensors on the host; others as they are."""
        plain = self._for_reference(array.detach())
        if plain.dtype.is_floating_point:
            plain = _float64(plain)
        result: Host = plain.cpu().contiguous().numpy().copy()
        return result

    def rounded(self, values: Host, like: torch.Tensor) -> Host:
        """Values rounded to a tensor's dtype, as float64 on the host."""
        result: Host = _float64(torch.from_numpy(values).to(like.dtype)).numpy()
        return result

    def like(self, values: Host, array: torch.Tensor) -> torch.Tensor:
        """Host values as a new tensor of another's dtype, device and order of axes in memory, where that is dense."""
        made = torch.from_numpy(np.array(values, order="C")).to(array.dtype).to(array.device)
        order = _order(array)
        return made if order is None else made.permute(order).contiguous().permute(_inverse(order))

    def upcast(self, inputs: Inputs) -> dict[str, Any]:
        """Floating-point tensors in float64, where the device can compute in it."""
        return {name: self._upcast(value) if self.is_array(value) else value for name, value in inputs.items()}

    def placed(self, inputs: Inputs, layout: str) -> dict[str, Any]:
        """Copies in a memory layout, surrounded by NaN; the axes of a dense tensor keep their order in memory."""
        return {name: _place(value, layout) if self.is_array(value) else value for name, value in inputs.items()}

    def copies(self, inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Dense copies."""
        return {name: value.clone() if self.is_array(value) else value for name, value in inputs.items()}

    def refill(self, inputs: Inputs, fresh: Inputs) -> None:
        """All tensors or none: values of one call may depend on each other, such as offsets and what they index."""
        pairs = pairs_to_refill(self, inputs, fresh)
        if not all(_can_overwrite(old, new) for old, new in pairs):
            return
        olds = tuple(old for old, _ in pairs)
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(olds):
            for old, new in pairs:
                old.copy_(new)

    def spoil(self, array: torch.Tensor) -> None:
        """Put another number there."""
        if array.numel():
            last = array.detach()[(-1,) * array.ndim]
            last.copy_(torch.tensor(other_number(last.item())))

    def same_bits(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        """Whether both hold the same bits; NaN equals the same NaN."""
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return bool(torch.equal(_bits(left), _bits(right)))

    def overlap(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        """Whether both lie in one storage."""
        if not left.numel() or not right.numel():
            return False
        return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_GuardedAllocations]:
        """Hand out filled memory between guard zones for every tensor made empty inside."""
        with _GuardedAllocations(torch.device(self.device).type, filler) as watch:
            yield watch

    def is_filler(self, array: torch.Tensor) -> Host:
        """Elements that hold the filler."""
        result: Host = (array == GUARD_VALUE).cpu().numpy()
        return result

    def mismatch(self, actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> Mismatch:
        """Count elements beyond the tolerance, chunk by chunk where the output lies, if float64 is to be had there."""
        left = actual.reshape(-1)
        right = expected.to(self._reference_device or actual.device).reshape(-1)
        count, worst, place = 0, -1.0, 0
        for start in range(0, left.numel(), CHUNK):
            chunk = self._for_reference(left[start : start + CHUNK])
            found, error, index = _compare(chunk, right[start : start + CHUNK], rtol, atol)
            count += found
            if found and error > worst:
                worst, place = error, start + index
        if not count:
            return Mismatch(0, 0.0, ())
        return Mismatch(count, worst, tuple(int(i) for i in np.unravel_index(place, tuple(actual.shape))))

    def unfinite(self, array: torch.Tensor) -> int:
        """Values that are infinite or NaN, counted chunk by chunk where the tensor lies."""
        flat = array.detach().reshape(-1)
        narrow = flat.dtype.is_floating_point and flat.element_size() == 1  # float8 knows no such question
        chunks = (self._for_reference(flat[start : start + CHUNK]) for start in range(0, flat.numel(), CHUNK))
        return sum(int((~torch.isfinite(_float64(each) if narrow else each)).sum()) for each in chunks)

    def deviation(self, actual: torch.Tensor, expected: torch.Tensor) -> Deviation | None:
        """Errors of a tensor that would take the host long, chunk by chunk, where float64 is computed in."""
        if actual.numel() <= FEW:
            return None
        left = actual.detach().reshape(-1)
        right = expected.to(self._reference_device or actual.device).reshape(-1)

        def pieces() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for start in range(0, left.numel(), CHUNK):
                chunk = self._for_reference(left[start : start + CHUNK])
                yield _float64(chunk), _float64(right[start : start + CHUNK])

        return deviation(pieces, tuple(actual.shape))

    def nbytes(self, value: Any) -> int:
        """Bytes of a tensor."""
        return int(value.numel() * value.element_size()) if self.is_array(value) else 0

    def memory_in_use(self) -> int | None:
        """Bytes held by live tensors on an accelerator."""
        module = torch.get_device_module(self.device)
        return int(module.memory_allocated()) if hasattr(module, "memory_allocated") else None

    def _upcast(self, tensor: torch.Tensor) -> torch.Tensor:
        moved = self._for_reference(tensor)
        return _float64(moved) if moved.dtype.is_floating_point else moved

    def _for_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor where float64 is computed in: where it lies, but for devices that have none."""
        return tensor if self._reference_device is None else tensor.to(self._reference_device)


class _GuardedAllocations(TorchDispatchMode):
    """Replaces every fresh allocation by the middle of a larger one.

    What is uninitialised is NaN (the largest value for integers) or GUARD_VALUE, so that elements never written show by
    differing between two calls; the zones around it hold GUARD_VALUE, so that writes past an end show.
    """

    _EMPTY = frozenset(
        {
            torch.ops.aten.empty.memory_format,
            torch.ops.aten.empty_like.default,
            torch.ops.aten.empty_permuted.default,
            torch.ops.aten.empty_strided.default,
            torch.ops.aten.new_empty.default,
            torch.ops.aten.new_empty_strided.default,
        }
    )
    _FILLED = frozenset(
        {
            torch.ops.aten.zeros.default,
            torch.ops.aten.zeros_like.default,
            torch.ops.aten.new_zeros.default,
            torch.ops.aten.ones.default,
            torch.ops.aten.ones_like.default,
            torch.ops.aten.new_ones.default,
            torch.ops.aten.full.default,
            torch.ops.aten.full_like.default,
            torch.ops.aten.new_full.default,
        }
    )

    def __init__(self, device_type: str, filler: str) -> None:
        super().__init__()
        self._device_type = device_type
        self._filler = filler
        self._rooms: list[tuple[torch.Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in self._EMPTY | self._FILLED or result.device.type != self._device_type:
            return result
        if result.layout != torch.strided:
            return result
        guarded = self._guard(result)
        return guarded.copy_(result) if func in self._FILLED else guarded

    def damaged(self) -> int:
        """Number of guard zones that were written into."""
        zones = (zone for room, guard in self._rooms for zone in (room[:guard], room[-guard:]))
        return sum(not bool((zone == GUARD_VALUE).all()) for zone in zones)

    def _guard(self, plain: torch.Tensor) -> torch.Tensor:
        guard = GUARD_BYTES // plain.element_size()
        extent = 1 + sum((size - 1) * stride for size, stride in zip(plain.shape, plain.stride(), strict=True))
        length = extent if plain.numel() else 0
        room = torch.full((length + 2 * guard,), GUARD_VALUE, dtype=plain.dtype, device=plain.device)
        if self._filler == "nan":
            room[guard : guard + length].fill_(_poison(plain.dtype))
        elif plain.dtype is torch.bool:
            room.fill_(False)
        if plain.dtype is not torch.bool:
            self._rooms.append((room, guard))
        return room.as_strided(plain.shape, plain.stride(), guard)


def _place(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "expanded" and tensor.dim() and tensor.shape[0]:
        return _place(tensor[:1].contiguous(), "contiguous").expand(tensor.shape)
    order = _order(tensor)
    if order is not None:  # a transposed operand stays one: kernels have paths of their own for it
        return _place(tensor.permute(order), layout).permute(_inverse(order))
    step = 2 if layout == "strided" and tensor.dim() and tensor.numel() else 1
    guard = GUARD_BYTES // tensor.element_size()
    length = tensor.numel() * step
    room = torch.full((length + 2 * guard,), _poison(tensor.dtype), dtype=tensor.dtype, device=tensor.device)
    inner = room[guard : guard + length]
    shape = (*tensor.shape[:-1], tensor.shape[-1] * 2) if step == 2 else tensor.shape
    inner = inner.view(shape)[..., ::step] if tensor.dim() else inner.view(shape)
    inner.copy_(tensor)
    return inner


def _order(tensor: torch.Tensor) -> list[int] | None:
    """The axes of a dense tensor as they lie in memory, outermost first; None where they do so in their own order.

    None too for a tensor with gaps, or whose elements stand for several: its copies are made row-major.
    """
    if tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return order if tensor.permute(order).is_contiguous() else None


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _compare(actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> tuple[int, float, int]:
    left, right = _float64(actual), _float64(expected.to(actual.dtype))
    error = (left - right).abs()
    # Beside an infinite value any distance would be within rtol of it.
    near = (error <= atol + rtol * right.abs()) & right.isfinite()
    good = near | (left == right) | (left.isnan() & right.isnan())
    count = int((~good).sum())
    if not count:
        return 0, 0.0, 0
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


def _can_overwrite(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Same shape and dtype, and no element stands for several."""
    apart = all(stride != 0 for size, stride in zip(old.shape, old.stride(), strict=True) if size > 1)
    return old.shape == new.shape and old.dtype == new.dtype and apart


LATER = frozenset(
    {
        "_inductor_test",
        "c10d_functional",
        "cplib",
        "flex_lib",
        "fsdp",
        "onnx",
        "onnx_symbolic",
        "quantized_decomposed",
        "streams",
    }
)
"""Namespaces that torch itself registers when a part of it is first used, such as torch.compile."""


def operator_namespaces() -> frozenset[str]:
    """Namespaces of all torch operators that are registered in this process: torch's own, those of libraries."""
    return LATER | {name.split("::")[0] for name in torch._C._dispatch_get_all_op_names()}
