"""What CI cannot run without a GPU, step by step, each with its output kept. docs/on-the-gpu.md has the results.

    python benchmarks/on_the_gpu.py --out /tmp/by-hand                  # every step, half an hour of one GPU
    python benchmarks/on_the_gpu.py --out /tmp/by-hand --only 'soak*'   # some of them (may be repeated)
    python benchmarks/on_the_gpu.py --out /tmp/by-hand --again          # those too that ended well before

A step's output is written as it comes, so that one that is cut off is not lost. A step that ended well is not run
again. CUDA_VISIBLE_DEVICES chooses the GPU. Two runs at once need a clone each, as they write to `reports/`.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tables import table

ROOT = Path(__file__).resolve().parents[1]
PERFCI = (sys.executable, "-m", "perfci")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "cuda")
GRACE_S = 15.0
"""Between the signal that asks a step to end, so that it keeps what it has, and the one that makes it."""

SOAKED = {
    "add_rms_norm": "rows=256,*",
    "allgather_matmul": "m=4096,*",
    "attention": "*width=64*causal=True*",
    "attention_backward": "*width=64*causal=True*",
    "bias_relu": "rows=4096,cols=1024,dtype=bfloat16",
    "broadcast": "rows=4096,cols=1024,dtype=float16",
    "conv2d": "*size=28*bfloat16*",
    "cross_entropy": "rows=4096,cols=1000*",
    "cross_entropy_backward": "rows=4096,cols=1000*",
    "fp8_attention": "*width=64*",
    "fp8_matmul": "*m=64,*",
    "gelu": "*4096;4096*tanh*",
    "layer_norm": "rows=4096,cols=1024*",
    "layer_norm_backward": "rows=4096,cols=1024*",
    "matmul": "m=64,*",
    "matmul_reducescatter": "m=4096,*",
    "rms_norm": "rows=4096,cols=1024*",
    "rms_norm_backward": "rows=4096,cols=1024*",
    "rotary": "*tokens=256,*",
    "softmax": "rows=4096,cols=1024,*",
    "softmax_backward": "rows=4096,cols=1024,*",
    "vector_add": "*4096;4096*",
}
"""op -> a case of it that a thousand calls of are over soon"""


@dataclass(frozen=True)
class Step:
    """One command."""

    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    name: str
    code: int
    """of its process; 124 if the time was up"""
    seconds: float


def steps() -> Iterator[Step]:
    """All of them; those with the most new information first."""
    cuda = ("-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning", "-W", "ignore::UserWarning")
    yield Step("tests-device", (*PYTEST, *cuda, "tests/device"), 300)
    yield Step("tests-kernels", (*PYTEST, *cuda, "-n", "8", "tests/kernels"), 600)
    for op in sorted(SOAKED):
        yield Step(f"check-{op}", (*PERFCI, "check", op, "--device", "cuda", "--duel", "none"), 300)
    mutations = (sys.executable, "benchmarks/mutations.py", "--first", "--device", "cuda", "--workers", "12")
    yield Step("mutations", mutations, 600)
    for seed in ("1", "2"):
        yield Step(f"chain-seed-{seed}", (*PERFCI, "chain", "--device", "cuda", "--seed", seed), 180)
    for op, case in SOAKED.items():
        yield Step(f"soak-{op}", (*PERFCI, "soak", op, "--case", case, "--device", "cuda", "--seed", "1"), 120)
    for op in sorted(SOAKED):
        limit = ("--suite", "performance", "--device", "cuda", "--duel", "none")
        yield Step(f"peers-{op}", (*PERFCI, "check", op, "--backend", "all", *limit), 300)


def run(step: Step, folder: Path) -> Outcome:
    """Runs a step, with its output in a file of its name. A check's run.json is kept beside it."""
    began, made = time.monotonic(), ROOT / "reports" / "run.json"
    if "check" in step.command:
        made.unlink(missing_ok=True)  # of the step before
    with (folder / f"{step.name}.txt").open("w", encoding="utf-8") as out:
        out.write(f"$ {' '.join(step.command)}\n")
        out.flush()
        code = _ended(step, out.fileno())
        out.write(f"[exit {code} after {time.monotonic() - began:.0f} s]\n")
    if "check" in step.command and made.exists():
        (folder / f"{step.name}.json").write_bytes(made.read_bytes())
    return Outcome(step.name, code, round(time.monotonic() - began, 1))


def _ended(step: Step, out: int) -> int:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(step.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        return process.wait(step.limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return 124


def known(folder: Path) -> dict[str, Outcome]:
    path = folder / "outcomes.json"
    if not path.exists():
        return {}
    return {load["name"]: Outcome(**load) for load in json.loads(path.read_text(encoding="utf-8"))}


def _told(outcome: Outcome) -> str:
    return "ended well" if outcome.code == 0 else f"exit {outcome.code}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the outputs")
    parser.add_argument("--only", action="append", metavar="GLOB", help="only steps of such names")
    parser.add_argument("--again", action="store_true", help="also those that ended well before")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [
        step for step in steps() if not options.only or any(fnmatch.fnmatch(step.name, one) for one in options.only)
    ]
    if not chosen:
        parser.error(f"no step has such a name; there are {', '.join(step.name for step in steps())}")
    done = known(options.out)
    for step in chosen:
        if step.name in done and done[step.name].code == 0 and not options.again:
            continue
        done[step.name] = run(step, options.out)
        print(f"{step.name}: exit {done[step.name].code}, {done[step.name].seconds} s", file=sys.stderr, flush=True)
        text = json.dumps([asdict(outcome) for outcome in done.values()], indent=1)
        (options.out / "outcomes.json").write_text(text, encoding="utf-8")
    rows = [(outcome.name, _told(outcome), outcome.seconds) for outcome in done.values()]
    print(table(("step", "outcome", "seconds"), rows))
    return 0 if all(done[step.name].code == 0 for step in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
