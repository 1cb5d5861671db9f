"""A trend as small as a line of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from perfci.core.wording import say
from perfci.report.html.markup import Html

WIDE, HIGH = 120, 28

LEAST = 0.02
"""A trend shows at least this share on either side of its median, so that small noise looks small."""


def spark(values: Sequence[float | None], marks: Sequence[int] = (), now: float | None = None) -> Html:
    """A trend with its ends in words; nothing of no values.

    values: ratios - 1 of their median, one a run. marks: places of runs before which a line parts them. now: that of
    a run that stands behind the others and is none of them.
    """
    known = [value for value in values if value is not None]
    if not known:
        return Html("")
    row = (*values, now) if now is not None else tuple(values)
    seen = [*known, *([now] if now is not None else [])]
    low, high = min(*seen, -LEAST), max(*seen, LEAST)
    points = [
        None if value is None else (_x(place, len(row)), 2 + (HIGH - 4) * (high - value) / (high - low))
        for place, value in enumerate(row)
    ]
    line = points if now is None else points[:-1]
    end = next(point for point in reversed(points) if point)
    uprights = "".join(f"M{_x(place - 0.5, len(row)):.1f} 0V{HIGH}" for place in marks)
    return Html(
        f'<svg class="spark" role="img" viewBox="0 0 {WIDE} {HIGH}"><title>{escape(_ends(known))}</title>'
        + (f'<path class="up" d="{uprights}"/>' if uprights else "")
        + f'<path class="way" d="{"".join(_path(line))}"/>'
        + f'<path class="{"end" if now is None else "now"}" d="M{end[0]:.1f} {end[1]:.1f}h0"/></svg>'
    )


def _x(place: float, count: int) -> float:
    return 3 + (WIDE - 6) * (place / (count - 1) if count > 1 else 0.5)


def _path(points: Sequence[tuple[float, float] | None]) -> Iterator[str]:
    """A line through neighbours; a point of its own where there are none."""
    before = None
    for place, point in enumerate(points):
        if point:
            alone = before is None and (place + 1 == len(points) or points[place + 1] is None)
            yield f"{'L' if before else 'M'}{point[0]:.1f} {point[1]:.1f}" + ("h0" if alone else "")
        before = point


def _ends(known: Sequence[float]) -> str:
    return say(
        "{count} runs, from {low:+%} to {high:+%} of their median", count=len(known), low=min(known), high=max(known)
    )
