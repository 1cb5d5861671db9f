"""Which accuracy suites catch which planted faults: each of `planted.FAULTS` in a copy of the kernels, then its suite.

    python benchmarks/mutations.py [--op OP] [--device cpu|cuda] [--workers N] [--out docs/mutations.md]
    python benchmarks/mutations.py --first     up to the first check that finds a fault

On the CPU the suites run in Triton's interpreter, which leaves races on hardware unchecked. A
fault is caught if its op is WRONG or raises. Faults that slip through are listed first, and the exit code is 1. Ops
without a fault run too and have to pass, since catching means nothing otherwise.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planted import FAULTS, Fault
from tables import Marks, table

if TYPE_CHECKING:
    from perfci.device.seam import Accelerator
    from perfci.measure.verify import Check

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
MARKS = Marks("benchmarks/mutations.py")
LIMIT_S = 900


@dataclass(frozen=True)
class Caught:
    """The result of an op's accuracy suite."""

    checks: int
    failed: int
    reasons: tuple[tuple[str, int], ...]
    """(kind of reason, checks), the most frequent first"""
    first: str | None
    """the first case that failed, with its values and layout"""

    @property
    def anything(self) -> bool:
        return self.failed > 0


def suite(op: str, fault: Fault | None, device: str, case: str | None = None) -> Caught:
    """Runs one op's accuracy suite in its own project, with the given fault, if any."""
    with tempfile.TemporaryDirectory(prefix="perfci-mutation-") as name:
        project = Path(name)
        copied(project, fault)
        command = [sys.executable, "-m", "perfci", "check", "--suite", "accuracy", op, "--device", device]
        given = ["--project", str(project), "--format", "json", *(["--case", case] if case else [])]
        # Its own device lock: nothing is timed here, so several may share a device.
        env = {**os.environ, "TMPDIR": name}
        done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env)
        if done.returncode not in (0, 2, 3):
            raise RuntimeError(f"{op}: perfci ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return _read(json.loads((project / "reports" / "run.json").read_text(encoding="utf-8")))


def shown_on(device: str) -> list[Fault]:
    """Faults that are faults there: on the CPU kernels are interpreted."""
    other = "compiled" if device == "cpu" else "interpreted"
    return [fault for fault in FAULTS if fault.only != other]


def copied(project: Path, fault: Fault | None) -> Path:
    """All kernels, since ops import common modules and one another; no baselines and thresholds."""
    shutil.copytree(KERNELS, project / "kernels", ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache"))
    (project / "pyproject.toml").write_text("[tool.perfci]\n", encoding="utf-8")
    if fault is not None:
        path = project / "kernels" / fault.path
        path.write_text(fault.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
    return project


def _read(run: dict) -> Caught:
    (found,) = run["ops"]
    checks = found.get("accuracy", [])
    failed = [check for check in checks if check.get("failure")]
    reasons = Counter(check["failure"]["kind"] for check in failed)
    for whole in filter(None, (found.get("error"), found.get("failure"))):
        reasons[whole["kind"]] += 1
    names = [", ".join(filter(None, (check["case"], check.get("values"), check.get("layout")))) for check in failed]
    first = names[0] if names else next(iter(reasons), None)
    return Caught(len(checks), sum(reasons.values()), tuple(reasons.most_common()), first)


# --- up to the first finding ------------------------------------------------------------------------------------------


def first(fault: Fault, folder: Path, device: str = "cpu") -> Caught:
    """Returns what finds a fault first, and the checks tried until then; `folder` gets a copy of the kernels.

    In this process, which for "cpu" has to have begun with TRITON_INTERPRET=1. The checks that the fault names are
    tried first.
    """
    from perfci.device import open_device

    project = copied(folder, fault)
    op, opened = project / "kernels" / fault.op, open_device(device, seed=1)
    names = {path.stem for path in op.parent.rglob("*.py")} | {path.name for path in op.parent.iterdir()}
    _forget(names)
    # What numpy warns of is no finding, and under pytest it would be raised and look like one.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _searched(fault, op, opened, names)


def _searched(fault: Fault, op: Path, device: Accelerator, names: set[str]) -> Caught:
    from perfci.measure.verify import checks, verify
    from perfci.worker.load import describe_exception, load_op

    tried = 0
    try:
        suite = load_op(fault.op, op, op.parent).accuracy
        for check in sorted(checks(suite, 1, None), key=lambda check: not _shows(fault, check)):
            tried += 1
            found = verify(suite, device, check, lambda error: describe_exception(error, op))
            if found.failure is not None:
                where = f"{found.case}, {check.values}, {check.layout}"
                return Caught(tried, 1, ((found.failure.kind, 1),), where)
    finally:
        _forget(names)
    return Caught(tried, 0, (), None)


def _shows(fault: Fault, check: Check) -> bool:
    """Whether the fault is expected to show in this check."""
    from perfci.ops.spec import matches

    expected = fault.case is not None or fault.values is not None
    return expected and matches(check.case, fault.case) and fault.values in {None, check.values}


def _forget(names: set[str]) -> None:
    """Modules of one copy are not those of the next."""
    for module in [each for each in sys.modules if each.split(".")[0] in names]:
        del sys.modules[module]


def _alone(fault: Fault, device: str) -> Caught:
    with tempfile.TemporaryDirectory(prefix="perfci-mutation-") as name:
        return first(fault, Path(name), device)


def firsts(faults: Sequence[Fault], workers: int, device: str) -> list[Caught]:
    os.environ["OMP_NUM_THREADS"] = "1"  # both are read when the processes import Triton and torch
    if device != "cpu":
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda fault: _own_process(fault, device), faults))
    os.environ["TRITON_INTERPRET"] = "1"
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_alone, faults, [device] * len(faults)))


