"""docs/stored-files.md describes what is in the files, and its commands run."""

from __future__ import annotations

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
from tests.field_tables import columns, fields
from tests.schemas import UNITS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "stored-files.md"
STORED = ROOT / "tests" / "stored" / "format-1"

TABLES = {
    "run": lambda: fields("run.schema.json"),
    "launches": lambda: fields("launches.schema.json"),
    "baseline": lambda: (
        fields("run.schema.json", "baseline.schema.json").removeprefix(fields("run.schema.json")).strip()
    ),
    "history": lambda: (
        fields("run.schema.json", "baseline.schema.json", "history.schema.json")
        .removeprefix(fields("run.schema.json", "baseline.schema.json"))
        .strip()
    ),
    "plan": lambda: fields("run.schema.json", "plan.schema.json").removeprefix(fields("run.schema.json")).strip(),
    "round": lambda: fields("run.schema.json", "round.schema.json").removeprefix(fields("run.schema.json")).strip(),
    "answer": lambda: fields("answer.schema.json"),
    "columns": columns,
}


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_every_field_as_the_schema_has_it(name):
    """PERFCI_UPDATE_GOLDEN=1 writes the tables again; read them in the diff."""
    mark = f"<!-- {name}: made by tests/field_tables.py -->\n"
    before, found, rest = text().partition(mark)
    assert found
    shown, end, after = rest.partition("<!-- end -->")

    wanted = f"\n{TABLES[name]()}\n\n"
    if os.environ.get("PERFCI_UPDATE_GOLDEN"):
        PAGE.write_text(before + mark + wanted + end + after, encoding="utf-8", newline="\n")
        shown = wanted

    assert shown == wanted, "run this test with PERFCI_UPDATE_GOLDEN=1, and read the diff"


def test_no_field_and_no_column_is_left_without_words():
    lines = [line for line in text().splitlines() if line.startswith("| `")]
    silent = [line for line in lines if re.fullmatch(r"\| `\w+` \| [^|]*(text|number|false)[^|A-Z]* \|  \|", line)]

    assert len(lines) > 200
    assert silent == [], "say beside the field in perfci/core/model what it holds, or in SAID of tests/schemas.py"


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
