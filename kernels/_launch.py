"""Common to ops between their arguments and their launch: checks of tensors, limits of the device, tuned configs.

Needs only torch, so an op can be copied elsewhere together with this file. Everything that a wrapper asks on
each call is cached, since it launches kernels of a few microseconds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that the ops take."""
VECTOR_BYTES = 16
"""Widest load of a thread."""

_DEVICES = Path(__file__).parent / "_devices"
_AS_DEVICE = "KERNELS_AS_DEVICE"
"""Environment variable: key of the device to launch for, if it is not the present one (compiling offline).

`KEY/3/7` is a smaller twin of it: 3 processors, and at most 7 programs in a launch, so that small cases take the paths
of large ones.
"""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, as there is one a device: a cheap key of caches
class Limits:
    """Limits of a launch on one device."""

    key: str
    """file in `_devices` that the limits come from, and name of the op's tuned file"""
    processors: int
    """streaming multiprocessors, or vector cores"""
    grid: tuple[int, int, int]
    """most programs along each axis"""
    programs: int
    """most programs in one launch"""
    shared_bytes: int
    """most shared memory of one program"""
    tile_elements: int
    """most float32 values that one program holds in registers"""
    descriptors: bool = False
    """copies whole tiles by descriptor (tensor memory accelerator)"""
    float8: bool = True
    """multiplies float8 matrices; a device without a file counts as one that does, and Triton raises if it does not"""
    warp_size: int = 32
    """threads of a warp; 1 if a program is one thread of vector instructions"""
    alignment: int = 16
    """bytes that addresses and rows are best multiples of"""
    matrix_processors: int = 1
    """processors that multiply matrices; if they differ from `processors`, a product runs on so many at once"""
    matrix_bytes: int = 49152
    """on-chip memory for a product's operands; `shared_bytes` if it is the same memory"""
    registers: int = 0
    """32-bit registers of a processor; 0 if values are in on-chip memory instead"""
    l2_bytes: int = 0
    """size of the cache that all processors share; 0 if unknown"""
    target: str | None = None
    """Triton's name of it, such as sm_90; None: perfci cannot compile for it without the device"""


# --- the device -------------------------------------------------------------------------------------------------------


@functools.cache
def limits(device: torch.device) -> Limits:
    """Returns the limits of a device from its file in `_devices`, updated by what the running device reports.

    A device without a file gets `generic.json`. The CPU of Triton's interpreter has one, with few programs.
    """
    forced, *smaller = os.environ.get(_AS_DEVICE, "").split("/")
    running = {} if forced else _running(device)
    fields = _read(forced or _known(_slug(running.pop("name", device.type))))
    if smaller:
        processors, programs = map(int, smaller)
        running = {"processors": processors, "matrix_processors": processors}
        running |= {"programs": programs, "grid": (programs,) * 3}
    return Limits(**(fields | running))


@functools.cache
def _read(key: str) -> Mapping[str, Any]:
    path = _DEVICES / f"{key}.json"
    if not path.is_file():
        raise ValueError(f"{_AS_DEVICE}={key}: there is no {path}. Known are {', '.join(_keys())}.")
    fields = {name: each["value"] for name, each in json.loads(path.read_text(encoding="utf-8")).items()}
    return fields | {"key": key, "grid": tuple(fields["grid"])}


def _keys() -> list[str]:
    return sorted(path.stem for path in _DEVICES.glob("*.json"))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _known(slug: str) -> str:
    """Returns the longest key with which the name begins, by words: `nvidia-h100` for `nvidia-h100-80gb-hbm3`.

    The last word of an Ascend chip's name begins with its family: `ascend910-93` for `ascend910-9382`.
    """
    fitting = [key for key in _keys() if f"{slug}-".startswith(f"{key}-" if "ascend" not in key else key)]
    return max(fitting, key=len, default="generic")


def _running(device: torch.device) -> dict[str, Any]:
    """Returns name and limits from the device's runtime, or nothing if it has none."""
    module = getattr(torch, device.type, None)
    if not hasattr(module, "get_device_properties"):
        return {}
    properties = module.get_device_properties(device)
    processors = getattr(properties, "multi_processor_count", None)
    running = {
        "name": properties.name,
        "processors": processors or getattr(properties, "vector_core_num", None),
        "matrix_processors": processors or getattr(properties, "cube_core_num", None),
        "shared_bytes": getattr(properties, "shared_memory_per_block_optin", None),
        "matrix_bytes": getattr(properties, "shared_memory_per_block_optin", None),
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "warp_size": getattr(properties, "warp_size", None),
    }
    return {name: value for name, value in running.items() if value}


