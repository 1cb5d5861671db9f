"""Whether a repeated recording takes as long as the call that was recorded, case by case, on a GPU.

    python benchmarks/replayed_times.py [OP ...] [--blocks 24] [--out replayed.csv]    # such as softmax softmax@cuda

Three arms of one process share their inputs and are launched in random order: the kernel called directly, its
recording, and the kernel called directly once more, which shows how far two equal arms differ by chance. The shift of
an arm is the mean over blocks of its log ratio to the first. Calls without a recording are listed with the reason.
Another process records them: one that hears what kernels of any compiler do has no timer.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from perfci.core.codec import decode, encode
from perfci.core.model import peer_arm
from perfci.core.model.measured import KERNEL
from perfci.device import open_device
from perfci.measure.bench import Rig
from perfci.measure.blocks import take_blocks
from perfci.measure.inputs import bound_inputs
from perfci.measure.prepare import prepare
from perfci.ops.backends import name_of
from perfci.ops.recording import Recording
from perfci.ops.spec import case_id
from perfci.worker.load import describe_exception, load_op

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ops", nargs="*", metavar="OP")
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kernels", type=Path, default=KERNELS, help="the folder of ops")
    options = parser.parse_args()
    kernels = options.kernels.resolve()
    ops = options.ops or sorted(path.parent.name for path in kernels.glob("*/*_triton.py"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        recorded = pool.apply(record_all, (kernels, ops))
    device = open_device("cuda", seed=1)
    device.start_timer()
    rows: list[dict[str, Any]] = []
    for op in ops:
        folder = kernels / name_of(op)
        suite = load_op(op, folder, kernels).performance
        rig = Rig(suite, device, partial(describe_exception, folder=folder), 1, 0, 1e9, time.monotonic())
        with tempfile.TemporaryDirectory() as binaries:
            for params in suite.cases:
                recording = recorded[op, case_id(params)]
                rows.append({"op": op, **compare(rig, params, recording, Path(binaries), options.blocks)})
        print(summarise(op, [row for row in rows if row["op"] == op]), flush=True)
    print(summarise("all", rows))
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, sorted({key for row in rows for key in row}))
            writer.writeheader()
            writer.writerows(rows)


def record_all(kernels: Path, ops: list[str]) -> dict[tuple[str, str], bytes | str]:
    """The recording of each case's call, encoded, or why it has none."""
    device = open_device("cuda", seed=1)
    device.hear_driver()
    recorded: dict[tuple[str, str], bytes | str] = {}
    for op in ops:
        suite = load_op(op, kernels / name_of(op), kernels).performance
        for params in suite.cases:
            inputs = bound_inputs(suite, params, "cuda", 1)
            suite.kernel(**inputs)  # it compiles and tunes
            recording = device.record(suite.kernel, inputs)
            recorded[op, case_id(params)] = encode(recording) if isinstance(recording, Recording) else str(recording)
    return recorded


def compare(rig: Rig, params: Any, recorded: bytes | str, folder: Path, blocks: int) -> dict[str, Any]:
    """Time one case. Returns its shifts, log scale, and the direct call's median in microseconds."""
    subject = prepare(rig, params)
    if subject.broken:
        return {"case": subject.case, "why": str(subject.facts.failure)}
    if isinstance(recorded, str):
        return {"case": subject.case, "why": recorded}
    program = rig.device.play(decode(recorded, Recording), folder)
    if not callable(program):
        return {"case": subject.case, "why": str(program)}
    subject.peers = {"replayed": program, "again": rig.suite.kernel}
    take_blocks(rig, [(subject, index) for index in range(blocks)], lambda *_: None)
    shifts = {
        name: [block.shifts[f"{KERNEL}/{peer_arm(name)}"] for block in subject.blocks if peer_arm(name) in block.arms]
        for name in ("replayed", "again")
    }
    if not all(shifts.values()):
        return {"case": subject.case, "why": str(subject.failure or subject.facts.peers)}
    median_us = statistics.median(block.arms[KERNEL].time.median_us for block in subject.blocks)
    figures: dict[str, Any] = {"case": subject.case, "us": round(median_us, 3)}
    for name, many in shifts.items():
        figures |= {name: statistics.mean(many), f"{name}_error": statistics.stdev(many) / math.sqrt(len(many))}
    return figures


def summarise(op: str, rows: list[dict[str, Any]]) -> str:
    """One line: how many were compared, and the shifts of those over 10 us. Of all, if none takes as long."""
    timed = [row for row in rows if "why" not in row]
    for row in rows:
        if "why" in row and op != "all":
            print(f"{op} {row['case']}: {row['why']}", file=sys.stderr)
    if not timed:
        return f"{op}: nothing of {len(rows)} compared"
    parts = []
    for name in ("replayed", "again"):
        long = [row for row in timed if row["us"] > 10] or timed
        worst = max(long, key=lambda row: abs(row[name]))
        within = sum(abs(row[name]) <= 0.002 for row in long)
        mean = statistics.mean(row[name] for row in long)
        parts.append(
            f"{name}: {within} of {len(long)} over 10 us within 0.2 %, mean {mean:+.4%}, worst {worst[name]:+.3%} "
            f"(± {1.96 * worst[f'{name}_error']:.3%}, {worst['us']} us, {worst['case']})"
        )
    return f"{op}: {len(timed)} of {len(rows)} cases; " + "; ".join(parts)


if __name__ == "__main__":
    main()
