"""How well host time is judged: slow wrappers planted in a copy of this repository, and comments as A/A.

    python benchmarks/host_time.py                             # plants in three ops: some two minutes of one GPU
    python benchmarks/host_time.py --ops vector_add --only spin
    python benchmarks/host_time.py --unchanged 2 --ops ''      # A/A of all ops, twice; no plants

It needs git, a GPU, and torch and Triton in the interpreter that runs it, and no network. Every check compares a commit
with the one before it, as `perfci check OP --suite performance --against HEAD~1` does. A plant is found if every case
that host time matters to is REGRESSED for it. Of A/A none may be.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.model import HostBlock

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("kernels", "thresholds", "pyproject.toml")
SPIN_US, CHECKS_US = 30.0, 5.0


@dataclass(frozen=True)
class Found:
    """One check's host times of one op's cases."""

    verdicts: Mapping[str, str]  # case -> slower, open, undecided, or fine
    blocks: Mapping[str, Sequence[HostBlock]]
    seconds: float
    others: Mapping[str, int]  # verdicts of the op's cases and how many have each

    def count(self, *kinds: str) -> int:
        return sum(kind in kinds for kind in self.verdicts.values())

    @property
    def shown(self) -> str:
        """Host times of base and kernel of every case, and the largest shift that a process saw."""
        texts = []
        for case, blocks in self.blocks.items():
            us = {arm: middle([block.arms[arm].host_us for block in blocks]) for arm in ("base", "kernel")}
            processes = {block.process for block in blocks}
            shifts = [
                middle([block.shift or 0.0 for block in blocks if block.process == process]) for process in processes
            ]
            farthest = max(shifts, key=abs)
            loop = middle([block.arms["kernel"].loop_us for block in blocks])
            texts.append(
                f"    {case}: {us['base']:.1f} -> {us['kernel']:.1f} us, loop {loop:.1f} us, "
                f"{100 * math.expm1(farthest):+.1f} % at most by process, {len(blocks)} blocks, {self.verdicts[case]}"
            )
        return "\n".join(texts)


def middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


# --- plants -----------------------------------------------------------------------------------------------------------


def spin(folder: Path, op: str) -> None:
    """The wrapper waits before it does anything."""
    lines = f"    end = time.perf_counter() + {SPIN_US}e-6\n    while time.perf_counter() < end:\n        pass\n"
    _insert(folder, op, lines)
    path = _kernel(folder, op)
    path.write_text(path.read_text().replace("\nimport torch\n", "\nimport time\n\nimport torch\n", 1))


def check_layout(folder: Path, op: str) -> None:
    """The wrapper asks for contiguous inputs again and again, as careless checks do."""
    import torch

    x = torch.empty(4)
    each_us = 1e6 * min(timeit.repeat(x.contiguous, number=1000, repeat=5)) / 1000
    _insert(folder, op, f"    for _ in range({max(round(CHECKS_US / each_us), 1)}):\n        x.contiguous()\n")


def lose_cache(folder: Path, _: str) -> None:
    """The limits of the device are asked for on every call."""
    path = folder / "kernels" / "_launch.py"
    text = path.read_text()
    assert "@functools.cache\ndef limits(" in text, "the cache of _launch.limits is somewhere else now"
    path.write_text(text.replace("@functools.cache\ndef limits(", "def limits("))


def comment(folder: Path, op: str) -> None:
    """Nothing that runs."""
    path = _kernel(folder, op)
    path.write_text(f"{path.read_text()}\n# {time.time()}\n")


PLANTS: Mapping[str, Callable[[Path, str], None]] = {"spin": spin, "checks": check_layout, "cache": lose_cache}


def _kernel(folder: Path, op: str) -> Path:
    return folder / "kernels" / op / f"{op}_triton.py"


def _insert(folder: Path, op: str, lines: str) -> None:
    """Put lines at the beginning of the wrapper, before it checks its tensors."""
    path = _kernel(folder, op)
    text, count = re.subn(rf'^(?=    _launch\.check_tensors\("{op}")', lambda _: lines, path.read_text(), flags=re.M)
    assert count == 1, f"{path} checks its tensors {count} times"
    path.write_text(text)


# --- checks -----------------------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=perfci", "-c", "user.email=perfci@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "A change")


def make_repository(folder: Path) -> None:
    """A copy of this repository's kernels and rules, committed."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, folder / name)
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(folder, "init", "-q")
    commit(folder)


def check(folder: Path, ops: Sequence[str], *more: str) -> dict[str, Found]:
    """Check ops against the commit before this one."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "perfci", "check", *ops, "--suite", "performance", "--against", "HEAD~1"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--format", "json", *more], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    seconds = time.monotonic() - began
    if done.returncode not in {0, 2, 3}:
        raise SystemExit(f"perfci check ended with {done.returncode}:\n{done.stderr[-3000:]}")
    rows = json.loads(done.stdout)["verdicts"]
    answers = {}
    for op in store.read_run(folder / "reports").ops:
        timed = [row for row in rows if row["op"] == op.op and row["suite"] == "performance" and row["case"]]
        blocks = {case.case: [block for block in case.host if block.shift is not None] for case in op.performance}
        said = {
            row["case"]: next(
                (reason["kind"].removeprefix("duel_host_") for reason in (row["reason"], *row["also"])
                 if reason["kind"].startswith("duel_host_")), "fine",
            )
            for row in timed if blocks.get(row["case"])
        }  # fmt: skip
        kept = {case: blocks[case] for case in said}
        answers[op.op] = Found(said, kept, seconds, Counter(row["verdict"] for row in timed))
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="vector_add,gelu,softmax", help="ops to plant in, comma between")
    parser.add_argument("--only", choices=[*PLANTS], action="append", help="plants. All if left out")
    parser.add_argument("--unchanged", type=int, default=0, metavar="TIMES", help="A/A checks of all ops")
    options = parser.parse_args()
    ops = [op for op in options.ops.split(",") if op]
    with tempfile.TemporaryDirectory(prefix="perfci-host-") as place:
        folder = Path(place) / "project"
        make_repository(folder)
        for name in (options.only or PLANTS) if ops else ():
            for op in ops:
                PLANTS[name](folder, op)
                commit(folder)
                seen = check(folder, [op])[op]
                right = seen.verdicts and seen.count("slower") == len(seen.verdicts)
                counts = f"{seen.count('slower')} of {len(seen.verdicts)} cases, {dict(seen.others)}"
                print(f"{name} in {op}: {'found' if right else 'NOT FOUND'} in {counts}, {seen.seconds:.0f} s")
                print(seen.shown, flush=True)
                git(folder, "revert", "--no-edit", "HEAD")
        every_op = sorted(path.parent.name for path in (folder / "kernels").glob("*/*_triton.py"))
        totals = Counter[str]()
        for turn in range(options.unchanged):
            for op in every_op:
                comment(folder, op)
            commit(folder)
            for op, seen in check(folder, every_op, "--duel", "all").items():
                totals.update(seen.verdicts.values())
                print(f"A/A {turn + 1}, {op}: {dict(Counter(seen.verdicts.values()))}, {dict(seen.others)}")
                print(seen.shown, flush=True)
        if options.unchanged:
            print(f"A/A of host time: {totals.total()} duels, {totals['slower']} false alarms, "
                  f"{totals['open'] + totals['undecided']} without an answer")  # fmt: skip


if __name__ == "__main__":
    main()