def on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes the device current while a kernel is launched, since Triton launches on the current one."""
    switch = _switch(device)
    return switch(device) if switch else _NOTHING


_NOTHING = contextlib.nullcontext()


@functools.cache
def _switch(device: torch.device) -> Callable[[torch.device], contextlib.AbstractContextManager[Any]] | None:
    module = getattr(torch, device.type, None)
    return module.device if hasattr(module, "device") and module.device_count() > 1 else None


# --- the grid ---------------------------------------------------------------------------------------------------------


def power_of_two(n: int) -> int:
    """Returns the least power of two that is at least n.

    >>> power_of_two(1000), power_of_two(1), power_of_two(0)
    (1024, 1, 1)
    """
    return 1 << max(n - 1, 0).bit_length()


def tiles(size: int, block: int) -> int:
    """Returns how many blocks cover a size; triton.cdiv takes microseconds on the host."""
    return -(-size // block)


def grid(row_tiles: int, col_tiles: int, limits: Limits) -> tuple[int]:
    """Returns the programs of a pointwise op, in the order of a row's tiles: those that run at once share few rows.

    Memory is opened a page at a time, so this is faster than going down a column. The kernel's loop
    (`_tiles.by_rows`) does the rows beyond the device's limits.
    """
    return (min(row_tiles, min(limits.grid[0], limits.programs) // col_tiles) * col_tiles,)


def fitting(elements: int, each: int, limits: Limits) -> int:
    """Returns the elements of a tile, a power of two: so many, or on a chip without registers as many as fit.

    each: bytes of on-chip memory that a program needs for an element there, as the chip's compiler plans it.
    """
    return elements if limits.registers else min(elements, power_of_two(limits.shared_bytes // each + 1) // 2)


class Tile(NamedTuple):
    """Rows and columns of one program of a pointwise op, and its warps."""

    rows: int
    cols: int
    warps: int


def pointwise_tile(
    rows: int,
    cols: int,
    itemsize: int,
    limits: Limits,
    sizes: tuple[tuple[int | None, int, int], ...],
    row_bytes: int,
    folder: Path | None = None,
) -> Tile:
    """Returns the tile of a pointwise op, always of powers of two, so that there are few to compile.

    `sizes` lists (bytes that each processor handles, at most; bytes of a tile; its warps), the last without a limit.
    `row_bytes` is the widest row of a tile, unless the grid allows too few tiles along a row. If the device has a
    tuned file in `folder`, its first entry that fits rows, cols, itemsize and their product, bytes, sets all three
    numbers (tile_bytes, row_bytes, warps) instead.
    """
    size = rows * cols * itemsize
    if folder and (chosen := config(folder, limits, rows=rows, cols=cols, itemsize=itemsize, bytes=size)):
        sizes, row_bytes = ((None, chosen["tile_bytes"], chosen["warps"]),), chosen["row_bytes"]
    share = rows * cols * itemsize / limits.processors
    tile_bytes, warps = next((total, warps) for most, total, warps in sizes if most is None or share <= most)
    tile_cols = min(power_of_two(cols), row_bytes // itemsize)
    while tiles(cols, tile_cols) > min(limits.grid[0], limits.programs):
        tile_cols *= 2
    return Tile(max(tile_bytes // (tile_cols * itemsize), 1), tile_cols, warps)


@functools.cache
def tuned(folder: Path, key: str) -> tuple[Mapping[str, Any], ...]:
    """Returns the configs of `<folder>/<device key>.json` in the file's order, or none without such a file."""
    path = folder / f"{key}.json"
    if not path.is_file():
        return ()
    try:
        configs = json.loads(path.read_text(encoding="utf-8"))["configs"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a tuned file: {error!r}. Restore it from git.") from error
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise ValueError(f"{path} is not a tuned file: configs has to be a list of tables. Restore it from git.")
    return tuple(configs)


def config(folder: Path, limits: Limits, **facts: Any) -> Mapping[str, Any] | None:
    """Returns the configuration of the tuned file's first entry that fits the facts of a call, or None.

    An entry's `m_max` is the most that a fact `m` may be, a list has its possible values, anything else has to be
    equal. Raises ValueError for an entry about a fact that the op does not have.
    """
    for entry in tuned(folder, limits.key):
        if all(_fits(name, wanted, facts, folder) for name, wanted in entry.items() if name != "config"):
            return entry["config"]
    return None


def _fits(name: str, wanted: Any, facts: Mapping[str, Any], folder: Path) -> bool:
    if name in facts:
        return facts[name] in wanted if isinstance(wanted, list) else facts[name] == wanted
    bounded = name.removesuffix("_max")
    if bounded == name or bounded not in facts:
        raise ValueError(f"{folder}: an entry asks for {name}, but the op has {', '.join(facts)}. Correct the file.")
    return facts[bounded] <= wanted


# --- the tensors ------------------------------------------------------------------------------------------------------


def check_tensors(op: str, **tensors: torch.Tensor) -> None:
    """Raises TypeError unless all are tensors of a dtype in FLOATS, ValueError unless they share one device."""
    device = None
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} is a {type(tensor).__name__}, but has to be a torch.Tensor")
        if tensor.dtype not in FLOATS:
            raise TypeError(f"{op}: {name} has dtype {tensor.dtype}, but only {_names(FLOATS)} are supported")
        if device is not None and tensor.device != device:
            where = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
            raise ValueError(f"{op}: all tensors have to be on one device, but {where}")
        device = tensor.device


