"""perfci's cache flush and mark on Ascend: the kernel has the name of CUDA's, by which its records are known.

It has no mask, since the vector cores compare integers one by one, and as many programs as the chip has such cores,
since a program more waits for a core.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton import JITFunction

LEAST_BYTES = 192 << 20
"""A flush reads no less: L2 of an Ascend 910B holds 192 MB."""

_BLOCK = 8192
"""Elements at once: with both buffers of a double buffering a third of what a core's memory holds."""

_CORES = 40
"""Programs where the chip's vector cores are not told: what the smallest 910B has."""


@triton.jit
def perfci_l2_flush(source, sink, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        total += tl.load(source + (program * steps + step) * BLOCK + tl.arange(0, BLOCK))
    tl.store(sink + program, tl.sum(total))


def interprets() -> bool:
    """Whether kernels are interpreted on the host, so that there is no cache to flush and no clock to raise."""
    return not isinstance(perfci_l2_flush, JITFunction)


def flush_bytes(l2_bytes: int | None) -> int:
    """What a flush reads: twice the L2 cache, and no less than LEAST_BYTES.

    >>> flush_bytes(None) == flush_bytes(64 << 20) == 192 << 20, flush_bytes(192 << 20) == 384 << 20
    (True, True)
    """
    return max(LEAST_BYTES, 2 * (l2_bytes or 0))


class NpuFlush:
    """Reads a buffer that fills the L2 cache twice."""

    def __init__(self, l2_bytes: int | None, cores: int | None, device: str) -> None:
        self._programs = 1 if interprets() else cores or _CORES
        self._steps = 1 if interprets() else -(-flush_bytes(l2_bytes) // (4 * _BLOCK * self._programs))
        count = self._programs * self._steps * _BLOCK
        self._source = torch.zeros(count, dtype=torch.float32, device=device)
        self._sink = torch.empty(self._programs, dtype=torch.float32, device=device)

    def __call__(self) -> None:
        """Queue one flush."""
        perfci_l2_flush[(self._programs,)](self._source, self._sink, self._steps, _BLOCK)

    def mark(self) -> None:
        """Queue a flush that reads next to nothing: L2 stays as it is."""
        perfci_l2_flush[(1,)](self._source, self._sink, 1, _BLOCK)
