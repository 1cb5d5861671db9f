"""The CI/CD component's file, templates/check.yml at the top of perfci's repository, filled in without a GitLab.

As GitLab does it, an input's value is put into the file's text, so that comments stay. Here it may hold anything: it
is written as YAML of its own if it is a whole entry, and escaped if it is a part of a quoted one.
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


def _parts() -> tuple[str, str]:
    """Header and jobs."""
    file = resources.files("perfci.scaffold").joinpath("templates", "init", "jobs.yml")
    header, _, body = file.read_text(encoding="utf-8").partition("\n---\n")
    return header, body


def inputs() -> Mapping[str, Mapping[str, Any]]:
    """The inputs by name, each with its description and default."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(_parts()[0])["spec"]["inputs"]
    return found


def fill(values: Mapping[str, Value]) -> str:
    """The jobs with these values of inputs, and the defaults of the others, without the header. KeyError for others."""
    known = {name: each["default"] for name, each in inputs().items()}
    if unknown := values.keys() - known.keys():
        raise KeyError(*sorted(unknown))
    every = {**known, **values}

    def put_in(found: re.Match[str]) -> str:
        """As a part of a text in double quotes, which stands around all but names."""
        return json.dumps(_as_text(every[found[1]]), ensure_ascii=False)[1:-1]

    lines = []
    for line in _parts()[1].splitlines():
        if whole := _WHOLE.match(line):
            value = every[whole["name"]]
            lines.append(whole["start"] + _as_yaml(_as_text(value) if whole["quote"] else value))
        else:
            lines.append(_PART.sub(put_in, line))
    return "".join(f"{line}\n" for line in lines)


@functools.cache
def jobs() -> frozenset[str]:
    """Names of the jobs, the hidden ones too, as they are without a suffix."""
    return frozenset(yaml.safe_load(fill({})))


def _as_yaml(value: Value) -> str:
    """A value in one line, without quotes if it means the same."""
    if isinstance(value, list):
        return f"[{', '.join(map(_as_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _as_text(value: Value) -> str:
    """As GitLab writes it into a text."""
    return value if isinstance(value, str) else json.dumps(value)
