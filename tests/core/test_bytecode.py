"""Bytecode of installed packages is kept in perfci's cache where Python keeps none."""

import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = """
import sys
from perfci.core import bytecode
with bytecode.kept_in(bytecode.find_folder("module") or ""):
    import module
print(module.__cached__, sys.pycache_prefix, sys.dont_write_bytecode)
"""


def import_module(tmp_path: Path, **variables: str) -> tuple[str, str, str]:
    """Where the bytecode of a new module is, and how Python keeps bytecode afterwards."""
    (tmp_path / "module.py").touch()
    path = f"{Path(__file__).parents[2]}:{tmp_path}"
    given = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), **variables}
    done = subprocess.run([sys.executable, "-c", IMPORT], env=given, capture_output=True, text=True, check=True)
    cached, prefix, forbidden = done.stdout.split()
    return cached, prefix, forbidden


@pytest.mark.parametrize(
    ("variables", "kept"),
    [({"PYTHONDONTWRITEBYTECODE": "1"}, "cache/perfci/bytecode"), ({}, "__pycache__")],
)
def test_bytecode_goes_to_the_cache_only_if_python_keeps_none(tmp_path, variables, kept):
    cached, prefix, forbidden = import_module(tmp_path, **variables)

    assert Path(cached).is_file()
    assert Path(cached).is_relative_to(tmp_path / kept)
    assert (prefix, forbidden) == ("None", str(bool(variables)))


def test_a_folder_that_python_was_given_stays(tmp_path):
    cached, prefix, _ = import_module(tmp_path, PYTHONPYCACHEPREFIX=str(tmp_path / "other"))

    assert Path(cached).is_relative_to(tmp_path / "other")
    assert prefix == str(tmp_path / "other")


def test_bytecode_that_lies_beside_its_file_is_used(tmp_path):
    beside, _, _ = import_module(tmp_path)

    assert import_module(tmp_path, PYTHONDONTWRITEBYTECODE="1")[0] == beside
    assert not (tmp_path / "cache").exists()
