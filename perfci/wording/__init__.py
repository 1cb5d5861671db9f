"""Sentences for reasons: kinds with numbers in, words out. One catalogue a language: `<language>.yaml` beside this.

A template names the reason's facts: "{case} is {change:+%} slower". After the colon stands how a fact is written:
`us` a time in microseconds, `+%` a signed and `%` a plain percentage of a ratio, `size` bytes, `n` three significant
digits; without one the fact stands as it is, and a missing fact as "-". The fact `cause` is the kind of another
reason, whose sentence, worded with the same facts, takes its place.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from importlib import resources
from typing import Any

import yaml

from perfci import units
from perfci.model import Fact, Reason

CAUSE = "cause"

_WRITERS: dict[str, Callable[[float | None], str]] = {
    "us": units.time,
    "%": units.percent,
    "+%": functools.partial(units.percent, signed=True),
    "size": units.size,
    "n": lambda value: "-" if value is None else units.significant(value),
}


def sentence(reason: Reason, language: str = "en") -> str:
    """The reason as one sentence; a kind unknown to the catalogue is shown as it is, with its facts."""
    template = catalogue(language).get(reason.kind)
    if template is None:
        return f"{reason.kind}: " + ", ".join(f"{name}={value}" for name, value in reason.facts.items())
    facts = _Facts(reason.facts)
    if kind := facts.pop(CAUSE, None):
        facts[CAUSE] = sentence(Reason(str(kind), dict(facts)), language).rstrip(".")
    return _Formatter().vformat(template, (), facts)


def caused(kind: str, why: Reason, **facts: Fact) -> Reason:
    """A reason that another one stands behind: its template words that one at `{cause}`."""
    return Reason(kind, {**why.facts, **facts, CAUSE: why.kind})


@functools.cache
def catalogue(language: str = "en") -> dict[str, str]:
    """All templates of a language by kind."""
    text = resources.files(__name__).joinpath(f"{language}.yaml").read_text(encoding="utf-8")
    return {kind: " ".join(str(template).split()) for kind, template in yaml.safe_load(text).items()}


class _Facts(dict[str, Any]):
    def __missing__(self, name: str) -> None:
        return None


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "-"
        writer = _WRITERS.get(format_spec)
        return writer(value) if writer else str(format(value, format_spec))
