"""What needs no device works on Windows: it imports, judges stored runs, and writes files that either system reads."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfci
from perfci import store
from perfci.report.text import file_name
from tests.sources import trees

ROOT = Path(perfci.__file__).parent
HERE = Path(__file__).parent
TREES = {path.relative_to(ROOT).as_posix(): tree for path, tree in trees().items()}

IMPORT_ALL = """
import importlib, pkgutil, perfci
TORCH = "perfci.device."
pure = ("perfci.device.fake", "perfci.core.locks", "perfci.device.seam", "perfci.device.nvml")
for module in pkgutil.walk_packages(perfci.__path__, "perfci."):
    left_out = module.name.startswith(TORCH) and module.name not in pure
    if not (left_out or "demo_project" in module.name or module.name == "perfci.__main__"):
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


def test_everything_but_torchs_half_of_the_devices_imports_on_windows():
    done = as_on_windows(IMPORT_ALL)

    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    some = ("core.model", "store", "judge.compare", "report.plots", "runs.accept", "cli.output", "worker.parent")
    assert {f"perfci.{name}" for name in some} <= imported


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


# --- held by reading the source ---------------------------------------------------------------------------------------

POSIX = frozenset({"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"})


def _imported(tree: ast.Module) -> set[str]:
    """What a module imports when it is imported."""
    found = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    return found | {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}


def _careless(tree: ast.Module) -> Iterator[str]:
    """Calls that leave the encoding or the line ends to the system."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = {keyword.arg for keyword in call.keywords}
        if {"text", "universal_newlines"} & given and "encoding" not in given and name in {"run", "Popen"}:
            yield ast.unparse(call)
        # One with an argument is not a path's, but a distribution's.
        if name == "read_text" and "encoding" not in given and not call.args:
            yield ast.unparse(call)
        if name == "write_text" and not {"encoding", "newline"} <= given:
            yield ast.unparse(call)
        if name == "open" and _is_text(call) and "encoding" not in given and None not in given:
            yield ast.unparse(call)


def _is_text(call: ast.Call) -> bool:
    """Whether it opens a file as text; files are opened by `Path.open`, descriptors by `os.open`."""
    if ast.unparse(call.func) in {"os.open", "gzip.open", "Image.open", "opener.open"}:
        return False
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return not any("b" in mode for mode in modes)


def _worded(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "str" or not node.args:
        return False
    inner = node.args[0]
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "relative_to"


# --- names of files ---------------------------------------------------------------------------------------------------

HOSTILE = ("con", "a:b", "rows=1,cols=*", "x|y?", "trailing. ", "..", "", '<"quoted">', "Zürich数", "n" * 300, "a/b\\c")


@pytest.mark.parametrize("op", HOSTILE)
def test_a_picture_of_any_op_has_a_name_that_windows_takes(op):
    name = f"speedup-{file_name(op)}.png"

    assert re.fullmatch(r"[A-Za-z0-9_.-]+", name)
    assert len(name) < 100
