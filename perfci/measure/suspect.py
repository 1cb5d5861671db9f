"""What looks like cheating or a broken measurement."""

from __future__ import annotations

import math
import re

from perfci.core.model import Identity, PerformanceCase, Reason
from perfci.device.seam import Accelerator
from perfci.statistics import exact

SUSPICIOUS_SHARE = 1.05
"""Of the measured copy bandwidth; more cannot be, once what the cache may still hold is left out."""

CACHE_MULTIPLE = 4
"""Only a case that moves so many times the L2 cache can be held against the bandwidth of memory."""


def suspicions(case: PerformanceCase, device: Accelerator, copy_gbps: float | None) -> tuple[Reason, ...]:
    """What looks like cheating or a broken measurement."""
    found = [Reason("timing_function_replaced", {"name": name}) for name in device.tampered()]
    l2 = device.info.l2_bytes
    if case.blocks and case.bytes_moved and copy_gbps and l2 and case.bytes_moved >= CACHE_MULTIPLE * l2:
        us = exact.summary([block.arms["kernel"].time.median_us for block in case.blocks]).median_us
        # As much as the cache holds may be written back only after the kernel has ended; a warm cache may hold as much
        # of the inputs when it begins.
        unmoved = 2 * l2 if case.cache == "warm" else l2
        gbps = (case.bytes_moved - unmoved) / us / 1e3
        if gbps > SUSPICIOUS_SHARE * copy_gbps:
            found.append(Reason("above_bandwidth", {"case": case.case, "gbps": gbps, "limit": copy_gbps}))
    return tuple(found)


VIEWS = frozenset(
    {
        "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "empty", "empty_like",
        "empty_permuted", "empty_strided", "expand", "lift_fresh", "movedim", "narrow", "new_empty",
        "new_empty_strided", "permute", "reshape", "resize", "select", "slice", "split", "split_with_sizes", "squeeze",
        "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real",
    }
)  # fmt: skip
"""torch operations that do nothing on the device."""

MOVES = frozenset(
    {
        "_to_copy", "arange", "clone", "contiguous", "copy", "fill", "full", "full_like", "new_full", "new_ones",
        "new_zeros", "ones", "ones_like", "scalar_tensor", "zero", "zeros", "zeros_like",
    }
)  # fmt: skip
"""torch operations that fill memory or move it: any wrapper may use them."""

_TENSOR = re.compile(r"#\d+ \w+\[([\d,]*)\]")


def calls_reference(kernel: Identity, reference: Identity) -> str | None:
    """The torch operation by which a kernel has the reference's work done; None where it does its own.

    It does so where torch computes all for it that torch computes for the reference: the same operations on tensors of
    the same sizes, whatever their dtypes and layouts. A reference that only moves memory is called by a kernel that
    moves the same, and launches nothing itself.
    """
    if kernel.unknown or reference.unknown:
        return None
    ours, theirs = _computed(kernel), _computed(reference)
    if not theirs and not kernel.launches:
        ours, theirs = _done(kernel), _done(reference)
    shared = [key for key in theirs if key in ours]
    return f"aten.{shared[0][0]}" if shared and len(shared) == len(theirs) else None


_Key = tuple[str, tuple[int, ...]]
"""An operation's name without its overload, and the sizes of its tensors, ascending."""


def _computed(identity: Identity) -> list[_Key]:
    return [key for key in _done(identity) if key[0] not in MOVES]


def _done(identity: Identity) -> list[_Key]:
    """Operations of torch's own that a call does and that do something on the device, each once."""
    keys = [_key(text) for text in identity.operations if text.startswith("aten.")]
    return list(dict.fromkeys(key for key in keys if key[0] not in VIEWS))


def _key(text: str) -> _Key:
    """Of `aten.mm.out(#0 float16[8,16](16,1)@16, #1 float16[16,4](4,1)@16, out=#2 ...)`: mm, (64, 128)."""
    name, _, arguments = text.removeprefix("aten.").partition("(")
    shapes = _TENSOR.findall(arguments.partition("out=")[0])
    sizes = (math.prod(int(side) for side in shape.split(",") if side) for shape in shapes)
    return name.split(".")[0].removesuffix("_"), tuple(sorted(sizes))


def switches_stream(kernel: Identity) -> bool:
    """Whether a call puts work on another stream, where a timer on the current one may miss it."""
    return any("setStream" in operation for operation in kernel.operations)
