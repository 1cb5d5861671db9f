"""The process of one rank: it joins the group, imports the op, and does what the leader asks all ranks for."""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from perfci.core.codec import decode, encode
from perfci.core.errors import PerfciError
from perfci.core.model import Fact, Reason
from perfci.device import open_device
from perfci.device.seam import Accelerator
from perfci.extensions.ranks import checks
from perfci.extensions.ranks.arms import Function, describe_case, find_traffic, make_arms
from perfci.extensions.ranks.progress import Progress, Step, open_stack, watch_stack
from perfci.extensions.ranks.records import Answer, Ask, OpPlace, RankPlace
from perfci.extensions.ranks.spec import bind_rank
from perfci.extensions.ranks.work import compare_work
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Accuracy, Params, Performance, case_id
from perfci.worker.apart import load_apart
from perfci.worker.load import LoadedOp, describe_exception, import_roots, load_op

LOOPBACK = "lo"
"""A group is of one host, so what its processes say to each other by sockets leaves it by no other interface."""


def serve_rank(place: RankPlace, pipe: Connection, others: tuple[Connection, ...] = ()) -> None:
    """Answer the leader until it closes its end. others: ends of the pipes that this process has inherited."""
    for end in others:
        end.close()
    with open_stack(place.stack) as stack:
        _prepare_environment(place.device)
        progress = Progress(place.places, place.ranks)
        rank: Rank | None = None
        with contextlib.suppress(EOFError, OSError):  # the leader is gone
            while True:
                ask = decode(pipe.recv_bytes(), Ask)
                progress.begin(place.rank)
                try:
                    with watch_stack(stack, place.limit_s):
                        rank = rank or Rank(place, progress)
                        answer = Answer(body=rank.do(ask))
                except Exception as error:
                    answer = Answer(_explain(error, place, ask))
                progress.note(place.rank, Step.ANSWERED)
                pipe.send_bytes(encode(answer))


