"""Which other way of storing the same tensor would bring a figure under its limit, by what the run measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import StoredTensor

FIGURES = ("stored_p99", "clip_ratio", "divergence")
"""Thresholds of a stored tensor."""


@dataclass(frozen=True)
class Limit:
    """A figure and the most that is allowed of it."""

    figure: str
    """one of FIGURES"""
    value: float
    limit: float | None

    @property
    def beyond(self) -> bool:
        """Whether it is more than is allowed."""
        return self.limit is not None and self.value > self.limit


@dataclass(frozen=True)
class Advice:
    """What to change a stored tensor to."""

    figure: str
    """that is furthest beyond its limit"""
    to: StoredTensor | None
    """of the ways that keep every limit the one with the fewest bytes of scales, in the same dtype where there is any;
    None: none that was measured keeps them"""
    least: StoredTensor
    """the way with the least of the figure"""
    measured: int
    """ways of storing the tensor in this run"""


def value_of(found: StoredTensor, figure: str) -> float:
    """A figure of FIGURES; of no errors 0."""
    if figure == "stored_p99":
        return found.errors.p99_abs or 0.0
    return found.clip_ratio if figure == "clip_ratio" else found.divergence


def held(found: StoredTensor, limits: Mapping[str, float | None]) -> tuple[Limit, ...]:
    """Every figure against its limit."""
    return tuple(Limit(figure, value_of(found, figure), limits.get(figure)) for figure in FIGURES)


def worst(found: Sequence[Limit]) -> Limit | None:
    """Of the figures beyond their limits the one that is so by most times; None where none is."""
    beyond = [each for each in found if each.beyond]
    return max(beyond, key=lambda each: each.value / each.limit if each.limit else float("inf"), default=None)


def families(found: Sequence[StoredTensor]) -> Mapping[str, tuple[StoredTensor, ...]]:
    """Ways of storing the same tensor, together."""
    by_family: dict[str, tuple[StoredTensor, ...]] = {}
    for each in found:
        by_family[each.family] = (*by_family.get(each.family, ()), each)
    return by_family


def way(found: StoredTensor) -> str:
    """What of a tensor's id tells it from the others of its family: scaling=row,dtype=float8_e4m3fn."""
    shared = set(found.family.split(","))
    return ",".join(part for part in found.case.split(",") if part not in shared)


def advice(found: StoredTensor, ways: Sequence[StoredTensor], limits: Mapping[str, float | None]) -> Advice | None:
    """What to change a tensor to whose figures are beyond their limits.

    ways: all of its family, itself included; limits: figure -> the most that is allowed of this tensor, which the
    others are held to as well. None where nothing is beyond its limit, or only the divergence is: another way would be
    no nearer to what was accepted, but begin a history of its own.
    """
    without = {**limits, "divergence": None}
    first = worst(held(found, without))
    if first is None:
        return None
    fitting = [each for each in ways if worst(held(each, without)) is None]
    to = min(
        fitting,
        key=lambda each: (each.dtype != found.dtype, each.scale_bytes, value_of(each, "stored_p99")),
        default=None,
    )
    least = min(ways, key=lambda each: value_of(each, first.figure))
    return Advice(first.figure, to, least, len(ways))
