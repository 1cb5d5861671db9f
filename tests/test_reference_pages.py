"""The generated pages of the reference are what the code says today."""

import pytest

from tests.reference_pages import DOCS, TABLES, write


@pytest.mark.parametrize("page", TABLES)
def test_the_page_has_every_option_and_every_key_as_the_code_has_them(page):
    """`python -m tests.reference_pages` writes the tables again; read them in the diff."""
    text = (DOCS / page).read_text(encoding="utf-8")

    assert write(text, TABLES[page]) == text, "run python -m tests.reference_pages, and read the diff"


def test_no_key_is_left_without_words():
    rows = [line for line in (DOCS / "settings.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]

    assert len(rows) > 50
    assert [row for row in rows if row.endswith("|  |")] == [], "say beside the field in the code what it holds"
