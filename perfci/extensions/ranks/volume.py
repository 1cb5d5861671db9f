"""Bytes that cross links: of an op by its formula, of ways to divide a layer; rooflines; what is hidden. Pure."""

from dataclasses import dataclass

from perfci.extensions.ranks.records import CasePrepared, LinksMeasured


@dataclass(frozen=True)
class Roofline:
    """The least time that one rank's work can take, by what limits it."""

    compute_us: float | None
    memory_us: float | None
    links_us: float | None
    share: float
    """the largest of the three by the measured time"""

    @property
    def limit(self) -> str:
        """What limits: compute, memory or links."""
        ceilings = {"compute": self.compute_us, "memory": self.memory_us, "links": self.links_us}
        return max(ceilings, key=lambda name: ceilings[name] or 0.0)


def find_roofline(prepared: CasePrepared, links: LinksMeasured, kernel_us: float) -> Roofline | None:
    """Returns the ceilings of one rank's part of a case, each by its formula. None if no formula has a ceiling."""
    flops, moved, sent = prepared.flops, prepared.moved_bytes, prepared.sent_bytes
    rate = links.tflops.get(prepared.dtype)
    compute_us = flops / rate / 1e6 if flops and rate else None
    memory_us = moved / links.bandwidth_gbs / 1e3 if moved and links.bandwidth_gbs else None
    links_us = sent / links.link_gbs / 1e3 if sent and links.link_gbs else None
    ceilings = [us for us in (compute_us, memory_us, links_us) if us is not None]
    return Roofline(compute_us, memory_us, links_us, max(ceilings) / kernel_us) if ceilings else None


def find_hidden(kernel_us: float, communicate_us: float | None, compute_us: float | None) -> float | None:
    """Share of the communication that takes no time of its own, since it runs beside the computation.

    1: the kernel takes as long as the longer of both. 0: as long as both together, or longer. None if one was not
    timed alone.

    >>> find_hidden(100.0, 20.0, 100.0), find_hidden(120.0, 20.0, 100.0), find_hidden(110.0, 20.0, 100.0)
    (1.0, 0.0, 0.5)
    """
    if not communicate_us or not compute_us:
        return None
    saved = communicate_us + compute_us - kernel_us
    return min(max(saved / min(communicate_us, compute_us), 0.0), 1.0)


@dataclass(frozen=True)
class Volume:
    """Bytes that one rank sends for one layer's activations (rows, columns) each way."""

    way: str  # tensor, sequence or pipeline
    bytes: float


def list_volumes(rows: int, cols: int, itemsize: int, ranks: int) -> tuple[Volume, ...]:
    """What one rank sends where a layer's activations of rows x cols are divided among ranks.

    tensor: an all-reduce by a ring, 2 (p - 1) / p of the activations (Megatron-LM, Shoeybi et al. 2019; ring: Patarasuk
    and Yuan, J. Parallel Distrib. Comput. 69, 2009). sequence: an all-gather and a reduce-scatter, (p - 1) / p each, so
    the same together (Korthikanti et al. 2022). pipeline: the activations once, to the next stage.

    >>> [(volume.way, volume.bytes) for volume in list_volumes(4, 8, 2, 4)]
    [('tensor', 96.0), ('sequence', 96.0), ('pipeline', 64.0)]
    """
    size = rows * cols * itemsize
    ring = size * (ranks - 1) / ranks
    return (
        Volume("tensor", 2 * ring),
        Volume("sequence", 2 * ring),
        Volume("pipeline", float(size if ranks > 1 else 0)),
    )
