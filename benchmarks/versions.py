"""Run perfci's tests on other versions of Python, torch and Triton, and print a row of docs/versions.md for each.

python benchmarks/versions.py                          # every cell with a Python that is here
python benchmarks/versions.py 3.11/2.13.0+cpu/3.5.1    # one cell: Python/torch/Triton
python benchmarks/versions.py --here                   # the Python, torch and Triton that run this, with its GPU
python benchmarks/versions.py --wheels aarch64         # which dependencies have no wheel for a machine

A cell gets a copy of the repository and its virtual environment in a temporary folder, both removed at the end
(torch with CUDA takes 6 GB while it lasts). An interpreter is looked for as python3.X in the PATH, or named by
--python 3.12=/path/to/python3.12. Nothing is timed: what is run are tests, on the CPU unless there is a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 20
"""Most failed tests that are printed; --out has all."""

OPS = ("broadcast", "bias_relu", "softmax", "matmul")
LEFT_OUT = shutil.ignore_patterns(".venv", "__pycache__", "*.egg-info", ".*_cache", "build", "dist")
PYTHONS = ("3.11", "3.12", "3.13")

TESTS = (
    "tests/kernels/test_interpreted.py",
    "tests/kernels/test_rows_compiled.py",
    "tests/extensions/common/test_binaries.py",
    "tests/device/test_capture.py",
    "tests/extensions/offline/test_compiling.py",
    "tests/extensions/static/test_compiled.py",
    "tests/flow/test_planted_kernels.py",
)
"""Tests that depend on torch and Triton: ops in the interpreter, and compiled without a device."""


@dataclass(frozen=True)
class Cell:
    """One combination of versions."""

    python: str
    torch: str
    triton: str

    @property
    def name(self) -> str:
        return f"{self.python}/{self.torch}/{self.triton}"

    @property
    def numpy(self) -> str:
        """Triton's interpreter before 3.7 fails on loops over a runtime bound with numpy 2.4 and later."""
        return "numpy" if _release(self.triton) >= (3, 7) else "numpy<2.4"


CELLS = (
    *(Cell("3.11", "2.13.0+cpu", triton) for triton in ("3.2.0", "3.3.1", "3.4.0", "3.5.1", "3.6.0")),
    *(Cell("3.11", "2.13.0+cpu", triton) for triton in ("3.7.1", "3.8.0", "3.9.0")),
    Cell("3.11", "2.6.0", "3.2.0"),
    Cell("3.11", "2.14.1", "3.8.0"),
    Cell("3.11", "2.15.0", "3.9.0"),
    Cell("3.12", "2.11.0", "3.6.0"),
    Cell("3.13", "2.13.0", "3.7.1"),
)


@dataclass
class Outcome:
    """What became of a cell."""

    cell: str
    python: str = ""
    torch: str = ""
    triton: str = ""
    numpy: str = ""
    device: str = ""
    tests: Mapping[str, int] = field(default_factory=dict)
    checks: str = ""
    date: str = ""
    note: str = ""
    failed: Sequence[str] = ()

    def row(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.tests.items())
        cells = (self.python, self.torch, self.triton, self.numpy, self.device, counts, self.checks, self.date)
        return "| " + " | ".join(cells) + " |" if not self.note else f"{self.cell}: not run: {self.note}"


