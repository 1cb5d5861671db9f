"""What needs no device works on Windows: it imports, judges stored runs, and writes files that either system reads."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfci import store
from perfci.report.text import file_name

HERE = Path(__file__).parent

IMPORT_ALL = """
import importlib, pkgutil, perfci
TAKERS = ("npu", "adopt.rehearsal", "driver", "interpreter", "offline", "static.dry_launch")
TAKERS += ("beyond.cuda_graphs", "beyond.gradients", "beyond.structure", "ranks.rank", "ranks.timing", "ranks.work")
TAKERS += ("history.database", "history.archive")  # psycopg seeks a library of Windows
TORCH = tuple(f"perfci.{name}." for name in ("device", *(f"extensions.{name}" for name in TAKERS)))
pure = ("perfci.device.fake", "perfci.core.locks", "perfci.device.seam", "perfci.device.nvml")
for module in pkgutil.walk_packages(perfci.__path__, "perfci."):
    left_out = f"{module.name}.".startswith(TORCH) and module.name not in pure
    if not (left_out or module.name == "perfci.__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""

RUN_ALL = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"perfci(\\..*)?")
from perfci.cli.main import run
root = sys.argv[2]
for command in (
    ["compare", root + "/reports"],
    ["show", root + "/reports", "--format", "json"],
    ["report", root + "/reports", "--to", "csv", "--out", root + "/table.csv", "--verdicts"],
    ["report", root + "/reports"],
    ["accept", root + "/reports", "--op", "scale", "--slower", "--why", "meant"],
    ["compare", root + "/static"],
):
    print("code", command[0], run([*command, *([] if "csv" in command else ["--project", root])]), flush=True)
"""


def as_on_windows(code: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, str(HERE / "windows.py"), code, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.nightly
def test_everything_but_torchs_half_of_the_devices_imports_on_windows():
    done = as_on_windows(IMPORT_ALL)

    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    some = (
        "core.model",
        "store",
        "judge.compare",
        "extensions.pictures.plots",
        "runs.accept",
        "cli.output",
        "worker.process",
    )
    assert {f"perfci.{name}" for name in some} <= imported


@pytest.mark.nightly
def test_stored_runs_are_judged_shown_exported_rendered_and_accepted_on_windows(tmp_path):
    shutil.copytree(HERE / "stored" / "format-1", tmp_path, dirs_exist_ok=True)
    (tmp_path / "kernels").mkdir()

    done = as_on_windows(RUN_ALL, str(tmp_path), options=("-X", "warn_default_encoding"))

    codes = re.findall(r"^code (\w+) (\d+)$", done.stdout, re.MULTILINE)
    assert codes == [
        ("compare", "2"), ("show", "0"), ("report", "0"), ("report", "0"), ("accept", "0"), ("compare", "2"),
    ], done.stderr  # fmt: skip
    assert "REGRESSED" in done.stdout
    assert (tmp_path / "reports" / "report.md").exists()
    assert b"\r" not in (tmp_path / "reports" / "report.md").read_bytes() + (tmp_path / "table.csv").read_bytes()
    assert store.read_baseline(tmp_path / "baselines" / "fake-one" / "scale.json").cases


# --- names of files ---------------------------------------------------------------------------------------------------

HOSTILE = ("con", "a:b", "rows=1,cols=*", "x|y?", "trailing. ", "..", "", '<"quoted">', "Zürich数", "n" * 300, "a/b\\c")


@pytest.mark.parametrize("op", HOSTILE)
def test_a_picture_of_any_op_has_a_name_that_windows_takes(op):
    name = f"speedup-{file_name(op)}.png"

    assert re.fullmatch(r"[A-Za-z0-9_.-]+", name)
    assert len(name) < 100
