import pytest

from perfci.report.figures import fonts, text_drawing
from perfci.report.figures.sheet import Note

HAN = "\u4e2d\u6587"


@pytest.fixture
def fonts_are(monkeypatch):
    """Make the machine have these families, each standing for a file of matplotlib's own."""

    def install(*names):
        own, _ = fonts.file_of(fonts.SANS)
        monkeypatch.setattr(fonts, "installed", lambda: dict.fromkeys(names, own))
        forget()

    yield install
    forget()


def forget():
    """What was found out about the machine's fonts."""
    for known in (fonts.cjk, fonts._charmap, text_drawing._font):
        known.cache_clear()


def test_without_a_cjk_font_a_code_point_stands_in_the_place_of_a_letter(fonts_are):
    fonts_are("DejaVu Sans")

    assert fonts.cjk() is None
    assert fonts.drawn(f"op-{HAN}", 40) == r"op-\u4e2d\u6587"


@pytest.mark.parametrize("name", ["Noto Sans CJK SC", "WenQuanYi Zen Hei", "Source Han Sans SC"])
def test_a_cjk_font_that_is_installed_is_used(fonts_are, monkeypatch, name):
    fonts_are("DejaVu Sans", name)
    monkeypatch.setattr(fonts, "_in", lambda family, letter: family == name or letter.isascii())

    assert fonts.drawn(f"op-{HAN}", 40) == f"op-{HAN}"
    assert [fonts.family_of(letter, fonts.MONO) for letter in f"a{HAN}"] == [fonts.MONO, name, name]


def test_the_first_family_of_the_list_is_taken(fonts_are):
    fonts_are("Arial Unicode MS", "WenQuanYi Zen Hei", "Noto Sans CJK SC")

    assert fonts.cjk() == "Noto Sans CJK SC"


def test_letters_of_a_cjk_font_that_it_lacks_itself_are_escaped(fonts_are):
    fonts_are("Noto Sans CJK SC")  # stands for a file without Han

    assert fonts.drawn(HAN, 40) == r"\u4e2d\u6587"


def test_letters_that_our_own_fonts_have_are_kept(fonts_are):
    fonts_are()

    assert fonts.drawn("caf\u00e9 \u03bcs", 40) == "caf\u00e9 \u03bcs"


def test_a_text_of_two_fonts_is_set_in_parts(fonts_are, monkeypatch):
    fonts_are("Noto Sans CJK SC")
    monkeypatch.setattr(fonts, "_in", lambda family, letter: family == "Noto Sans CJK SC" or letter.isascii())

    parts = [part for part, _ in text_drawing._runs(f"n={HAN},k=1", Note("", 0, 0))]

    assert parts == ["n=", HAN, ",k=1"]


@pytest.mark.parametrize("family", [fonts.SANS, fonts.MONO])
@pytest.mark.parametrize("bold", [False, True])
def test_our_own_fonts_come_with_matplotlib(family, bold):
    from pathlib import Path

    file, index = fonts.file_of(family, bold=bold)

    assert Path(file).is_file()
    assert index == 0
