"""Series of times that a block of several ranks has: one of each rank, and one of the launches as a whole."""

from collections.abc import Sequence

from perfci.extensions.ranks.records import ALL, BASE, KERNEL, RanksBlock
from perfci.statistics import exact


def times_of(block: RanksBlock, arm: str, rank: int) -> list[float]:
    """Launches of an arm on a rank, microseconds. ALL: each as long as it took its slowest rank.

    >>> times_of(RanksBlock("m=8", 0, {"kernel": ((1.0, 5.0), (2.0, 4.0))}), "kernel", ALL)
    [2.0, 5.0]
    """
    of_ranks = block.times_us.get(arm, ())
    return list(of_ranks[rank]) if rank != ALL else [max(launch) for launch in zip(*of_ranks, strict=True)]


def list_shifts(blocks: Sequence[RanksBlock], rank: int) -> list[float]:
    """Of each block with both arms: how much longer the kernel takes than the base on a rank, log scale."""
    both = (block for block in blocks if KERNEL in block.times_us and BASE in block.times_us)
    return [exact.launch_shift(times_of(block, KERNEL, rank), times_of(block, BASE, rank)) for block in both]