def check_same_dtype(op: str, **tensors: torch.Tensor) -> None:
    """Raises TypeError unless all have one dtype."""
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        given = ", ".join(f"{name} has {tensor.dtype}" for name, tensor in tensors.items())
        raise TypeError(f"{op}: all tensors have to have one dtype, but {given}")


def check_bias(op: str, x: torch.Tensor, bias: torch.Tensor, name: str = "bias") -> None:
    """Raises ValueError unless x has a last dimension, and bias, called `name`, one value for each of its places."""
    if x.ndim == 0:
        raise ValueError(f"{op}: x is 0-dimensional, but needs at least one dimension")
    if bias.ndim != 1 or bias.shape[0] != x.shape[-1]:
        raise ValueError(
            f"{op}: {name} has shape {tuple(bias.shape)}, but x of shape {tuple(x.shape)} needs ({x.shape[-1]},)"
        )


def as_rows(op: str, x: torch.Tensor, name: str = "x") -> tuple[int, int, int, int]:
    """Returns rows, columns, row stride and column stride (in elements) of x as a matrix, without a copy.

    Raises ValueError, which calls x `name`, if no single stride walks the leading dimensions.
    """
    cols = x.shape[-1]
    if x.is_contiguous():
        return x.numel() // cols, cols, cols, 1
    rows, row_stride = 1, cols
    for size, stride in zip(reversed(x.shape[:-1]), reversed(x.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if rows == 1:
            row_stride = stride
        elif stride != rows * row_stride:
            raise ValueError(
                f"{op}: {name} of shape {tuple(x.shape)} has strides {x.stride()}, whose leading dimensions no single "
                f"row stride walks. Call it with {name}.contiguous()"
            )
        rows *= size
    return rows, cols, row_stride, x.stride(-1)


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


# --- the arguments of ops that several backends have ------------------------------------------------------------------


def check_broadcast(x: torch.Tensor, bias: torch.Tensor) -> None:
    """Raises TypeError or ValueError for arguments that `broadcast` does not support."""
    check_tensors("broadcast", x=x, bias=bias)
    check_bias("broadcast", x, bias)


def check_softmax(x: torch.Tensor) -> None:
    """Raises TypeError or ValueError for arguments that `softmax` does not support."""
    check_tensors("softmax", x=x)
    if x.ndim == 0:
        raise ValueError("softmax: x is 0-dimensional, but needs at least one dimension")


def check_rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float, stats: bool) -> None:
    """Raises TypeError or ValueError for arguments that `rms_norm` does not support."""
    given = {"x": x} if weight is None else {"x": x, "weight": weight}
    check_tensors("rms_norm", **given)
    check_same_dtype("rms_norm", **given)
    if x.ndim == 0:
        raise ValueError("rms_norm: x is 0-dimensional, but needs at least one dimension")
    if weight is not None:
        check_bias("rms_norm", x, weight, "weight")
    if not eps >= 0:
        raise ValueError(f"rms_norm: eps is {eps}, but has to be 0 or more")
    if stats and not x.shape[-1]:
        raise ValueError(f"rms_norm: x has shape {tuple(x.shape)}, but stats need at least one column")


ACTIVATIONS = (None, "relu", "silu", "gelu", "gelu_tanh")
"""What `matmul` finishes a product with."""


def check_matmul(op: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> None:
    """Raises TypeError or ValueError in the name of `op` for arguments that `matmul` does not support."""
    tensors = {"a": a, "b": b} if bias is None else {"a": a, "b": b, "bias": bias}
    check_tensors(op, **tensors)
    check_same_dtype(op, **tensors)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"{op}: needs shapes (m, k) and (k, n), but a is {tuple(a.shape)} and b {tuple(b.shape)}")
    if bias is not None and bias.shape != b.shape[1:]:
        raise ValueError(
            f"{op}: bias has shape {tuple(bias.shape)}, but b of shape {tuple(b.shape)} needs {b.shape[1:]}"
        )
    if activation not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"{op}: activation is {activation!r}, but has to be one of {known}")
