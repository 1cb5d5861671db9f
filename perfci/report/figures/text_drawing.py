"""The texts of a picture, set by Pillow: matplotlib takes ten times as long for each, and a report has thousands."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfci.report.figures import fonts
from perfci.report.figures.sheet import TURNED, Note
from perfci.report.figures.style import DPI

if TYPE_CHECKING:
    from PIL.Image import Image

PIXELS, LARGE = 13, 16
"""Height of the letters: whole pixels, which every version of Pillow takes."""

LEADING = 15
"""Pixels from one line of a text to the next."""

_ANCHORS = {"left": "l", "center": "m", "right": "r"}


def write(image: Image, notes: Iterable[tuple[Note, float, float]]) -> None:
    """Draw texts into the image; each with its place in pixels from the lower left corner."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(image)
    for note, x, y in notes:
        left, up = x + note.shift[0] * DPI / 72, image.height - y - note.shift[1] * DPI / 72
        if note.align == TURNED:
            _turned(image, note, left, up)
        else:
            _lines(draw, note, left, up)


def _lines(draw: Any, note: Note, x: float, y: float) -> None:
    lines = note.text.split("\n")
    # Every line is set on its baseline, so that descending letters in some do not move them; digits are 0.73 high.
    size = _pixels(note)
    first = {"baseline": 0.0, "center": 0.365 * size, "top": 0.76 * size}[note.upright]
    first -= LEADING * (len(lines) - 1) / 2 if note.upright == "center" else 0.0
    for index, line in enumerate(lines):
        _line(draw, note, line, x, y + first + index * LEADING)


def _line(draw: Any, note: Note, text: str, x: float, y: float) -> None:
    runs = list(_runs(text, note))
    width = sum(font.getlength(part) for part, font in runs)
    left = x - {"left": 0.0, "center": width / 2, "right": width}[note.align]
    for part, font in runs:
        draw.text((round(left), round(y)), part, fill=note.colour, font=font, anchor="ls")
        left += font.getlength(part)


def _turned(image: Image, note: Note, x: float, y: float) -> None:
    """Drawn on its side: black on white, then laid over the picture where it is darker."""
    from PIL import Image as Images
    from PIL import ImageChops, ImageDraw

    width = round(sum(font.getlength(part) for part, font in _runs(note.text, note))) + 4
    height = _pixels(note) + 6
    flat = Images.new("RGB", (width, height), "white")
    ImageDraw.Draw(flat)
    _line(ImageDraw.Draw(flat), _flat(note), note.text, 2, height - 5)
    upright = flat.rotate(90, expand=True)
    place = (round(x - upright.width / 2), round(y - upright.height / 2))
    box = (*place, place[0] + upright.width, place[1] + upright.height)
    image.paste(ImageChops.darker(image.crop(box), upright), place)


def _flat(note: Note) -> Note:
    return Note(note.text, 0, 0, colour=note.colour, mono=note.mono, bold=note.bold, large=note.large)


def _pixels(note: Note) -> int:
    return LARGE if note.large else PIXELS


def _runs(text: str, note: Note) -> Iterator[tuple[str, Any]]:
    """The text in parts that one font has all letters of."""
    own = fonts.MONO if note.mono else fonts.SANS
    if text.isascii():
        yield text, _font(own, note.bold, _pixels(note))
        return
    for family, letters in groupby(text, key=lambda letter: fonts.family_of(letter, own)):
        yield "".join(letters), _font(family, note.bold and family == own, _pixels(note))


@functools.cache
def _font(family: str, bold: bool, pixels: int) -> Any:
    from PIL import ImageFont

    file, index = fonts.file_of(family, bold=bold)
    return ImageFont.truetype(file, pixels, index=index, layout_engine=ImageFont.Layout.BASIC)
