"""perfci in a repository that is not its own, installed from a wheel, as its users have it."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfci.cli.main import run
from tests.git_repositories import begin_empty

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout, built from a copy of it, so that no build folder stays behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "perfci", source / "perfci", ignore=shutil.ignore_patterns("__pycache__"))
    # The dev extra has what builds it; if it is missing, pip gets it from its index.
    offline = ["--no-build-isolation", "--no-index"] if importlib.util.find_spec("setuptools") else []
    pip("wheel", "--no-deps", *offline, "--wheel-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(wheel) -> Path:
    """The installed wheel, with this interpreter's packages as its dependencies."""
    folder = wheel.parent / "site"
    pip("install", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    return folder


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("command", [["twine", "check", "--strict"], ["check_wheel_contents"]])
def test_an_index_takes_the_wheel_and_shows_its_readme(wheel, command):
    done = subprocess.run(
        [sys.executable, "-m", *command, str(wheel)], capture_output=True, text=True, check=False, cwd=wheel.parent
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path) -> Path:
    """An empty git repository of somebody else's."""
    return begin_empty(tmp_path / "theirs")


class Shell:
    """The installed program in a folder, in which no checkout of perfci can be found."""

    def __init__(self, folder: Path, site: Path) -> None:
        self._folder = folder
        self._program = site / "bin" / "perfci"
        variables = {
            name: value for name, value in os.environ.items() if name.startswith("GIT_") or name in {"PATH", "HOME"}
        }
        self._environment = {**variables, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

    def perfci(self, *arguments: str, code: int = 0) -> str:
        command = [sys.executable, self._program, *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.mark.slow
def test_everything_that_is_no_cache_is_in_the_wheel(wheel):
    files = (path for path in (ROOT / "perfci").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())

    assert {path.relative_to(ROOT).as_posix() for path in files} - packed == set()
    assert {
        "perfci/core/wording/en.yaml",
        "perfci/extensions/setup/templates/jobs.yml",
        "perfci/schemas/settings.schema.json",
    } <= packed


@pytest.mark.nightly  # the wheel lacks no file, and tests/flow/test_readme.py has the same demo
def test_the_demo_runs_from_the_wheel(site, tmp_path):
    out = Shell(tmp_path, site).perfci("demo", "--keep", "demo", code=2)

    assert "2 REGRESSED, 1 WRONG, 4 PASS" in out


# --- docs/adopt.md ----------------------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    """Every call of perfci in the page's shell blocks, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("perfci ")]


@pytest.mark.slow
def test_the_pages_commands_run_one_after_another(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)

    codes = {" ".join(arguments): run(arguments) for arguments in commands()}

    assert set(codes.values()) == {0}, codes
    assert len(codes) == 6
    assert (repository / "kernels" / "shift" / "scale_up" / "scale_up_triton.py").is_file()
