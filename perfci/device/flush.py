"""perfci's own cache flush: it never goes through an operation under test, and its records delimit launches.

So do those of its mark, a flush that reads next to nothing, where the cache has to stay as it is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

NAME = "perfci_l2_flush"
"""The kernel's name in the device's activity records."""

_MARK_COUNT = 16
"""Integers that a mark reads; like a flush's a multiple of 16, so that both are one compiled kernel."""

_HOLD_CYCLES = 70_000
"""About 35 us at an H200's clock: as long as a flush, behind which the host queues what is to be timed."""

_BLOCK = 4096
_STEPS = 4


@triton.jit
def perfci_l2_flush(source, sink, count, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.int32)
    for step in range(STEPS):
        offsets = (program * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(source + offsets, mask=offsets < count, other=0)
    tl.store(sink + program, tl.sum(total))


class Flush:
    """Reads a buffer of twice the L2 cache.

    Reading, since a flush that writes leaves dirty lines behind, whose write-back the next kernel would pay for.
    """

    def __init__(self, l2_bytes: int, device: str) -> None:
        self._count = 2 * l2_bytes // 4
        programs = triton.cdiv(self._count, _BLOCK * _STEPS)
        self._grid = (programs,)
        self._source = torch.zeros(self._count, dtype=torch.int32, device=device)
        self._sink = torch.empty(programs, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        """Queue one flush."""
        self._queue(self._grid, self._count)

    def mark(self) -> None:
        """Queue a pause as long as a flush, and behind it a mark; L2 stays as it is."""
        torch.cuda._sleep(_HOLD_CYCLES)
        self._queue((1,), _MARK_COUNT)

    def _queue(self, grid: tuple[int], count: int) -> None:
        perfci_l2_flush[grid](self._source, self._sink, count, _BLOCK, _STEPS, num_warps=8)
