"""Environments of their own for packages that the tests' environment lacks, which is used for all else."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(folder: Path, packages: Sequence[str], *, alone: bool = False) -> Path:
    """Returns the interpreter of a new environment in a folder. Skips the test if the index lacks a package.

    alone: without what they depend on.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "rest.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *(["--no-deps"] if alone else []), "--target", str(site)]
    done = subprocess.run([*pip, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached, or lacks a release: {done.stderr[-300:]}")
    return folder / "bin" / "python"


def make_repository(root: Path, files: dict[str, str]) -> None:
    """Write files, and commit them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "Kernels"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=root, check=True)


def check_static(python: Path, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`perfci static` in an environment, of a project."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(root.parent / "cache")}
    command = [str(python), "-m", "perfci", "static", "--format", "json", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=variables)
