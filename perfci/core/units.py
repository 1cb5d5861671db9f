"""Numbers as people read them: three significant digits and a unit."""

import math
from collections.abc import Sequence


def time(us: float | None, digits: int = 0) -> str:
    """Microseconds in the unit that fits, with so many digits more than usual.

    >>> time(4.93), time(812.3), time(1530), time(2.5e6)
    ('4.93 us', '812 us', '1.53 ms', '2.50 s')
    """
    if us is None:
        return "-"
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if abs(us) >= scale:
            return f"{significant(us / scale, 3 + digits)} {unit}"
    return f"{significant(us, 3 + digits)} us"


def percent(ratio: float | None, digits: int = 0, *, signed: bool = False) -> str:
    """A ratio as per cent, with so many digits more than usual. Nothing has no sign.

    >>> percent(0.0213), percent(0.04, signed=True), percent(-0.1234, signed=True), percent(-0.0001, signed=True)
    ('2.1 %', '+4.0 %', '-12.3 %', '0.0 %')
    """
    if ratio is None:
        return "-"
    text = f"{100 * ratio:{'+' if signed else ''}.{1 + digits}f} %"
    return text if text.strip("+-0. %") else text.lstrip("+-")


def size(count: float | None) -> str:
    """Bytes in binary units.

    >>> size(512), size(268435456)
    ('512 B', '256 MiB')
    """
    if count is None:
        return "-"
    steps = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(int(math.log(count, 1024)), len(steps) - 1) if count >= 1 else 0
    return f"{significant(count / 1024**step)} {steps[step]}" if step else f"{count:.0f} B"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent from 0.001 to 999999.

    >>> significant(4.9312), significant(812.34), significant(0.0123456), significant(1e-9), significant(256.0)
    ('4.93', '812', '0.0123', '1.00e-09', '256')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    # of the rounded value: 9.999 is 10.0
    places = max(digits - 1 - int(f"{value:.{digits - 1}e}".partition("e")[2]), 0)
    return f"{value:.{places}f}"


def name_some(names: Sequence[str], most: int = 3) -> str:
    """Returns the first of several names.

    >>> name_some(["a", "b"]), name_some("abcd")
    ('a; b', 'a; b; c; ...')
    """
    return "; ".join(names[:most]) + ("; ..." if len(names) > most else "")
