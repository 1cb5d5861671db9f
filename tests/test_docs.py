"""The pages in docs/ are true: links lead somewhere, commands exist with these options, messages are perfci's own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from perfci.cli.app import app
from perfci.wording import catalogue

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app).commands


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page):
    return page.name


def commands(page: Path) -> list[list[str]]:
    """Every perfci command that the page shows, in a block or in a line, as its words."""
    text = text_of(page)
    shown = re.findall(r"^\$ (perfci .*)$", text, re.MULTILINE) + re.findall(r"(?<!`)`(perfci [^`]*)`(?!`)", text)
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        shown += re.findall(r"^(perfci .*)$", block, re.MULTILINE)
    words = [_words(command.split("&&")[0].split(" # ")[0]) for command in shown]
    return [found for found in words if len(found) > 1 and re.fullmatch(r"[a-z]+", found[1])]


def _words(command: str) -> list[str]:
    return shlex.split(re.sub(r"[\[\]()]", " ", command.replace("'", " ")))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose) if "://" not in target]

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_exists_with_the_options_that_are_shown(page):
    for _, name, *rest in commands(page):
        assert name in COMMANDS, f"perfci {name}"
        command, words = COMMANDS[name], iter(rest)
        while (inner := getattr(command, "commands", None)) and (word := next(words, None)) in inner:
            command = inner[word]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word.split("=")[0] for word in rest if word.startswith("--")} <= known, (name, rest)


def test_pages_show_commands_at_all():
    assert sum(len(commands(page)) for page in PAGES) > 50


@pytest.mark.parametrize(
    "heading", re.findall(r"^### `(.+)`$", text_of(ROOT / "docs/troubleshooting.md"), re.MULTILINE)
)
def test_every_message_under_trouble_is_one_that_perfci_says(heading):
    assert any(template.startswith(heading) for template in catalogue().values())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_page_is_reached_from_the_readme_or_from_another_page(page):
    if page.parent != ROOT / "docs":
        return
    others = [text_of(other) for other in PAGES if other != page]

    assert any(f"({page.name}" in other or f"docs/{page.name}" in other for other in others)
