"""The tables of the reference, as the site shows them."""

import re
import runpy
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfci.core.settings import Settings
from tests.reference_pages import DOCS, PAGES

HOOKS = DOCS / "_site" / "hooks.py"


@pytest.fixture
def shown(request) -> str:
    """A page as mkdocs gets it."""
    hooks = runpy.run_path(str(HOOKS))
    file = SimpleNamespace(src_uri=request.param, name=Path(request.param).stem)
    text = (DOCS / request.param).read_text(encoding="utf-8")
    return hooks["on_page_markdown"](text, SimpleNamespace(file=file), SimpleNamespace(docs_dir=str(DOCS)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_marks_the_place_of_each_of_its_tables_and_holds_none(page):
    text = (DOCS / page).read_text(encoding="utf-8")

    assert re.findall(r"<!-- table: (\w+) -->", text) == list(PAGES[page])
    assert "| field |" not in text


ROWS = {"commands.md": 150, "settings.md": 50, "stored-files.md": 400}


@pytest.mark.parametrize(("shown", "rows"), ROWS.items(), indirect=["shown"])
def test_the_site_has_the_tables_in_the_place_of_their_marks(shown, rows):
    assert "<!-- table" not in shown
    assert len([line for line in shown.splitlines() if line.startswith("| `")]) > rows


@pytest.mark.parametrize("shown", ["settings.md"], indirect=True)
def test_no_key_is_left_without_words(shown):
    rows = [line for line in shown.splitlines() if line.startswith("| `")]

    assert [row for row in rows if row.endswith("|  |")] == [], "say beside the field in the code what it holds"
    assert {f"`{field.name}`" for field in fields(Settings) if field.name != "root"} <= {row.split()[1] for row in rows}


@pytest.mark.parametrize("shown", ["stored-files.md"], indirect=True)
def test_no_field_and_no_column_is_left_without_words(shown):
    rows = [line for line in shown.splitlines() if line.startswith("| `")]
    silent = [row for row in rows if re.fullmatch(r"\| `\w+` \| [^|]*(text|number|false)[^|A-Z]* \|  \|", row)]

    assert silent == [], "say beside the field in perfci/core/model what it holds, or in SAID of tests/schemas.py"


@pytest.mark.parametrize("shown", ["stored-files.md"], indirect=True)
def test_every_record_has_one_table(shown):
    records = re.findall(r"^### (\w+)$", shown, re.MULTILINE)

    assert len(records) == len(set(records)) > 60
