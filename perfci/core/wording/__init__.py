"""Words in the reader's language: sentences of reasons, and every other text that people read.

A reason is a kind with numbers, and `<language>.yaml` has the sentence of each kind. Other texts are written in English
in the code, and `<language>.phrases.yaml` has them in another language under their English. A text that is missing is
shown in English. An extension has such files in its folder `wording`. A template names its facts, "{case} is
{change:+%} slower", with their format after the colon:

us            a time in microseconds
% and +%      a ratio as a percentage, +% with its sign
size          bytes
n             three significant digits, of a whole number all
sh            a word of a command that people copy into a shell
say           a text that was given by `as_fact`
stage         a stage of a worker, with its case: in English as it is stored
case|cases    a count with its noun: "1 case", "3 cases"

A missing fact is "-". The fact `cause` is the kind of another reason: its sentence with the same facts is shown.
"""

import functools
import re
import shlex
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from perfci.core import commands, extensions, stages, units
from perfci.core.extensions import NAMES
from perfci.core.model import CAUSE, Fact, Reason

LANGUAGES = ("en", "zh")
ENGLISH = "en"

COMPARED = (
    ("got", "expected"), ("before", "after"), ("usual_before", "usual_after"), ("kernel_us", "baseline_us"),
    ("kernel_us", "base_us"), ("change", "margin"), ("change", "tau"), ("change", "limit"), ("change", "allowed"),
    ("error", "limit"), ("value", "limit"), ("seconds", "limit"), ("share", "target"), ("speedup", "target"),
    ("step_low", "step_high"),
)  # fmt: skip
"""Facts that one sentence compares. They get more digits until they differ visibly."""

_WRITERS: dict[str, Callable[[Any, int], str]] = {
    "us": units.time,
    "%": units.percent,
    "+%": functools.partial(units.percent, signed=True),
    "n": lambda value, digits: str(value) if isinstance(value, int) else units.significant(value, 3 + digits),
}
"""Writers of numbers with so many digits more than usual."""

_MOST_DIGITS = 14  # Most digits more than usual. With the three usual ones they distinguish any two numbers.

_BLANK = re.compile("(?<=[\u3000-\u303f\uff00-\uff5f]) ")  # behind a full-width mark

_SPOKEN: ContextVar[str] = ContextVar("language", default=ENGLISH)


def speak(language: str) -> None:
    """Sets the language of everything from here on, one of LANGUAGES."""
    _SPOKEN.set(language)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Sets the language of everything within, one of LANGUAGES."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def spoken() -> str:
    """Returns the language in use."""
    return _SPOKEN.get()


def sentence(reason: Reason) -> str:
    """Returns the reason as one sentence. An unknown kind is shown as it is, with its facts."""
    template = catalogue(spoken()).get(reason.kind) or catalogue(ENGLISH).get(reason.kind)
    if template is None:
        return f"{reason.kind}: " + ", ".join(f"{name}={value}" for name, value in reason.facts.items())
    facts: dict[str, Fact] = dict(reason.facts)
    if kind := facts.pop(CAUSE, None):
        facts[CAUSE] = sentence(Reason(str(kind), dict(facts))).rstrip(".。")
    return fill(template, facts)


def join(sentences: Iterable[str]) -> str:
    """Returns sentences one behind the other. After a mark of Chinese there is no blank.

    >>> join(["One.", "Two."])
    'One. Two.'
    """
    return _BLANK.sub("", " ".join(filter(None, sentences)))


def say(english: str, **facts: Fact) -> str:
    """Returns a text in the reader's language. Its facts are written as a reason's are.

    >>> say("{count} blocks of {time:us}", count=4, time=12.34)
    '4 blocks of 12.3 us'
    """
    return fill(phrases(spoken()).get(english, english), facts)


@functools.cache
def catalogue(language: str = ENGLISH) -> dict[str, str]:
    """Returns the templates of a language's sentences by kind."""
    return read_texts(f"{language}.yaml")


@functools.cache
def phrases(language: str) -> dict[str, str]:
    """Returns the other texts of a language by their English. Nothing for English itself."""
    return {} if language == ENGLISH else read_texts(f"{language}.phrases.yaml")


def read_texts(name: str) -> dict[str, str]:
    """Returns all of a catalogue's file: the gate's, and those of extensions."""
    from importlib import resources  # not for `perfci --help`

    folders = (resources.files(f"perfci.extensions.{extension}").joinpath("wording") for extension in NAMES)
    texts: dict[str, str] = {}
    for file in (folder.joinpath(name) for folder in (resources.files(__name__), *folders)):
        if file.is_file():
            texts |= _read(file.read_text(encoding="utf-8"))
    return texts


def _read(text: str) -> dict[str, str]:
    import yaml

    # libyaml reads a catalogue in 7 ms, PyYAML's loader in 130 ms.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    entries: dict[str, object] = loader.get_single_data() or {}
    loader.dispose()
    return {key: " ".join(str(template).split()) for key, template in entries.items()}


_CHINESE = "[\u2e80-\u9fff\uff00-\uffef]"


def fill(template: str, facts: Mapping[str, Any]) -> str:
    """Returns the template with its facts. Between two Chinese words its blanks are left out.

    What stands between backticks is a command, a name or a file. A command is completed for its reader.
    """
    texts = []
    for at, piece in enumerate(template.split("`")):
        parts = []
        for text, name, spec, _ in string.Formatter().parse(piece):
            parts += [text, _write(name, spec or "", facts) if name is not None else ""]
        texts.append(commands.complete("".join(parts)) if at % 2 else "".join(parts))
    return _BLANK.sub("", re.sub(f"(?<={_CHINESE}) (?={_CHINESE})", "", "`".join(texts)))


def translate(english: str) -> str:
    """Returns a text that was given by `as_fact` in the reader's language."""
    return phrases(spoken()).get(english, english)


def describe_stage(stage: str) -> str:
    """Returns what a process is doing at a stage, one of the gate's or of an extension's."""
    if stage in stages.STAGES:
        return translate(stages.STAGES[stage])
    texts = (describe() for describe in extensions.provided("stages"))
    return next((text[stage] for text in texts if stage in text), stage)


def _write_stage(stored: str) -> str:
    if spoken() == ENGLISH:
        return stored
    stage, _, case = stored.replace(stages.OF_BASE, "").partition(" of ")
    text = describe_stage(stage)
    return fill(translate(stages.PLACE), {"stage": text, "case": case}) if case else text


_TEXTS: dict[str, Callable[[Any], str]] = {
    "sh": lambda value: shlex.quote(str(value)),
    "say": lambda value: translate(str(value)),
    "size": units.size,
    "stage": lambda value: _write_stage(str(value)),
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
    if not isinstance(value, int | float) and (write or spec == "size"):  # of a reason that an op has made up
        return str(value)
    if write is None:
        return _TEXTS.get(spec, str)(value)
    others = [facts.get(other) for pair in COMPARED if name in pair for other in pair if other != name]
    different = [other for other in others if isinstance(other, int | float) and other != value]
    for digits in range(_MOST_DIGITS):
        text = write(value, digits)
        if all(write(other, digits).lstrip("+") != text.lstrip("+") for other in different):
            return text
    return str(value)
