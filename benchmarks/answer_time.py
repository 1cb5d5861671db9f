"""How long `perfci check` lets a person wait: one op for the first time and again, all ops, a change of one of them.

    python benchmarks/answer_time.py [--op broadcast] [--repeats 3] [--only STEP ...] [--timings]

Works on whatever device there is, in a copy of this repository's ops with a history of its own, and says first whether
workers are forked there. Steps:

cold        one op, with empty caches of perfci's and Triton's: once
again       the same once more
unchanged   all ops against themselves, all duelled (`--duel all`). Without an accelerator nothing is duelled
changed     a merge request in which this op's launches have half of their warps, so that it is verified and duelled
accuracy    all ops' accuracy suites in Triton's interpreter

For each step the seconds of wall time of every repetition and the verdicts. --timings adds where they went. Other work
on the machine takes cores: its load stands beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from speed import git, machine

from perfci.core.settings import load
from perfci.runs.bench import WorkerPlace, make_environment, open_bench, warm_up
from perfci.worker import forks

ROOT = Path(__file__).resolve().parents[1]
WARPS = re.compile(r"num_warps=([\w.]+)")
STEPS = ("cold", "again", "unchanged", "changed", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="broadcast")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=STEPS, nargs="+", default=STEPS)
    parser.add_argument("--timings", action="store_true")
    asked = parser.parse_args()
    print(f"perfci check: {machine()}")
    with tempfile.TemporaryDirectory(prefix="perfci-answer-") as name:
        project = write_project(Path(name) / "project")
        print(try_fork(project))
        variables = {**os.environ, "XDG_CACHE_HOME": f"{name}/cache"}
        arguments = {
            "cold": [asked.op],
            "again": [asked.op],
            "unchanged": ["--against", "HEAD", "--duel", "all"],
            "changed": ["--against", "main"],
            "accuracy": ["--suite", "accuracy", "--device", "cpu"],
        }
        for step in [step for step in STEPS if step in asked.only]:
            if step == "changed":
                change(project, asked.op)
            times = 1 if step == "cold" else asked.repeats
            options = [*arguments[step], *(["--timings"] if asked.timings else [])]
            told = [answer(project, options, variables) for _ in range(times)]
            verdicts = Counter(row["verdict"] for row in told[-1][1])
            counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            print(f"{step:10}{'  '.join(f'{seconds:6.1f} s' for seconds, *_ in told)}   {counts}", flush=True)
            if asked.timings:
                print(told[-1][2])


def write_project(folder: Path) -> Path:
    """All ops, thresholds and settings at the one commit of the branch main."""
    for place in ("kernels", "thresholds"):
        shutil.copytree(ROOT / place, folder / place, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n", encoding="utf-8")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "All ops")
    return folder


def try_fork(project: Path) -> str:
    """Whether workers are forked here, in a sentence. They are started anew where anything could differ."""
    began = time.perf_counter()
    with open_bench(load(project), lambda _: None) as bench:
        warm_up(bench, "auto")
        around = make_environment(bench, WorkerPlace("probe", "auto"))
        worker = forks.start(around.environment, around.folder, None, [])
        seconds = time.perf_counter() - began
        if worker is None:
            return "workers are started anew"
        with worker.stdin, worker.stdout:
            worker.kill()
            worker.wait()
    forks.end()
    return f"workers are forked, the first one after {seconds:.1f} s of imports"


def change(project: Path, op: str) -> None:
    """On a branch, launch an op's kernels with half as many warps."""
    path = project / "kernels" / op / f"{op}_triton.py"
    text, count = WARPS.subn(r"num_warps=max(\1 // 2, 1)", path.read_text(encoding="utf-8"))
    if not count:
        raise SystemExit(f"{path.name} names no number of warps: choose another --op")
    path.write_text(text, encoding="utf-8")
    git(project, "checkout", "-q", "-b", "topic")
    git(project, "commit", "-q", "-a", "-m", "Half of the warps")


def answer(project: Path, options: list[str], variables: dict[str, str]) -> tuple[float, list[dict[str, Any]], str]:
    """Seconds of one check, its verdicts' rows as `perfci compare --format json` has them, and what it printed."""
    command = [sys.executable, "-P", "-m", "perfci", "check", *options, "--project", str(project)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    seconds = time.perf_counter() - began
    if done.returncode not in {0, 2, 3}:
        raise SystemExit(f"perfci ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "perfci", "compare", "--format", "json", "--project", str(project)],
        capture_output=True, text=True, check=False, env=variables,
    ).stdout  # fmt: skip
    return seconds, json.loads(shown)["verdicts"], done.stdout


if __name__ == "__main__":
    main()
