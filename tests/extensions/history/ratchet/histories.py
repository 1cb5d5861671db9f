"""Accepted runs, made to order."""

import math
from dataclasses import replace

import numpy as np

from perfci.core.model import Device, Environment, ErrorStats, HistoryAccuracy
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, Spread

CASE = "rows=4096,cols=4096,dtype=float16"
DEVICE = Device("cuda", "NVIDIA H200", "nvidia-h200", "GPU-1", "580.159")
HERE = Environment(DEVICE, "activity", "3.11", {"torch": "2.11", "triton": "3.6"}, "runner", "Linux")
ELSEWHERE = replace(HERE, packages={"torch": "2.12", "triton": "3.6"})


def run(number, environment=HERE, board="GPU-1", case=CASE, epoch=None, accuracy=None, inconclusive=(), **figures):
    """figures: fields of the case; kernel_us and speedup as numbers."""
    kernel_us = figures.pop("kernel_us", 100.0)
    if "speedup" in figures:
        figures["shift"] = -math.log(figures.pop("speedup"))
    case_of_run = HistoryCase(case, 12, Spread(kernel_us, kernel_us, kernel_us), **figures)
    place = replace(environment, device=replace(environment.device, uuid=board))
    checks = (HistoryAccuracy(case, 9, accuracy),) if accuracy else ()
    return HistoryRun(f"r{number}", "2026-11-01T00:00:00Z", place, (case_of_run,), checks, epoch, inconclusive)


def nulls(count, block=0.001, process=0.0, blocks=6, seed=0):
    """A/A duels of one process each."""
    rng = np.random.default_rng(seed)
    d = rng.normal(0, block, (count, blocks)) + rng.normal(0, process, (count, 1))
    return [(tuple(shifts),) for shifts in d.tolist()]


def with_nulls(count, **noise):
    return [run(number, null=null) for number, null in enumerate(nulls(count, **noise))]


def with_figure(name, values, boards=None, **more):
    boards = boards or ["GPU-1"] * len(values)
    return [
        run(number, board=board, **{name: value}, **more)
        for number, (value, board) in enumerate(zip(values, boards, strict=True))
    ]


def errors(**values):
    return ErrorStats(count=1000, **values)
