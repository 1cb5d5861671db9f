"""The CI/CD component's file, templates/check.yml at the top of perfci's repository, filled in without a GitLab.

As GitLab does it, an input's value is put into the file's text, so that comments stay. But here it may hold anything:
it is written as YAML of its own where it is a whole entry, and escaped where it is a part of a quoted one.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

Value = str | int | float | bool | list[str]
"""Of an input."""

_WHOLE = re.compile(r"""^(?P<start>\s*(?:- )?[\w-]+: )(?P<quote>"?)\$\[\[ inputs\.(?P<name>\w+) \]\](?P=quote)$""")
_PART = re.compile(r"\$\[\[ inputs\.(\w+) \]\]")
_PLAIN = re.compile(r"(?:\w|\.(?!\.))[\w./@+=<>-]*(?:[ :][\w./@+=<>-]+)*", re.ASCII)
_HEADER_ENDS = "\n---\n"


def inputs() -> Mapping[str, Mapping[str, Any]]:
    """The inputs by name, each with its description and default."""
    header: dict[str, Any] = yaml.safe_load(_text().partition(_HEADER_ENDS)[0])
    found: dict[str, dict[str, Any]] = header["spec"]["inputs"]
    return found


def filled(values: Mapping[str, Value]) -> str:
    """The jobs with these values of inputs, and the defaults of the others; without the header. KeyError for others."""
    known = {name: each["default"] for name, each in inputs().items()}
    if unknown := values.keys() - known.keys():
        raise KeyError(*sorted(unknown))
    body = _text().partition(_HEADER_ENDS)[2]
    return "".join(f"{_line(line, {**known, **values})}\n" for line in body.splitlines())


@functools.cache
def jobs() -> frozenset[str]:
    """Names of the jobs, the hidden ones too, as they are without a suffix."""
    return frozenset(yaml.safe_load(filled({})))


def _text() -> str:
    return resources.files("perfci.scaffold").joinpath("templates", "init", "jobs.yml").read_text(encoding="utf-8")


def _line(line: str, values: Mapping[str, Value]) -> str:
    whole = _WHOLE.match(line)
    if whole is None:
        return _PART.sub(lambda found: _inside(values[found[1]]), line)
    value = values[whole["name"]]
    return whole["start"] + _yaml(_told(value) if whole["quote"] else value)


def _yaml(value: Value) -> str:
    """A value in one line; without quotes where it means the same."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _inside(value: Value) -> str:
    """As a part of a text in double quotes, which stands around all but names."""
    return json.dumps(_told(value), ensure_ascii=False)[1:-1]


def _told(value: Value) -> str:
    """As GitLab writes it into a text."""
    return value if isinstance(value, str) else json.dumps(value)
