"""Commands that perfci prints: found in a text, and parsed as they would be if they were typed."""

import re
import shlex

import typer.main

from perfci.cli import parsing
from perfci.cli.app import app

GROUP = typer.main.get_command(app)
PLACEHOLDERS = {"DATE": "2099-01-31", "I/N": "1/2", "KEY": "tau"}
"""What people put in the place of words in capitals, where any text would not do."""


def list_leaves(group=GROUP, name=""):
    """Every command that does something, under its whole name."""
    for word in group.list_commands(None):
        command = group.get_command(None, word)
        if hasattr(command, "list_commands"):
            yield from list_leaves(command, f"{word} ")
        else:
            yield f"{name}{word}", command


def find_commands(text: str) -> list[str]:
    """The commands in backticks, behind `Next: ` and behind a prompt."""
    commands = re.findall(r"`(perfci [^`]*)`|^(?:Next: |\u4e0b\u4e00\u6b65\uff1a|\$ )(perfci .*)$", text, re.MULTILINE)
    return [command for each in commands for command in re.split(r" (?:&&|;) ", "".join(each))]


def split(command: str) -> list[str]:
    """Its words, with something in the place of those in capitals."""
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]


def parse(command: str) -> None:
    """Parse it without running it. Raises for a command or an option that there is not, and for what does not fit."""
    _, *words = split(command)
    group = GROUP
    while hasattr(group, "list_commands"):
        group = group.get_command(None, words.pop(0))
        assert group is not None, command
    context = group.make_context("perfci", words)
    if modes := getattr(group.callback, "modes", None):
        parsing.refuse_together(context, modes)
