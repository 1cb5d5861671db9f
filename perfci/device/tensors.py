"""The array half of the seam for torch: inputs, guards and comparisons on any of its devices."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perfci.core import extensions
from perfci.device.arrays import ArrayFacts, Arrays, Damage, DtypeFacts, Memory, other_number

Host = np.ndarray[Any, Any]

GUARD_BYTES = 16384  # zone on either side of an array: a multiple of every alignment that kernels specialise on
GUARD_VALUE = 77  # Stands in the guard zones of a second call. A stray write often copies a stray read's NaN.
GAP = 16  # elements behind each row of a pitched tensor: rows stay as well aligned as their length makes them
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # whole numbers by their bytes
FEW = 1 << 14  # elements up to which errors are computed on the host


class _Float64(TorchFunctionMode):
    """Every tensor of float32 that is made inside is one of float64: `x.float()`, or `torch.zeros(3)`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.double() if isinstance(result, torch.Tensor) and result.dtype == torch.float32 else result


class TorchArrays(Arrays):
    """Tensors on one device. `reference_device` computes float64 for a device that cannot."""

    kind = torch.Tensor

    def __init__(self, device: str, reference_device: str | None = None) -> None:
        self.device = device
        self._reference_device = reference_device

    def facts(self, array: torch.Tensor) -> ArrayFacts:
        return ArrayFacts(tuple(array.shape), _name(array.dtype), array.device.type, _is_dense(array))

    def strides(self, array: torch.Tensor) -> tuple[int, ...]:
        return tuple(array.stride())

    def dtype_facts(self, array: torch.Tensor) -> DtypeFacts | None:
        if not array.dtype.is_floating_point:
            return None
        info = torch.finfo(array.dtype)
        return DtypeFacts(_name(array.dtype), info.max, info.smallest_normal, info.smallest_normal * info.eps, info.eps)

    def host(self, array: torch.Tensor) -> Host:
        return np.array(self._upcast(array.detach()).cpu().contiguous().numpy())

    def compared(self, array: torch.Tensor) -> torch.Tensor:
        array = array.detach()
        return array.cpu() if array.numel() <= FEW else self._for_reference(array)

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

    def stain(self, array: torch.Tensor, first: int, step: int) -> None:
        parts = torch.view_as_real(array.detach()) if array.is_complex() else array.detach()
        dtype, bit = parts.dtype, 1
        if dtype.is_floating_point:
            bit = max(round(0.5 / torch.finfo(dtype).eps), 1)
        whole = torch.empty(0, dtype=dtype, device=array.device).set_(parts.untyped_storage())
        whole.view(_WORDS[dtype.itemsize])[first::step].bitwise_xor_(bit)

    def same_bits(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        alike = left.shape == right.shape and left.dtype == right.dtype
        return alike and torch.equal(_bits(left), _bits(right))

    def overlap(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        both = left.numel() and right.numel()
        return bool(both and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr())

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_GuardedAllocations]:
        kind = torch.device(self.device).type
        for spoil in extensions.provided("spoil") if kind == "cuda" else ():
            spoil(filler)
        with _GuardedAllocations(kind, filler) as watch:
            yield watch

    def is_filler(self, array: torch.Tensor) -> Host:
        return np.asarray((array == GUARD_VALUE).cpu().numpy())

    def memory_of(self, array: torch.Tensor) -> Memory:
        storage = array.untyped_storage()
        place = tuple(array.shape), array.stride(), array.storage_offset()
        return Memory(storage.data_ptr() or id(array), storage.nbytes(), _name(array.dtype), *place)

    def bytes_of(self, array: torch.Tensor) -> memoryview:
        storage = array.untyped_storage()
        return memoryview((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())).cast("B")

    def item_bytes(self, dtype: str) -> int:
        """Not of quantised numbers: their scales lie elsewhere."""
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype) or dtype.startswith(("q", "bits")):
            raise TypeError(f"an array of dtype {dtype}")
        return kind.itemsize

    def view(self, memory: Any, place: Memory) -> torch.Tensor:
        if not isinstance(memory, torch.Tensor):
            empty = torch.empty(0, dtype=torch.uint8)
            memory = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else empty
        made, storage = (
            torch.empty(0, dtype=getattr(torch, place.dtype), device=memory.device),
            memory.untyped_storage(),
        )
        last = place.offset + sum((n - 1) * step for n, step in zip(place.shape, place.strides, strict=True))
        if min(place.strides, default=0) < 0 or (all(place.shape) and (last + 1) * made.itemsize > storage.nbytes()):
            raise ValueError(f"an array of {place.shape} beyond its memory of {storage.nbytes()} bytes")
        return made.set_(storage, place.offset, place.shape, place.strides)

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

    def in_float64(self) -> _Float64:
        return _Float64()

    def _for_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._reference_device is None else tensor.to(self._reference_device)

    def _place(self, array: torch.Tensor, layout: str, number: int) -> torch.Tensor:
        """The axes of a dense tensor keep their order in memory: kernels have other paths for transposed ones."""
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
    """A dispatch mode that stands for itself: torch hides others from torch._dynamo, which takes a second to import."""

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
        return [] if torch.equal(now, before) else (now != before).nonzero()[:, 0].tolist()

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


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or _order(tensor) is not None


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _float64(tensor: torch.Tensor) -> torch.Tensor:
    # float8 converts through float32 only
    wide = tensor.to(torch.float32) if tensor.dtype.is_floating_point and tensor.element_size() == 1 else tensor
    return wide.to(torch.float64)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # A complex NaN is unequal to itself too: it has the bits of its two parts, in an axis of their own.
    dense = (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).contiguous()
    return dense.view(_WORDS[dense.element_size()]) if dense.dtype.is_floating_point else dense


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
    """Namespaces of all torch operators that are registered in this process: torch's, those of libraries."""
    return LATER | {name.split("::")[0] for name in torch._C._dispatch_get_all_op_names()}
