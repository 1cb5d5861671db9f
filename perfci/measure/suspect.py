"""Signs of cheating or of a broken measurement."""

import math
import re
import statistics

from perfci.core.model import Identity, Limits, Reason
from perfci.core.model.measured import KERNEL
from perfci.device.seam import Accelerator
from perfci.measure.bench import Subject
from perfci.statistics import exact

SUSPICIOUS_SHARE = 1.15
"""Of the measured copy bandwidth. More is impossible once what the cache may still hold is left out: kernels that write
alone reach 1.07 on an H200, where the peak of memory is 1.13."""

CACHE_MULTIPLE = 4  # only a case that moves so many times the L2 cache can be compared with the bandwidth of memory

SUSPICIOUS_RATE = 1.5
"""Of the measured rate of a matrix product, which the power cap holds down to 0.7 or 0.8 of the peak."""

_SLOWER_HERE = frozenset({"float32", "float64"})  # torch's product keeps all their bits, a kernel's may use tf32

HIDDEN_SHARE, HIDDEN_US = 1.5, 20.0
"""Calls in a row take so much longer by the clock than by the timer if it misses some of their work.

Of 71 measurements of honest kernels on an H100 none took more than 1.09 times and 20 us.
"""

RENEWED_SHARE, FEWEST_RENEWALS = 1.1, 3
"""So much longer takes the first call on other values, in three of four blocks, if a kernel remembers its answers.

Of the same 71 none took more than 1.023 times as long.
"""

RENEWED_US = 2.0
"""And so much more on average, without the two longest, if it remembers only some values' answers.

Of four first calls two are rarely interrupted by chance: where one launch in a hundred is, once in 1,700 cases. Three
are once in 250,000.
"""


def suspicions(subject: Subject, device: Accelerator, limits: Limits) -> tuple[Reason, ...]:
    """Returns what looks like cheating or a broken measurement. limits: what the device was measured to reach."""
    case = subject.facts
    reasons = [Reason("timing_function_replaced", {"name": name}) for name in device.find_tampered()]
    arms = [block.arms[KERNEL] for block in subject.blocks if KERNEL in block.arms]
    if not arms:  # a base in a separate process has none
        return tuple(reasons)
    us = exact.summary([arm.time.median_us for arm in arms]).median_us
    host_us, span_us = (statistics.median([getattr(arm, of) or 0.0 for arm in arms]) for of in ("host_us", "span_us"))
    # On an NPU no one has measured how long it rests between two launches.
    timed = math.isfinite(subject.wall_us) and device.info.kind != "npu"
    if timed and subject.wall_us > HIDDEN_SHARE * max(us, span_us, host_us) + HIDDEN_US:
        reasons.append(Reason("beyond_clock", {"case": case.case, "time_us": us, "clock_us": subject.wall_us}))
    longer = sorted(subject.renewals)
    usual = statistics.fmean(longer[:-2]) if len(longer) >= FEWEST_RENEWALS else 0.0
    is_longer = usual > math.log(RENEWED_SHARE) and usual * us > RENEWED_US
    if is_longer or (len(longer) >= FEWEST_RENEWALS and longer[len(longer) // 4] > math.log(RENEWED_SHARE)):
        extra = math.exp(max(usual, statistics.median(longer))) - 1
        reasons.append(Reason("answer_remembered", {"case": case.case, "extra": extra}))
    peak = None if case.dtype in _SLOWER_HERE else limits.matmul_tflops.get(case.dtype or "")
    if case.flops and peak and case.flops / us / 1e6 > SUSPICIOUS_RATE * peak:
        reasons.append(Reason("above_rate", {"case": case.case, "tflops": case.flops / us / 1e6, "limit": peak}))
    l2, copy_gbps = device.info.l2_bytes, limits.copy_gbps
    if case.bytes_moved and copy_gbps and l2 and case.bytes_moved >= CACHE_MULTIPLE * l2:
        # As much as the cache holds may be written back only after the kernel has ended. A warm cache may hold as much
        # of the inputs when it begins.
        unmoved = 2 * l2 if case.cache == "warm" else l2
        gbps = (case.bytes_moved - unmoved) / us / 1e3
        if gbps > SUSPICIOUS_SHARE * copy_gbps:
            reasons.append(Reason("above_bandwidth", {"case": case.case, "gbps": gbps, "limit": copy_gbps}))
    return tuple(reasons)


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
    """Returns the torch operation by which a kernel has the reference's work done. None if it does it itself.

    A reference that only moves memory is called by a kernel that moves the same and launches nothing itself.
    """
    if kernel.unknown or reference.unknown:
        return None
    ours, theirs = _list_operations(kernel), _list_operations(reference)
    computed = [key for key in theirs if key[0] not in MOVES]
    if computed or kernel.launches or any(text.startswith("launch ") for text in kernel.operations):
        ours, theirs = [key for key in ours if key[0] not in MOVES], computed
    shared = [key for key in theirs if key in ours]
    return f"aten.{shared[0][0]}" if shared and len(shared) == len(theirs) else None


def _list_operations(identity: Identity) -> list[tuple[str, tuple[int, ...]]]:
    """Torch's operations, each once: its name without its overload and the sizes of its tensors, ascending."""
    operations = []
    for text in identity.operations:
        name, _, arguments = text.removeprefix("aten.").partition("(")
        name = name.split(".")[0].removesuffix("_")
        if text.startswith("aten.") and name not in VIEWS:
            shapes = _TENSOR.findall(arguments.partition("out=")[0])
            sizes = (math.prod(int(side) for side in shape.split(",") if side) for shape in shapes)
            operations.append((name, tuple(sorted(sizes))))
    return list(dict.fromkeys(operations))
