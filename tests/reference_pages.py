"""The tables of docs/commands.md, docs/settings.md and docs/stored-files.md, made where the site is built.

Commands and options are those of `--help`. Settings, thresholds and fields have the words beside them in the code.
`python -m tests.reference_pages commands.md` prints a page with its tables.
"""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import typer.main
import yaml

from perfci.cli.app import app
from perfci.core.settings import FOLDERS, Settings
from perfci.device.fake import FakeSpec
from perfci.thresholds.case import CaseThresholds
from tests.field_tables import columns, fields
from tests.schemas import read_words

DOCS = Path(__file__).parents[1] / "docs"
TEMPLATE = Path(__file__).parents[1] / "perfci/extensions/setup/templates/thresholds.yaml"
EVERYWHERE = {"--help", "--project", "--lang"}  # the page says once that every command has them


def commands() -> str:
    """A section a command: what it does, how it is called, and a table of its options."""
    return "\n\n".join(_command(name, command) for name, command in _walk(typer.main.get_command(app), "perfci"))


def settings() -> str:
    """A row a key of `[tool.perfci]`."""
    words = read_words(Settings)
    fields = [field for field in dataclasses.fields(Settings) if field.name != "root"]
    rows = [
        (f"`{field.name}`", _default(field), _tidy(words[field.name]) or FOLDER_WORDS[field.name]) for field in fields
    ]
    return _table(("key", "default", "what"), rows)


def fake() -> str:
    """A row a key of `[tool.perfci.fake]`."""
    words = read_words(FakeSpec)
    rows = [(f"`{field.name}`", _default(field), _tidy(words[field.name])) for field in dataclasses.fields(FakeSpec)]
    return _table(("key", "default", "what"), rows)


def thresholds() -> str:
    """A row a key of a thresholds file, with its built-in value. Keys that share their words share a row."""
    values = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    words, rows, together = read_words(CaseThresholds), [], []
    for name in (field.name for field in dataclasses.fields(CaseThresholds)):
        together.append(name)
        if words[name]:
            shown = ", ".join(f"`{key}`" for key in together)
            rows.append((shown, _value(values.get(name, "any")), _tidy(words[name])))
            together = []
    assert not together, together
    return _table(("key", "built in", "what"), rows)


FOLDER_WORDS = dict(
    zip(
        FOLDERS,
        (
            "folder of the ops",
            "folder of accepted numbers",
            "folder of what is allowed",
            "folder that perfci writes into",
        ),
        strict=True,
    )
)

RUN, BASELINE = "run.schema.json", "baseline.schema.json"
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "commands.md": {"commands": commands},
    "settings.md": {"settings": settings, "thresholds": thresholds, "fake": fake},
    "stored-files.md": {
        "run": lambda: fields(RUN),
        "launches": lambda: fields("launches.schema.json"),
        "plan": lambda: fields("plan.schema.json", RUN),
        "baseline": lambda: fields(BASELINE, RUN),
        "history": lambda: fields("history.schema.json", RUN, BASELINE),
        "round": lambda: fields("round.schema.json", RUN),
        "answer": lambda: fields("answer.schema.json"),
        "columns": columns,
    },
}
"""Page -> its tables, by the names in the marks that they take the place of."""


def fill(text: str, tables: dict[str, Callable[[], str]]) -> str:
    """A page with its tables in the place of their marks."""
    return re.sub(r"<!-- table: (\w+) -->", lambda mark: tables[mark[1]](), text)


def _walk(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        if hasattr(command, "list_commands"):
            yield from _walk(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _command(name: str, command: Any) -> str:
    # With the settings that it is run with: a command keeps the help option that it is asked for first.
    context = click.Context(command, info_name=name, **command.context_settings)
    usage = " ".join(command.get_usage(context).partition(":")[2].split())
    rows = []
    for parameter in command.params:
        help_record = parameter.get_help_record(context)
        if help_record and not EVERYWHERE & set(parameter.opts):
            text, _, default = " ".join(help_record[1].split()).partition("[default: ")
            text = text.replace("[required]", "").strip()
            default = "required" if parameter.required else default.rstrip("]").replace("(", "").replace(")", "")
            option = help_record[0].replace("|", ", ").partition("list[")[0].replace("<str>", "")
            default = re.sub(r"(\S+)<=x<=(\S+)", r"\1 to \2", default).replace("x>=0", "0 or more")
            rows.append((f"`{option.translate({60: '', 62: ''}).strip()}`", _cell(text), _cell(default)))
    words = " ".join((command.help or "").split())
    return f"## {name}\n\n{words}\n\n```text\n{usage}\n```\n\n" + _table(("option", "what", "default"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.name in FOLDERS:
        return f"`{field.name}`"
    value = field.default if field.default is not dataclasses.MISSING else None
    return _value(value)


def _value(value: Any) -> str:
    if value is None or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return ", ".join(f"`{key}: {inner}`" for key, inner in value.items())
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return value if value == "any" else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _tidy(words: str) -> str:
    return re.sub(r"[.;:]? None: (any|none)$", "", words).replace("None:", "Empty:").replace("one of GATES, ", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


if __name__ == "__main__":
    for page in sys.argv[1:] or PAGES:
        print(fill((DOCS / page).read_text(encoding="utf-8"), PAGES[page]))
