"""What options and arguments of all commands have in common."""

import re
import typing

import typer.main

from perfci.cli.app import app

EVERYWHERE = {"--lang"}

NO_OPS = {"init", "demo", "mcp", "chain", "record", "ci note"}
"""Commands that are about no op, or about all of a run's"""

NO_CASES = {*NO_OPS, "new"} - {"chain"}
"""Commands that show no cases of a person's ops"""

NO_FORMAT = {"demo", "mcp", "report", "ci note"}
"""Commands without an answer for programs: what they write has a form already (`report --to`)"""


def walk():
    group = typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        inner = getattr(command, "commands", None)
        yield from ([(f"{name} {word}", one) for word, one in inner.items()] if inner else [(name, command)])


COMMANDS = dict(walk())


def list_options(command):
    return [one for one in command.params if one.param_type_name == "option" and one.opts[0] not in EVERYWHERE]


def list_words(name):
    """A command's arguments, then its options."""
    arguments = [one.metavar for one in COMMANDS[name].params if one.param_type_name == "argument"]
    return [*arguments, *(one.opts[0] for one in list_options(COMMANDS[name]))]


def test_an_option_has_one_name():
    further = {
        letter: one.opts[0] for command in COMMANDS.values() for one in list_options(command) for letter in one.opts[1:]
    }

    assert further == {"-q": "--quiet"}


def test_an_option_means_the_same_and_takes_the_same_wherever_it_is():
    """Its help may go on behind a colon, with what is true of one command."""
    meanings = {}
    for name, command in COMMANDS.items():
        hints = {**typing.get_type_hints(command.callback), "op": list[str]}
        for one in list_options(command):
            kinds = {kind for kind in typing.get_args(hints[one.name]) or () if kind is not type(None)}
            optional = type(None) in typing.get_args(hints[one.name])
            meaning = (
                re.split(r"[:.]", one.help)[0],
                one.rich_help_panel,
                str(kinds if optional else {hints[one.name]}),
            )
            meanings.setdefault(one.opts[0], {}).setdefault(meaning, []).append(name)

    assert {option: kinds for option, kinds in meanings.items() if len(kinds) > 1} == {}


def test_an_op_is_named_in_the_same_ways_by_every_command_that_takes_ops():
    for name in COMMANDS.keys() - NO_OPS:
        words = list_words(name)
        assert "--op" in words, name
        assert words[0] in {"OP", "OP...", "RUN", "RUN...", "KEY"}, name


def test_cases_and_the_format_can_be_chosen_wherever_cases_are_shown():
    assert {name for name in COMMANDS if "--case" not in list_words(name)} == NO_CASES
    assert {name for name in COMMANDS if "--format" not in list_words(name)} == NO_FORMAT


def test_the_other_side_of_a_comparison_has_one_name():
    others = ("--baseline", "--base", "--start", "--release", "GOOD", "BAD")
    assert [name for name in COMMANDS if set(others) & set(list_words(name))] == []