def _own_process(fault: Fault, device: str) -> Caught:
    """A kernel that leaves its memory breaks the device's context for everything after it in the process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            found = pool.submit(_alone, fault, device).result()
        except BrokenProcessPool:
            found = Caught(1, 1, (("process_died", 1),), None)
    print(f"{fault.op}: {fault.name}: {_how(found)}", file=sys.stderr, flush=True)
    return found


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(rows: Sequence[tuple[Fault, Caught]], how: str) -> str:
    missed = [(fault, found) for fault, found in rows if not found.anything]
    head = f"{len(rows) - len(missed)} of {len(rows)} faults caught, {how}."
    kinds = Counter(fault.kind for fault, _ in rows)
    caught = Counter(fault.kind for fault, found in rows if found.anything)
    by_kind = table(("kind", "planted", "caught"), [(kind, many, caught[kind]) for kind, many in sorted(kinds.items())])
    ordered = sorted(rows, key=lambda row: row[1].anything)
    each = table(
        ("op", "fault", "checks that fail, of those tried", "how", "first"),
        [
            (f"`{fault.op}`", fault.name, f"{found.failed} of {found.checks}", _how(found), _first(found))
            for fault, found in ordered
        ],
    )
    return f"{head}\n\n{by_kind}\n\n{each}"


def _how(found: Caught) -> str:
    return ", ".join(f"{kind} ({many})" for kind, many in found.reasons[:3]) or "**not caught**"


def _first(found: Caught) -> str:
    return f"`{found.first}`" if found.first else "-"


# --- all of it --------------------------------------------------------------------------------------------------------


def untouched(ops: Iterable[str], device: str, pool: ThreadPoolExecutor) -> list[str]:
    """Ops whose suites fail without any fault."""
    names = sorted(set(ops))
    return [
        op
        for op, found in zip(names, pool.map(lambda op: suite(op, None, device), names), strict=True)
        if found.anything
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", help="only this op's faults; may be given several times")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--first", action="store_true", help="only up to the first check that finds a fault")
    parser.add_argument("--workers", type=int, default=2, help="suites at a time")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks")
    options = parser.parse_args(arguments)
    faults = [fault for fault in shown_on(options.device) if not options.op or fault.op in options.op]
    if options.first:
        rows = list(zip(faults, firsts(faults, options.workers, options.device), strict=True))
        where = "in Triton's interpreter" if options.device == "cpu" else f"compiled, device {options.device}"
        return _told(tables(rows, f"{where}, up to the first check that finds each"), rows, options.out)
    with ThreadPoolExecutor(options.workers) as pool:
        if failing := untouched((fault.op for fault in faults), options.device, pool):
            print(f"Without any fault these fail, so nothing can be said: {', '.join(failing)}", file=sys.stderr)
            return 1
        rows = list(zip(faults, pool.map(lambda fault: suite(fault.op, fault, options.device), faults), strict=True))
    return _told(tables(rows, f"device {options.device}, whole suites"), rows, options.out)


def _told(text: str, rows: Sequence[tuple[Fault, Caught]], page: Path | None) -> int:
    if page:
        MARKS.written(page, text)
    print(text)
    return 0 if all(found.anything for _, found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
