"""A group on the fake device: all ranks in one process, each with a virtual clock, and links between them.

It plans for groups of any size. Kernels say by `work`, `send` and `wait` of perfci.device.fake what a rank does.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.device import fake
from perfci.device.fake import FakeSpec
from perfci.extensions.ranks.arms import describe_case, find_traffic, make_arms
from perfci.extensions.ranks.records import BASE, KERNEL, Answer, Ask, OpPlace
from perfci.extensions.ranks.spec import bind_rank
from perfci.ops.spec import case_id
from perfci.worker.apart import load_apart
from perfci.worker.load import import_roots, load_op

LATENCY_US = 1.0  # from the end of a message to when it can be read
SKEW_US = 0.3  # standard deviation of a rank's start behind a barrier
STAMPS = 64
MEMORY_GBS, TFLOPS = 1000.0, 100.0

Program = Sequence[tuple[str, float, int]]
"""What one rank does of a launch: see `perfci.device.fake.talk`."""


def play(programs: Sequence[Program], link_gbps: float, factors: Sequence[float]) -> list[float]:
    """Returns when each rank ends a launch that all begin at 0, microseconds.

    A message goes by the link of its two ranks, one behind the other, while its sender goes on. A rank waits for all
    that others have sent it before they wait as often. factors: how many times as long each rank's work takes.

    >>> play([[("send", 4e6, 1), ("work", 5, 0), ("wait", 0, 0)], [("work", 5, 0), ("wait", 0, 0)]], 400.0, [1.0, 1.0])
    [11.0, 11.0]
    """
    ranks = range(len(programs))
    clocks, at, waits = [0.0] * len(programs), [0] * len(programs), [0] * len(programs)
    busy, sent = defaultdict[tuple[int, int], float](float), list[tuple[int, int, int, float]]()

    def has_come(peer: int, turn: int) -> bool:
        """Whether a peer has sent all that a wait of this number is for."""
        ends = at[peer] == len(programs[peer])
        return waits[peer] > turn or ends or (waits[peer] == turn and programs[peer][at[peer]][0] == "wait")

    def step(rank: int) -> bool:
        """One step of a rank. False if it has to wait, or has ended."""
        if at[rank] == len(programs[rank]):
            return False
        what, size, to = programs[rank][at[rank]]
        if what == "work":
            clocks[rank] += size * factors[rank]
        elif what == "send":
            busy[rank, to] = max(busy[rank, to], clocks[rank]) + size / link_gbps / 1e3
            sent.append((rank, to, waits[rank], busy[rank, to] + LATENCY_US))
        elif all(has_come(peer, waits[rank]) for peer in ranks if peer != rank):
            arrived = [when for _, target, turn, when in sent if target == rank and turn <= waits[rank]]
            clocks[rank] = max([clocks[rank], *arrived])
            waits[rank] += 1
        else:
            return False
        at[rank] += 1
        return True

    while any(step(rank) for rank in ranks):
        pass
    # A launch ends when what it has sent has left.
    left = {rank: max((when for source, _, _, when in sent if source == rank), default=0.0) for rank in ranks}
    return [max(clocks[rank], left[rank]) for rank in ranks]


class VirtualRanks:
    """A group of virtual boards."""

    def __init__(
        self, head: OpPlace, base: OpPlace | None, ranks: int, seed: Sequence[int], spec: Mapping[str, Any]
    ) -> None:
        """`spec` is `[tool.perfci.fake]`: see FakeSpec. seed: of the noise."""
        self._ranks, self._spec = ranks, FakeSpec.read(spec)
        self._rng = np.random.default_rng((*seed, ranks))
        sys.path[:0] = import_roots(head.folder, head.shared)
        self._head = load_op(head.op, head.folder, head.shared)
        self._traffic = find_traffic(head.op)
        self._base = load_apart(base.op, base.folder, base.shared, base.root, head.root) if base else None
        self._cases = {case_id(params): params for params in self._head.performance.cases}
        self._offsets_us = [0.0, *self._rng.uniform(-500, 500, ranks - 1)]
        self._now_us = 0.0
        self._bias = {
            (arm, rank): float(self._rng.normal(0, self._spec.process_noise))
            for arm in (KERNEL, BASE)
            for rank in range(ranks)
        }

    def ask(self, ask: Ask) -> Sequence[Answer]:
        """Answer for all ranks."""
        return [Answer(body=body) for body in getattr(self, f"_{ask.do}")(ask)]

    def end(self) -> None:
        """There is nothing to end."""

    def _list(self, _: Ask) -> list[Mapping[str, Any]]:
        listed = {"accuracy": (), "performance": [*self._cases], "backend": "virtual"}
        return [{**listed, "board": f"FAKE-{rank}"} for rank in range(self._ranks)]

    def _prepare(self, ask: Ask) -> list[Mapping[str, Any]]:
        programs = self._record(ask)
        common = {
            "arms": [*programs],
            "unknown": None if BASE in programs else {"kind": "ranks_no_base"},
            **describe_case(self._head.performance, self._traffic, self._cases[ask.case], self._ranks),
        }
        return [
            {
                **common,
                "same": BASE in programs and programs[KERNEL][rank] == programs[BASE][rank],
            }
            for rank in range(self._ranks)
        ]

    def _clocks(self, _: Ask) -> list[Mapping[str, Any]]:
        return [{"stamps_ns": stamps} for stamps in self._stamp(STAMPS, [0.0] * STAMPS)]

    def _links(self, _: Ask) -> list[Mapping[str, Any]]:
        dtypes = {str(params.get("dtype", "")) for params in self._cases.values()}
        measured = {
            "link_gbs": self._spec.link_gbps,
            "bandwidth_gbs": MEMORY_GBS,
            "tflops": dict.fromkeys(dtypes, TFLOPS),
        }
        return [measured] * self._ranks

    def _block(self, ask: Ask) -> list[Mapping[str, Any]]:
        programs, spec, rng = self._record(ask, ask.order), self._spec, self._rng
        block, ranks = rng.normal(0, spec.block_noise), range(self._ranks)
        times: list[list[float]] = []
        for arm in ask.order:
            spikes = np.where(rng.random(len(ranks)) < spec.spike_share, spec.spike_factor, 1.0)
            noise = np.exp(rng.normal(0, spec.launch_noise, len(ranks)) + block) * spikes
            factors = [float(noise[rank]) * float(np.exp(self._bias.get((arm, rank), 0.0))) for rank in ranks]
            times.append(play(programs[arm], spec.link_gbps, factors))
        starts = self._stamp(len(times), [max(launch) for launch in times])
        sent = [
            sum(size for arm in ask.order for what, size, _ in programs[arm][rank] if what == "send") for rank in ranks
        ]
        return [
            {"times_us": [launch[rank] for launch in times], "starts_ns": starts[rank], "sent_bytes": round(sent[rank])}
            for rank in ranks
        ]

    def _stamp(self, count: int, lengths_us: Sequence[float]) -> list[list[int]]:
        """What each rank's clock shows behind so many barriers, nanoseconds."""
        shown: list[list[int]] = [[] for _ in self._offsets_us]
        for index in range(count):
            for rank, offset in enumerate(self._offsets_us):
                at = self._now_us + offset + abs(self._rng.normal(0, SKEW_US))
                shown[rank].append(round(1e3 * at))
            self._now_us += 50.0 + lengths_us[index]
        return shown

    def _record(self, ask: Ask, names: Collection[str] | None = None) -> dict[str, list[Program]]:
        """What every rank does of a launch of each arm."""
        suite, params = self._head.performance, self._cases[ask.case]
        programs = defaultdict[str, list[Program]](list)
        for rank in range(self._ranks):
            fake.group.rank, fake.group.ranks = rank, self._ranks
            inputs = bind_rank(suite.make_inputs, rank, self._ranks)(**params, device="fake", seed=ask.seed)
            for name, call in make_arms(suite, self._base, self._traffic, inputs, names).items():
                fake.talk.clear()
                call()
                programs[name].append(list(fake.talk))
        return dict(programs)
