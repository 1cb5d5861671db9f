"""docs/stored-files.md describes what is in the files, and its commands run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perfci
from perfci.core.model import FORMAT
from tests.closed_schemas import PUBLISHED, faults
from tests.schemas import UNITS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "stored-files.md"
STORED = ROOT / "tests" / "stored" / "format-1"


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_names_the_format_the_schemas_and_the_units_of_today():
    page = text()

    assert f"A line without one has format {FORMAT}" in page
    assert all(f"`{name}`" in page for name in PUBLISHED)
    assert all(f"`{ending}`" in page for ending in UNITS if ending != "_tflops")


def test_the_example_lines_fit_the_schemas():
    import json

    launch, case = (json.loads(block) for block in re.findall(r"```json\n(.*?)\n```", text(), re.DOTALL))

    assert faults(launch, "launches.schema.json") == []
    stored = json.loads((STORED / "baselines" / "fake-one" / "scale.json").read_text(encoding="utf-8"))
    assert faults({**stored, "cases": [case]}, "baseline.schema.json") == []


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with stored files, in which the page's commands are run."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_page_runs(here, capsys):
    blocks = re.findall(r"```python\n(.*?)```", text(), re.DOTALL)
    assert len(blocks) == 2

    for block in blocks:
        exec(compile(block, "stored-files.md", "exec"), {"perfci": perfci})

    out = capsys.readouterr().out
    assert "scale rows=256,cols=1024,dtype=float32 REGRESSED" in out
    assert out.count("Name: median_us") == 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_commands_of_the_page_run(here):
    blocks = re.findall(r"```sh\n(.*?)```", text(), re.DOTALL)
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        ["sh", "-ec", "\n".join(blocks)], capture_output=True, encoding="utf-8", check=False, env=environment
    )

    assert done.returncode == 0, done.stderr
    assert "scale\trows=256,cols=1024,dtype=float32\t24" in done.stdout
    assert "+4.0 % against the base" in done.stdout
    assert "ok -- validation done" in done.stdout
