"""Words in the reader's language: sentences for reasons, and every other text that people see.

A reason is a kind with numbers. Its sentences stand in one catalogue a language, `<language>.yaml` beside this. Other
texts are written in English where they are said, `say("{count} blocks", count=n)`, and stand in another language under
that English text in `<language>.phrases.yaml`; a text that has none is said in English.

A template names its facts: "{case} is {change:+%} slower". After the colon stands how a fact is written: `us` a time in
microseconds, `+%` a signed and `%` a plain percentage of a ratio, `size` bytes, `n` three significant digits, `sh` a
word in a command that people copy into a shell, `say` a text that was given as one by `as_fact`, `case|cases` a count
with its noun: "1 case", "3 cases". Without one the fact stands as it is, and a missing fact as "-". Numbers that are
compared (`COMPARED`) get more digits until one sees that they differ. The fact `cause` is the kind of another reason,
whose sentence, worded with the same facts, takes its place.

Which language is spoken is the program's choice, made once where it starts: `speak("zh")`.
"""

from __future__ import annotations

import functools
import re
import shlex
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from perfci.core import units
from perfci.core.model import Fact, Reason

LANGUAGES = ("en", "zh")
ENGLISH = "en"
CAUSE = "cause"

COMPARED = (
    ("got", "expected"),
    ("before", "after"),
    ("usual_before", "usual_after"),
    ("kernel_us", "baseline_us"),
    ("kernel_us", "base_us"),
    ("change", "margin"),
    ("change", "tau"),
    ("change", "limit"),
    ("change", "allowed"),
    ("error", "limit"),
    ("value", "limit"),
    ("seconds", "limit"),
    ("share", "target"),
    ("speedup", "target"),
)
"""Facts that are held against each other in a sentence."""

_WRITERS: dict[str, Callable[[Any, int], str]] = {
    "us": units.time,
    "%": units.percent,
    "+%": functools.partial(units.percent, signed=True),
    "n": lambda value, digits: units.significant(value, 3 + digits),
}
"""How a number is written with so many digits more than usual."""

_MOST_DIGITS = 14
"""Digits more than usual: with three as usual, these tell any two numbers apart."""

_SPOKEN: ContextVar[str] = ContextVar("language", default=ENGLISH)


def speak(language: str) -> None:
    """From here on everything is worded in this one of LANGUAGES."""
    _SPOKEN.set(language)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within, everything is worded in this one of LANGUAGES."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def spoken() -> str:
    """The language that is worded in now."""
    return _SPOKEN.get()


def sentence(reason: Reason) -> str:
    """The reason as one sentence; a kind unknown to the catalogue is shown as it is, with its facts."""
    template = catalogue(spoken()).get(reason.kind) or catalogue(ENGLISH).get(reason.kind)
    if template is None:
        return f"{reason.kind}: " + ", ".join(f"{name}={value}" for name, value in reason.facts.items())
    facts: dict[str, Fact] = dict(reason.facts)
    if kind := facts.pop(CAUSE, None):
        facts[CAUSE] = sentence(Reason(str(kind), dict(facts))).rstrip(".。")
    return fill(template, facts)


def because(kind: str, why: Reason, **facts: Fact) -> Reason:
    """A reason that another one stands behind: its template words that one at `{cause}`."""
    return Reason(kind, {**why.facts, **facts, CAUSE: why.kind})


def say(english: str, **facts: Fact) -> str:
    """A text that is no reason's, in the language that is spoken. Its facts are written as a reason's are.

    >>> say("{count} blocks of {time:us}", count=4, time=12.34)
    '4 blocks of 12.3 us'
    """
    return fill(phrases(spoken()).get(english, english), facts)


def as_fact(english: str) -> str:
    """A text that a reason carries as a fact `{name:say}`: it is stored in English, and worded with the reason."""
    return english


@functools.cache
def catalogue(language: str = ENGLISH) -> dict[str, str]:
    """All sentences' templates of a language by kind."""
    return _read(f"{language}.yaml")


@functools.cache
def phrases(language: str) -> dict[str, str]:
    """All other texts of a language by their English. None for English itself."""
    return {} if language == ENGLISH else _read(f"{language}.phrases.yaml")


def _read(name: str) -> dict[str, str]:
    from importlib import resources  # neither for `perfci --help`, nor in a worker that says nothing

    import yaml

    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    # libyaml reads a catalogue in 7 ms, PyYAML's own loader, for where that is missing, in 130 ms.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    found: dict[str, object] = loader.get_single_data() or {}
    loader.dispose()
    return {key: " ".join(str(template).split()) for key, template in found.items()}


_EDGE, _CHINESE = "\0", "[\u2e80-\u9fff\uff00-\uffef]"
_BETWEEN = re.compile(f"(?<={_CHINESE}) {_EDGE}|{_EDGE} (?={_CHINESE})|{_EDGE}")


def fill(template: str, facts: Mapping[str, Any]) -> str:
    """The template with its facts written.

    A template's blanks part Chinese from Latin: beside a fact that is worded in Chinese they are left out.
    """
    parts = []
    for text, name, spec, _ in string.Formatter().parse(template):
        parts.append(text)
        if name is not None:
            fact = _write(name, spec or "", facts)
            parts.append(re.sub(f"^(?={_CHINESE})|(?<={_CHINESE})$", _EDGE, fact))
    return _BETWEEN.sub("", "".join(parts))


_TEXTS: dict[str, Callable[[Any], str]] = {
    "sh": lambda value: shlex.quote(str(value)),
    "say": lambda value: phrases(spoken()).get(str(value), str(value)),
    "size": units.size,
}
"""How all other facts are written."""


def _write(name: str, spec: str, facts: Mapping[str, Any]) -> str:
    value = facts.get(name)
    if value is None:
        return "-"
    if "|" in spec:
        one, many = spec.split("|")
        return f"{value} {one if value == 1 else many}"
    write = _WRITERS.get(spec)
    if write is None:
        return _TEXTS.get(spec, str)(value)
    others = [facts.get(other) for pair in COMPARED if name in pair for other in pair if other != name]
    different = [other for other in others if isinstance(other, int | float) and other != value]
    for digits in range(_MOST_DIGITS):
        text = write(value, digits)
        if all(write(other, digits).lstrip("+") != text.lstrip("+") for other in different):
            return text
    return str(value)
