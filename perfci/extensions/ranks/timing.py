"""One rank's part of a block: every launch begins at a barrier of all ranks on the device, and ends by an event."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

from perfci.device.cuda import Flush
from perfci.device.nvml import NvmlBoard
from perfci.device.seam import Accelerator
from perfci.extensions.ranks.progress import Progress, Step
from perfci.extensions.ranks.records import RankPlace

STAMPS = 64  # barriers by which clocks are compared
HOLD_CYCLES = 400_000  # about 200 us: longer than a host takes to queue a call behind it
WARMUP = 3  # calls of each arm on a block's fresh buffers
LINK_BYTES, LINK_COPIES = 1 << 28, 5
GLANCE_S = 0.0005  # how often a rank looks whether its launches have ended


@triton.jit
def perfci_stamp(out, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103
    tl.store(out + index, globaltimer())


class RankTimer:
    """Times launches of one rank beside the same launches of all others. All ranks call the same methods in turn."""

    def __init__(self, place: RankPlace, device: Accelerator, progress: Progress) -> None:
        self._place, self._progress = place, progress
        self._device = torch.device("cuda", place.board)
        self._flush = Flush(device.info.l2_bytes or 1 << 26, "cuda")
        self._signals = symmetric.empty(LINK_BYTES, dtype=torch.uint8, device=self._device)
        self._handle = symmetric.rendezvous(self._signals, dist.group.WORLD)
        self._board = NvmlBoard(f"GPU-{torch.cuda.get_device_properties(place.board).uuid}")
        torch.cuda.synchronize()
        dist.barrier()

    def _barrier(self) -> None:
        """On the device: what is queued behind it begins when all ranks have come so far."""
        self._handle.barrier(channel=0)

    def stamp_barriers(self) -> list[int]:
        """The device's clock behind each of some barriers, nanoseconds."""
        stamps = torch.zeros(STAMPS, dtype=torch.int64, device=self._device)
        for index in (0, *range(STAMPS)):  # the first compiles
            self._barrier()
            perfci_stamp[(1,)](stamps, index, num_warps=1)
        self._await([])
        return [int(stamp) for stamp in stamps.tolist()]

    def measure_link(self) -> float:
        """Rate of a copy to the next rank while all ranks copy, GB/s."""
        peer = (self._place.rank + 1) % self._place.ranks
        target = self._handle.get_buffer(peer, (LINK_BYTES // 2,), torch.uint8)
        source = torch.zeros(LINK_BYTES // 2, dtype=torch.uint8, device=self._device)
        seconds = []
        for _ in range(LINK_COPIES):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._barrier()
            start.record()
            target[LINK_BYTES // 8 :].copy_(source[LINK_BYTES // 8 :])
            end.record()
            self._await([end])
            seconds.append(start.elapsed_time(end) / 1e3)
        return float((LINK_BYTES // 2 - LINK_BYTES // 8) / statistics.median(seconds) / 1e9)

    def take_block(self, arms: Mapping[str, Callable[[], Any]], order: Sequence[str]) -> Mapping[str, Any]:
        """Launch arms in this order, all ranks the same. Times in microseconds, starts by the device's clock."""
        note, rank = self._progress.note, self._place.rank
        note(rank, Step.CALLING, 0)
        for name in dict.fromkeys(order):
            for _ in range(WARMUP):
                arms[name]()
        self._await([])
        before = self._board.read_links()
        stamps = torch.zeros(len(order), dtype=torch.int64, device=self._device)
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in order]
        for index, (name, (start, end)) in enumerate(zip(order, events, strict=True)):
            note(rank, Step.CALLING)
            self._flush()
            torch.cuda._sleep(HOLD_CYCLES)
            self._barrier()
            perfci_stamp[(1,)](stamps, index, num_warps=1)
            start.record()
            arms[name]()
            end.record()
        self._await([end for _, end in events])
        after = self._board.read_links()
        return {
            "times_us": [start.elapsed_time(end) * 1e3 for start, end in events],
            "starts_ns": [int(stamp) for stamp in stamps.tolist()],
            "sent_bytes": after - before if before is not None and after is not None else None,
        }

    def _await(self, ends: Sequence[Any]) -> None:
        """Wait for the device, and note each launch that has ended: who waits for whom, if it never comes to an end."""
        last = torch.cuda.Event()
        last.record()
        for count, event in enumerate((*ends, last)):
            self._progress.note(self._place.rank, Step.WAITING, count)
            while not event.query():
                time.sleep(GLANCE_S)
