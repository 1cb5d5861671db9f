"""Run the ops' accuracy suites in triton-ascend's interpreter, compile them by it, print the table of docs/npu.md.

python benchmarks/ascend_interpreter.py                     # every op
python benchmarks/ascend_interpreter.py --op softmax        # one op (may be repeated)
python benchmarks/ascend_interpreter.py --venv FOLDER       # keep the environment there, or use the one that is there

triton-ascend is a fork of Triton 3.2 that installs into the same package, so it gets its environment: torch's
CPU build, what perfci's extra `ascend` names, this perfci. It has wheels for Python 3.9 to 3.11, so
this runs on 3.11. No NPU and no CANN are needed: without CANN it compiles as far as HIVM. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
TARGET = "ascend910b2"
VERSIONS = ("torch", "triton-ascend", "ascendnpu-ir", "numpy", "pybind11")
LIMIT_S = 3600.0
"""For one op."""

STEP_S = 1800
"""For one check: the largest products take minutes in the interpreter."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", help="only this op (may be repeated)")
    parser.add_argument("--venv", type=Path, help="folder of the environment; without it a temporary one")
    options = parser.parse_args()
    ops = sorted(path.parent.name for path in (ROOT / "kernels").glob("*/*_accuracy.py"))
    if unknown := set(options.op or ()) - set(ops):
        parser.error(f"no such op: {', '.join(sorted(unknown))}; there are {', '.join(ops)}")
    with tempfile.TemporaryDirectory(prefix="ascend-interpreter-") as scratch:
        python = environment(options.venv or Path(scratch) / "venv")
        print(f"In triton-ascend's interpreter, {versions(python)}:\n")
        print("| op | suite | outcome | HIVM |\n| --- | --- | --- | --- |", flush=True)
        rows = [row(python, Path(scratch), op) for op in options.op or ops]
    return 0 if all(rows) else 2


def environment(folder: Path) -> Path:
    """Returns the interpreter of an environment with triton-ascend, which it makes if necessary."""
    python = folder / "bin" / "python"
    if python.is_file():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["ascend"]]
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, TORCH, *needed], check=True)
    return python


def versions(python: Path) -> str:
    """What the table was made with."""
    asked = (
        "import importlib.metadata as m, platform, sys\n"
        "print(', '.join([f'Python {platform.python_version()}', *(f'{n} {m.version(n)}' for n in sys.argv[1:])]))"
    )
    return run([str(python), "-c", asked, *VERSIONS]).stdout.strip()


def row(python: Path, scratch: Path, op: str) -> bool:
    """Runs one op's suite in its project and prints its line. Returns True if all of it passed."""
    project = scratch / op
    project.mkdir()
    for name in ("kernels", "thresholds"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "tuned"))
    (project / "pyproject.toml").write_text(f"[tool.perfci]\ntime_limit_s = {STEP_S}\n", encoding="utf-8")
    check = perfci(python, project, "check", "--device", "cpu", "--suite", "accuracy", op)
    size, *told = outcomes(check)
    compiled = perfci(python, project, "static", "--target", TARGET, op)
    print(f"| {op} | {size} | {'; '.join(told) or 'passed'} | {made(compiled)} |", flush=True)
    return {check.returncode, compiled.returncode} <= {0, 3}


def perfci(python: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([str(python), "-m", "perfci", *arguments, "--format", "json"], cwd=project, timeout=LIMIT_S)


def made(done: subprocess.CompletedProcess[str]) -> str:
    """What of an op's performance cases compiles to HIVM."""
    try:
        rows = json.loads(done.stdout)["verdicts"]
    except ValueError:
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]
    passed = [row["reason"]["facts"] for row in rows if row["verdict"] == "PASS" and row["case"] is None]
    if passed:
        return "{cases} cases, {kernels} kernels".format_map(passed[0])
    return next((reason["sentence"] for row in rows for reason in [*row["also"], row["reason"]] if reason), "-")


def outcomes(done: subprocess.CompletedProcess[str]) -> Iterator[str]:
    """How much was checked, then what was not right, or not tried."""
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        yield "-"
        yield (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return
    whole = next(row for row in answer["verdicts"] if row["suite"] == "accuracy" and row["case"] is None)
    reason = whole["reason"] or {}
    yield checked(reason.get("facts", {}))
    if whole["verdict"] != "PASS":
        yield f"{whole['verdict']}: {reason.get('sentence', '')}"
    for note in whole["also"]:
        if note["kind"] == "accuracy_unchecked":
            left = "{checks} checks of {cases} cases not made".format_map(note["facts"])
            yield f"{left}: an interpreter multiplies bfloat16 and float8 wrongly"
        elif whole["verdict"] != "PASS" and note["kind"] != "stored_within":
            yield note["sentence"]


def checked(facts: Mapping[str, Any]) -> str:
    made = facts.get("cases") if "cases" in facts else None
    return f"{facts['checks']} checks of {made} cases" if made is not None else f"{facts.get('checks', '-')} checks"


def run(command: list[str], **named: Any) -> subprocess.CompletedProcess[str]:
    """A command with this perfci before any that is installed."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, **named)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"stopped after {named['timeout']:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