def _prepare_environment(device: str) -> None:
    """Variables that NCCL, gloo and symmetric memory read when they begin."""
    if Path("/sys/class/net", LOOPBACK).exists():
        os.environ.update({"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK})
    if device == "cuda":
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # the leader ends what hangs


def _explain(error: Exception, place: RankPlace, ask: Ask) -> Reason:
    if isinstance(error, PerfciError):
        return error.reason
    described = describe_exception(error, place.head.folder)
    facts: dict[str, Fact] = {"op": place.head.op, "case": ask.case or ask.do, "rank": place.rank, **described}
    return Reason("ranks_raised", facts)


class Rank:
    """One rank in its group, with the op as of both revisions."""

    def __init__(self, place: RankPlace, progress: Progress) -> None:
        self.place, self.progress = place, progress
        if place.device == "cuda":
            torch.cuda.set_device(place.board)
        self.device: Accelerator = open_device(place.device, seed=0, timer="event")
        self._join()
        self.progress.note(place.rank, Step.INPUTS)
        if place.hears:
            self.device.hear_driver()  # before the op's files load their kernels
        self.head = _load(place.head)
        self.base = _load(place.base, place.head.root) if place.base else None
        self.traffic = find_traffic(place.head.op)
        self.accuracy, self.timed = self._list_cases()
        self._timer: Any = None

    def _join(self) -> None:
        """Enter the group. All of its ranks come here."""
        place = self.place
        self.progress.note(place.rank, Step.MEETING)
        own: dict[str, Any] = {"device_id": torch.device("cuda", place.board)} if place.device == "cuda" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.init_process_group(
                "nccl" if place.device == "cuda" else "gloo", init_method=f"file://{place.meeting}",
                rank=place.rank, world_size=place.ranks, timeout=timedelta(seconds=max(4 * place.limit_s, 60)), **own,
            )  # fmt: skip

    def _list_cases(self) -> tuple[Mapping[str, Params], Mapping[str, Params]]:
        """Cases of both suites by id."""
        suites = self.head.accuracy, self.head.timed_suite()
        accuracy, timed = ({case_id(params): params for params in suite.cases} for suite in suites)
        return accuracy, timed

    @property
    def timer(self) -> Any:
        """What times on this rank's device, made when it is needed first: by all ranks at once."""
        if self._timer is None:
            from perfci.extensions.ranks.timing import RankTimer

            self.progress.note(self.place.rank, Step.MEETING)
            self._timer = RankTimer(self.place, self.device, self.progress)
        return self._timer

    def do(self, ask: Ask) -> Mapping[str, Any]:
        """Answer one ask. Raises whatever the op raises."""
        return dict(getattr(self, f"_{ask.do}")(ask))

    # --- what can be asked for

    def _list(self, _: Ask) -> Mapping[str, Any]:
        return {
            "accuracy": [*self.accuracy],
            "performance": [*self.timed],
            "backend": dist.get_backend(),
            "board": _find_board(self.place),
        }

    def _check(self, ask: Ask) -> Mapping[str, Any]:
        suite, params = self.head.accuracy, self.accuracy[ask.case]
        inputs = self.device.arrays.place(self.make_inputs(suite, params, ask.seed), "contiguous")
        return checks.check(suite, params, inputs, self.device, functools.partial(self.progress.note, self.place.rank))

    def _prepare(self, ask: Ask) -> Mapping[str, Any]:
        suite, params = self.head.timed_suite(), self.timed[ask.case]
        inputs = self.make_inputs(suite, params, ask.seed)
        self.progress.note(self.place.rank, Step.CALLING)
        arms = self.arms(inputs)
        for function in arms.values():
            function()  # compiles
        self.progress.note(self.place.rank, Step.WAITING)
        self.device.synchronize()
        return {
            "arms": [*arms],
            **compare_work(arms, self.device),
            **describe_case(suite, self.traffic, params, self.place.ranks),
        }

    def _clocks(self, _: Ask) -> Mapping[str, Any]:
        return {"stamps_ns": self.timer.stamp_barriers()}

    def _links(self, ask: Ask) -> Mapping[str, Any]:
        dtypes = {str(params["dtype"]).removeprefix("torch.") for params in self.timed.values() if "dtype" in params}
        limits = self.device.limits(sorted(dtypes))
        return {
            "link_gbs": self.timer.measure_link(),
            "bandwidth_gbs": limits.copy_gbps,
            "tflops": limits.matmul_tflops,
        }

    def _block(self, ask: Ask) -> Mapping[str, Any]:
        self.device.hear_no_more()
        inputs = self.make_inputs(self.head.timed_suite(), self.timed[ask.case], ask.seed)
        return dict(self.timer.take_block(self.arms(inputs, ask.order), ask.order))

    # --- how calls are made

    def make_inputs(self, suite: Accuracy | Performance, params: Params, seed: int) -> dict[str, Any]:
        """Inputs of this rank."""
        make = bind_rank(suite.make_inputs, self.place.rank, self.place.ranks)
        return bound_inputs(replace(suite, make_inputs=make), params, self.device.arrays.device, seed)

    def arms(self, inputs: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, Function]:
        """What is timed, by name, each ready to be called. names: only these."""
        return make_arms(self.head.timed_suite(), self.base, self.traffic, inputs, names)


def _load(place: OpPlace, head_root: Path | None = None) -> LoadedOp:
    """Import an op, as of the base with head's modules out of the way."""
    if head_root:
        return load_apart(place.op, place.folder, place.shared, place.root, head_root)
    sys.path[:0] = import_roots(place.folder, place.shared)
    return load_op(place.op, place.folder, place.shared)


def _find_board(place: RankPlace) -> str:
    if place.device != "cuda":
        return ""
    return str(getattr(torch.cuda.get_device_properties(place.board), "uuid", place.board))
