"""Values and entries as people's threshold files hold them."""

import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.model import Suggestion
from perfci.core.units import percent
from perfci.core.wording import say
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.place import Place, parse_yaml
from perfci.thresholds.read import MOST, NUMBERS, is_pattern, quote_text

CLOSE = 1e-9  # relative error of a value that is written and read again


# --- values -----------------------------------------------------------------------------------------------------------


def write_value(key: str, value: float) -> str | None:
    """A value of a key as files write it, 1.5 % or 1.2. None if no file can hold it.

    >>> write_value("tau", 0.015), write_value("speedup", 1.2), write_value("margin", -1.0)
    ('1.5 %', '1.2', None)
    """
    decimal = yaml.safe_dump(float(value)).splitlines()[0].removesuffix(".0")
    for text in (_write_percent(value), decimal) if math.isfinite(value) else ():
        try:
            if math.isclose(read_value(key, text, "-"), value, rel_tol=CLOSE, abs_tol=0.0):
                return text
        except StoredFileError:
            continue
    return None


def show(key: str, value: float | str | None) -> str:
    """A value as people read it: with four digits, no more. A dash for none."""
    if value is None or isinstance(value, str):
        return value or "-"
    return write_value(key, float(f"{value:.4g}")) or percent(value)


def read_value(key: str, text: str, source: str) -> float:
    """A value of a key as the command line gives it, read as files are. Raises StoredFileError, naming the source."""
    place = parse_yaml(Path(source), text)
    if place is None or not isinstance(place.node, yaml.ScalarNode):
        place = Place(Path(source), 1, key, yaml.ScalarNode("tag:yaml.org,2002:str", text))
    return float(NUMBERS[key](replace(place, key=key)))


def _write_percent(value: float) -> str:
    return f"{100 * value:.12f}".rstrip("0").rstrip(".") + " %"


# --- entries under `expected` -----------------------------------------------------------------------------------------


def suggest_expected(thresholds: Thresholds, op: str, case: str, up_to: float, until: date) -> Suggestion | None:
    """The entry that would allow this slow-down in this case, to be pasted into the op's file.

    up_to: the upper end of the measured interval, ratio, which is rounded up. None if no entry can allow it.
    """
    step = 0.5 if up_to <= 0.1 else 1.0 if up_to <= 1 else 10.0
    percent = math.ceil(100 * up_to / step - 1e-9) * step
    if percent > 100 * MOST or not is_pattern(case):
        return None
    why = f'"{say("say why, and where it was agreed on")}"'
    fields = f"case: {quote_text(case)}, up_to: {percent:g} %, why: {why}, until: {until.isoformat()}"
    return Suggestion(f"{thresholds.folder}/{op}.yaml", f"  - {{{fields}}}")
