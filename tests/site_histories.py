"""Histories as a real device would leave them, made up with fixed seeds around times that an H200 gave."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perfci.core.model import Device, Environment, ErrorStats, HistoryAccuracy
from perfci.extensions.common.accepted_runs import Epoch, HistoryCase, HistoryRun, Spread
from perfci.extensions.history.past import make_past
from perfci.extensions.history.site import Kept, OpOnDevice
from perfci.store import layout

# Medians of kernel and reference in baselines/nvidia-h200, microseconds, and bytes moved or operations.
SOFTMAX = {
    "rows=4096,cols=512,dtype=float16": (4.93, 7.97, 8_388_608, None),
    "rows=4096,cols=1024,dtype=float32": (8.42, 10.49, 33_554_432, None),
    "rows=4096,cols=4096,dtype=float16": (19.6, 24.1, 67_108_864, None),
    "rows=4096,cols=32768,dtype=float16": (132.0, 176.0, 536_870_912, None),
    "rows=131072,cols=1024,dtype=bfloat16": (133.0, 190.0, 536_870_912, None),
    "rows=1024,cols=131072,dtype=bfloat16": (140.0, 260.0, 536_870_912, None),
}
MATMUL = {
    "m=2048,n=2048,k=2048,dtype=float16": (33.4, 29.8, 25_165_824, 17_179_869_184),
    "m=8192,n=8192,k=8192,dtype=bfloat16": (1660.0, 1490.0, 402_653_184, 1_099_511_627_776),
}
START = datetime(2026, 3, 2, 2, 11, tzinfo=UTC)
BOARDS = ("GPU-bac0b368-7024-3052-1f41-3f1046457119", "GPU-1d0b2a77-91f0-4c3e-8d52-0a6c7d0e9a4b")


def environment(number=0, **changes):
    """Of the run of this number: boards by turns, a separate commit."""
    device = Device(
        kind="cuda", name="NVIDIA H200", key=changes.pop("key", "nvidia-h200"), uuid=changes.pop("uuid", BOARDS[0]),
        driver=changes.pop("driver", "580.65.06"), runtime="CUDA 13.0", processors=132,
    )  # fmt: skip
    known = {
        "device": device, "timer": "activity", "python": "3.12.3", "host": "runner-1", "system": "Linux 6.8",
        "packages": {"torch": "2.11.0", "triton": "3.6.0"}, "commit": commit(number), "branch": "main",
    }  # fmt: skip
    return Environment(**(known | changes))


def commit(number):
    return f"{random.Random(f'commit {number}').getrandbits(160):040x}"


def spread(rng, us, noise):
    """What the blocks of one run give: their median, and quartiles around it."""
    middle = us * math.exp(rng.gauss(0, noise))
    return Spread(middle, middle * (1 - noise * rng.uniform(0.5, 1)), middle * (1 + noise * rng.uniform(0.5, 1.2)))


def case(rng, name, kernel_us, reference_us, moved=None, flops=None, noise=0.004):
    kernel, reference = spread(rng, kernel_us, noise), spread(rng, reference_us, noise)
    error = 4.9e-4 if "16" in name else 1.2e-7
    return HistoryCase(
        case=name, blocks=12, kernel_us=kernel, reference_us=reference,
        shift=math.log(kernel.median_us / reference.median_us), span_us=kernel.median_us * 1.06, rsd=0.012,
        bytes_moved=moved, flops=flops,
        bandwidth_share=moved / kernel.median_us / 4.2e6 if moved and not flops else None,
        compile_s=0.8 + rng.random() * 0.1, peak_bytes=moved,
        errors=ErrorStats(1000, error * rng.uniform(0.9, 1.05), p99_abs=error / 4, p50_abs=error / 40),
    )  # fmt: skip


def checks(rng):
    return tuple(
        HistoryAccuracy(
            f"rows=7,cols={cols},dtype={dtype}", 18, ErrorStats(7000, step * rng.uniform(0.4, 0.5), p99_abs=step / 9)
        )
        for dtype, step in (("float16", 9.8e-4), ("float32", 1.2e-7))
        for cols in (1, 1023)
    )  # fmt: skip


def run(number, cases, *, accuracy=(), created=None, **changes):
    fields = {name: changes.pop(name) for name in ("epoch", "inconclusive") if name in changes}
    when = created or f"{START + timedelta(days=number, minutes=7 * number % 50):%Y-%m-%dT%H:%M:%SZ}"
    return HistoryRun(
        run=f"run-{number:04}", created=when, environment=environment(number, **changes), cases=tuple(cases),
        accuracy=tuple(accuracy), **fields,
    )  # fmt: skip


def softmax(count=60):
    """Drift of one case, a new driver, an epoch, a case that was renamed, one withheld now and then."""
    rng, runs = random.Random(5), []
    long = list(SOFTMAX)[3]
    for number in range(count):
        fresh = number >= 24
        faster = 0.972 if fresh else 1.0
        cases = []
        for place, (name, (kernel, reference, moved, flops)) in enumerate(SOFTMAX.items()):
            drift = 1 + max(number - 34, 0) * 0.0011 if name == long else 1.0
            epoch = 1.018 if place == 4 and number >= 40 else 1.0
            shown = name.replace("131072", "128k") if place == 5 and number < 20 else name
            if place == 0 and number in {11, 12, 31}:
                continue
            cases.append(case(rng, shown, kernel * drift * epoch * faster, reference * faster, moved, flops))
        changes = {"driver": "590.12.01" if fresh else "580.65.06", "uuid": BOARDS[number % 3 == 2 and number > 8]}
        changes["packages"] = {
            "torch": "2.13.0" if number >= 50 else "2.11.0",
            "triton": "3.7.1" if number >= 50 else "3.6.0",
        }
        if number == 40:
            changes["epoch"] = Epoch("float32 accumulation for bfloat16, agreed in !412", (list(SOFTMAX)[4],))
        if number in {11, 12, 31}:
            changes["inconclusive"] = (next(iter(SOFTMAX)),)
        runs.append(run(number, cases, accuracy=checks(rng), **changes))
    return tuple(runs)


def steady(cases=None, count=30, seed=1, **changes):
    """Nothing happens."""
    rng = random.Random(seed)
    return tuple(
        run(number, [case(rng, name, *row) for name, row in (cases or MATMUL).items()], **changes)
        for number in range(count)
    )


def kept(runs, op="softmax", device="nvidia-h200", **changes):
    return Kept(OpOnDevice(device, op), make_past(tuple(runs)), **changes)


def project(folder: Path, histories):
    """A project with these histories, (device, op) -> runs, as perfci stores them."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    for (device, op), runs in histories.items():
        path = folder / "baselines" / device / f"{op}.history.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [layout.line(on(one, device)) for one in runs]
        path.write_text("".join(line if line.endswith("\n") else f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def on(one, device):
    where = one.environment
    return replace(one, environment=replace(where, device=replace(where.device, key=device)))
