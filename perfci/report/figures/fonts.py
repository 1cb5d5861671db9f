"""Which letters a picture can show: those of matplotlib's own fonts, and CJK where the machine has a font for them.

A letter that no font has would be drawn as a box; its code point is written in its place.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfci.report import text

SANS, MONO = "DejaVu Sans", "DejaVu Sans Mono"
"""They come with matplotlib, so that they are there on every machine."""

_FILES = {
    (SANS, False): "DejaVuSans.ttf",
    (SANS, True): "DejaVuSans-Bold.ttf",
    (MONO, False): "DejaVuSansMono.ttf",
    (MONO, True): "DejaVuSansMono-Bold.ttf",
}

CJK = (
    "Noto Sans Mono CJK SC",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Sarasa Mono SC",
    "WenQuanYi Zen Hei Mono",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Arial Unicode MS",
)
"""Families with Chinese, Japanese and Korean letters, the first one installed is taken."""


def installed() -> Mapping[str, str]:
    """Files of the families that matplotlib found on this machine."""
    from matplotlib import font_manager

    return {font.name: font.fname for font in reversed(font_manager.fontManager.ttflist)}


@functools.cache
def cjk() -> str | None:
    """The family that CJK letters are drawn with; None where the machine has none."""
    known = installed()
    return next((name for name in CJK if name in known), None)


def file_of(family: str, *, bold: bool = False) -> tuple[str, int]:
    """A family's file, and its place in it."""
    import matplotlib as mpl

    own = _FILES.get((family, bold))
    return (str(Path(mpl.get_data_path(), "fonts", "ttf", own)), 0) if own else (installed()[family], 0)


def family_of(letter: str, own: str) -> str:
    """The family that a letter of a text is drawn with, the text's own if that has it."""
    other = cjk()
    return other if other and not _in(own, letter) and _in(other, letter) else own


def has(letter: str) -> bool:
    """Whether one of the fonts has the letter, whichever of our own two it is set in."""
    other = cjk()
    return (_in(SANS, letter) and _in(MONO, letter)) or (other is not None and _in(other, letter))


def _in(family: str, letter: str) -> bool:
    return bool(_charmap(family).get_char_index(ord(letter)))


@functools.cache
def _charmap(family: str) -> Any:
    from matplotlib.ft2font import FT2Font

    return FT2Font(file_of(family)[0])


def drawn(name: str, limit: int) -> str:
    """A name as a picture shows it, in one line."""
    return text.glyphs(name, limit, has)