def main() -> None:
    asked = _arguments()
    if asked.wheels:
        sys.exit(wheels(asked.wheels))
    outcomes = [here(asked)] if asked.here else [run(cell, asked) for cell in _cells(asked)]
    sys.exit(any(outcome.failed or outcome.note for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="PYTHON/TORCH/TRITON", help=", ".join(cell.name for cell in CELLS))
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--python", action="append", default=[], metavar="3.X=PATH")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help=f"instead of {' '.join(TESTS)}")
    parser.add_argument("--all", action="store_true", help="the whole suite, also what needs no torch")
    parser.add_argument("--out", type=Path, metavar="FILE", help="append the outcomes to it, one line of JSON each")
    parser.add_argument("--wheels", metavar="MACHINE", help="aarch64 or x86_64")
    return parser.parse_args()


def _cells(asked: argparse.Namespace) -> Iterator[Cell]:
    cells = {cell.name: cell for cell in CELLS}
    for name in asked.cells or cells:
        yield cells.get(name) or Cell(*name.split("/"))


def run(cell: Cell, asked: argparse.Namespace) -> Outcome:
    """Set a cell up, run it, print its row, remove it."""
    python = _interpreter(cell.python, asked.python)
    if python is None:
        return _told(Outcome(cell.name, note=f"no python{cell.python} here"), asked)
    with tempfile.TemporaryDirectory(prefix="perfci-versions-", ignore_cleanup_errors=True) as folder:
        venv, source = Path(folder, "venv"), Path(folder, "perfci")
        shutil.copytree(ROOT, source, ignore=LEFT_OUT)
        try:
            _install(cell, python, venv, source)
        except subprocess.CalledProcessError as error:
            return _told(Outcome(cell.name, note=f"pip: {error.stderr.strip().splitlines()[-1]}"), asked)
        return _told(_tried(cell.name, venv / "bin" / "python", source, () if asked.all else asked.tests), asked)


def here(asked: argparse.Namespace) -> Outcome:
    """The same with this interpreter, in the repository's folder."""
    return _told(_tried("here", Path(sys.executable), ROOT, () if asked.all else asked.tests), asked)


def _interpreter(version: str, named: Sequence[str]) -> str | None:
    paths = dict(pair.split("=", 1) for pair in named)
    candidates = (paths.get(version), sys.executable, shutil.which(f"python{version}"))
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, candidates):
        done = subprocess.run([path, "-c", told], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    return None


def _install(cell: Cell, python: str, venv: Path, source: Path) -> None:
    _quietly(python, "-m", "venv", str(venv))
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _quietly(*pip, cell.numpy, f"torch=={cell.torch}", "-e", f"{source}[dev]")
    # By itself: torch with CUDA asks for one version of Triton and no other.
    _quietly(*pip, "--no-deps", f"triton=={cell.triton}")


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


def _tried(name: str, python: Path, source: Path, tests: Sequence[str]) -> Outcome:
    outcome = Outcome(name, date=datetime.datetime.now(datetime.UTC).date().isoformat(), **_versions(python))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRITON_CACHE_DIR": str(Path(folder, "triton")),
        }
        junit = Path(folder, "junit.xml")
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", *tests]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        outcome.tests, outcome.failed = _counted(junit) if junit.exists() else ({"broke": 1}, [done.stderr[-2000:]])
        outcome.checks = _checked(python, source, environment)
    return outcome


def _versions(python: Path) -> dict[str, str]:
    code = (
        "import json, platform, torch, triton, numpy; print(json.dumps({'python': platform.python_version(), "
        "'torch': torch.__version__, 'triton': triton.__version__, 'numpy': numpy.__version__, "
        "'device': torch.cuda.get_device_name() if torch.cuda.is_available() else 'none: interpreter'}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"device": done.stderr[-300:]}


def _counted(junit: Path) -> tuple[dict[str, int], list[str]]:
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    total, failures, errors, skipped = (int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    bad = failures + errors
    return {"passed": total - bad - skipped, "failed": bad, "skipped": skipped}, failed


def _checked(python: Path, source: Path, environment: Mapping[str, str]) -> str:
    """Returns how many of the repository's ops pass `perfci check`; warnings are fine."""
    codes = [
        subprocess.run(
            [python, "-m", "perfci", "check", op, "--format", "json"],
            cwd=source, env=environment, capture_output=True, check=False,
        ).returncode
        for op in OPS
    ]  # fmt: skip
    return f"{sum(code in (0, 3) for code in codes)} of {len(OPS)}"


def _told(outcome: Outcome, asked: argparse.Namespace) -> Outcome:
    print(outcome.row(), *(f"  failed: {failure}" for failure in outcome.failed[:SHOWN]), sep="\n", flush=True)
    if asked.out:
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(outcome)) + "\n")
    return outcome


# --- wheels for another machine ---------------------------------------------------------------------------------------


def wheels(machine: str) -> int:
    """Ask pip for all that perfci needs, as wheels only, for every declared Python; downloads metadata only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    sets = {"perfci itself": project["dependencies"], **{f"extra {name}": extras[name] for name in extras}}
    missing = 0
    for title, needs in sets.items():
        for version in PYTHONS:
            count, lacking = _resolved(needs, version, machine)
            missing += len(lacking)
            told = f"no wheel: {', '.join(lacking)}" if lacking else f"{count} wheels, none missing"
            print(f"| {title} | {version} | {machine} | {told} |", flush=True)
    return min(missing, 1)


def _resolved(needs: Sequence[str], version: str, machine: str) -> tuple[int, list[str]]:
    """Packages that pip would install, dependencies of dependencies included, and what has no wheel."""
    kept = [need for need in needs if _applies(need, machine)]
    report = _dry_run(kept, version, machine)
    if report is not None:
        return len(report["install"]), []
    return 0, [need for need in kept if _dry_run([need], version, machine) is None]


def _applies(need: str, machine: str) -> bool:
    """Markers are pip's matter, but it reads them for the machine that it runs on."""
    return "platform_machine" not in need or f"'{machine}'" in need


def _dry_run(needs: Sequence[str], version: str, machine: str) -> dict | None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        platforms = [f"manylinux{glibc}_{machine}" for glibc in ("_2_34", "_2_28", "_2_27", "_2_17", "2014")]
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run",
            "--ignore-installed", "--target", folder, "--report", str(report), "--only-binary=:all:",
            "--implementation", "cp", "--python-version", version,
            *(f"--platform={platform}" for platform in platforms), *needs,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(report.read_text()) if done.returncode == 0 else None


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


if __name__ == "__main__":
    main()
