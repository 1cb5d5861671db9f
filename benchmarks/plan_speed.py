"""How long `perfci ci plan` takes over 10,000 cases, 20 each of 500 ops. The goal is 5 s.

python benchmarks/plan_speed.py [OPS CASES]

The ops are those of a project for the fake device. Without a changed file nothing is imported. The second line is for
one changed op, for which all are imported: the cases that are duelled as a control are drawn from all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from startup import machine

from perfci.cli.demo import write_project

OPS, CASES = 500, 20
AIM_S = 5
SOURCE = "scale"


def git(root: Path, *arguments: str) -> None:
    """Run git in a repository, as no one in particular."""
    person = ["-c", "user.name=perfci", "-c", "user.email=perfci@localhost"]
    subprocess.run(["git", "-C", str(root), *person, *arguments], check=True, capture_output=True)


def project(root: Path, ops: int, cases: int) -> None:
    """So many ops of four files each, on a branch that differs from main in a document."""
    write_project(root)
    files = {path.name: path.read_text() for path in (root / "kernels" / SOURCE).glob("*.py")}
    rows = str([128 * number for number in range(1, cases + 1)])
    files[f"{SOURCE}_performance.py"] = files[f"{SOURCE}_performance.py"].replace("[256, 512]", rows)
    shutil.rmtree(root / "kernels")
    for number in range(ops):
        op = f"op_{number}"
        folder = root / "kernels" / op
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name.replace(SOURCE, op)).write_text(text.replace(SOURCE, op))
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("reports/\nplan.json\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    git(root, "checkout", "-q", "-b", "topic")
    (root / "README.md").write_text("Words.\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")


def timed(root: Path) -> tuple[str, str]:
    """Returns the seconds of one `perfci ci plan`, including its start, and how many ops it gives to shards."""
    command = [
        sys.executable,
        "-m",
        "perfci",
        "ci",
        "plan",
        "--device",
        "fake",
        "--shards",
        "16",
        "--project",
        str(root),
    ]
    began, spent = time.perf_counter(), sum(os.times()[2:4])
    done = subprocess.run(
        [*command, "--out", str(root / "plan.json")], check=True, capture_output=True, text=True, cwd=root
    )
    took = f"{time.perf_counter() - began:.1f} s, {sum(os.times()[2:4]) - spent:.1f} s of CPU"
    return took, next(line for line in done.stdout.splitlines() if "ops are measured" in line).partition(";")[0]


def main(ops: int = OPS, cases: int = CASES) -> None:
    """Plan twice: with nothing changed, and with one op."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "project"
        project(root, ops, cases)
        took, told = timed(root)
        print(f"{ops} ops of {cases} cases, {machine()}")
        print(f"nothing changed: {took} ({told}); the aim is {AIM_S} s")
        kernel = root / "kernels" / "op_0" / "op_0_triton.py"
        kernel.write_text(kernel.read_text().replace("US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 328.0"))
        took, told = timed(root)
        print(f"one op changed:  {took} ({told})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
