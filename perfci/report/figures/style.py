"""Colours, sizes and markers of all pictures."""

from __future__ import annotations

import math

from perfci.core.model import Gate

COLOURS = {"kernel": "#0072B2", "reference": "#8A8A8A", "base": "#009E73"}
"""From Okabe and Ito's palette, told apart with any colour vision, and grey."""

GRAVE = {Gate.FAILS: "#D55E00", Gate.WARNS: "#E69F00", Gate.OK: COLOURS["kernel"]}
MARKERS = {"kernel": "o", "reference": "s", "base": "^"}
OTHER = "#CC79A7"
INK = "#333333"
EDGE = "#999999"
FAINT = "#DDDDDD"
GROUND = "#F0E9D8"
BLACK = "#000000"

SERIES = (COLOURS["kernel"], GRAVE[Gate.FAILS], COLOURS["base"], OTHER, GRAVE[Gate.WARNS], "#56B4E9")
"""Of lines that are told apart by colour alone, in this order."""

SHAPES = ("o", "s", "^", "D", "v", "P")

FONT = 7.5
"""Points."""

DPI = 120

CHARACTER = math.ceil(FONT * 0.602 / 72 * DPI) / DPI
"""Width of a character of the monospaced font, inches: hinting rounds it to whole dots."""

LABEL = 44
"""Characters of a case id a line; longer ids take two lines, then lose their middle."""


def colour_of(arm: str) -> str:
    """The colour of an arm; one for all that have none of their own."""
    return COLOURS.get(arm, OTHER)
