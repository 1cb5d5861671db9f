"""The table of commands and their options: one that is added or taken away is a decision, and is made here too."""

import re
import typing

import pytest
import typer.main

from perfci.cli.app import app

EVERYWHERE = {"--lang"}

TABLE = {
    "init": "--owners --install --dry-run --format --project",
    "new": "OP --op --from --reference --from-library --tests --copy --backward --fake --format --project",
    "list": "OP... --op --backend --case --device --format --project",
    "demo": "--keep",
    "doctor": "OP... --op --selftest --case --device --budget --seed --timer --format --project",
    "check": (
        "OP... --op --backend --case --lf --watch --thorough --sanitize --quiet --no-judge --retry --against-release"
        " --plan --shard --confirm --device --budget --seed --suite --timer --against --duel --base-python --toolchain"
        " --devices --on --deadline --threshold --out --strict --html --timings --verbose --report-back --format"
        " --project"
    ),
    "compare": "RUN --against --op --case --strict --format --project",
    "show": "RUN --op --case --format --project",
    "report": "RUN... --to --against --op --case --out --store --verdicts --project",
    "bisect": "OP --op --against --bad --case --device --budget --seed --timer --first-parent --format --project",
    "static": (
        "OP... --op --case --lf --changed --watch --target --coverage --against --base-python --toolchain --threshold"
        " --strict --quiet --format --project"
    ),
    "chain": "NAME... --case --device --seed --format --project",
    "ranks": (
        "OP... --op --size --case --against --duel --seed --accuracy --accept --device --devices --format --project"
    ),
    "soak": "OP... --op --case --calls --decay-limit --device --seed --timer --format --project",
    "brief": "OP --op --case --device --rounds --model --format --project",
    "record": "COMMAND... --as --after --also --read --export --format --project",
    "try": "OP --op --case --why --expect --advice --against --device --seed --format --project",
    "profile": "OP --op --case --device --seed --format --project",
    "tune": "OP --op --case --device --budget --write --seed --timer --format --project",
    "mcp": "--device --device-time --project",
    "accept": (
        "RUN... --op --case --dirty --slower --why --environment --write --include --propose --artifacts"
        " --branch --against --dry-run --format --project"
    ),
    "history": (
        "OP... --op --case --device-key --last --drift --boards --store --run --blocks --strict --format --project"
    ),
    "thresholds show": "OP... --op --case --device-key --key --format --project",
    "thresholds tighten": "OP... --op --case --device-key --write --format --project",
    "thresholds relax": "KEY --op --why --until --case --device-key --value --format --project",
    "ci plan": (
        "OP... --op --backend --case --device --budget --seed --suite --timer --against --duel --shards --balance --out"
        " --all --threshold --format --project"
    ),
    "ci merge": (
        "RUN... --plan --out --op --backend --case --device --suite --against --duel --threshold --strict --html"
        " --format --project"
    ),
    "ci note": "RUN --report --name --dry-run --project",
}
"""Command -> its arguments and options"""

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


@pytest.mark.parametrize("name", sorted({*COMMANDS, *TABLE}))
def test_a_command_has_the_options_that_the_table_says(name):
    arguments = [one.metavar for one in COMMANDS[name].params if one.param_type_name == "argument"]
    options = [one.opts[0] for one in list_options(COMMANDS[name])]

    assert sorted([*arguments, *options]) == sorted(TABLE[name].split())
    further = {letter: one.opts[0] for one in list_options(COMMANDS[name]) for letter in one.opts[1:]}
    assert further == ({"-q": "--quiet"} if name in {"check", "static"} else {})  # one name each


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
        words = TABLE[name].split()
        assert "--op" in words, name
        assert words[0] in {"OP", "OP...", "RUN", "RUN...", "KEY"}, name


def test_cases_and_the_format_can_be_chosen_wherever_cases_are_shown():
    assert {name for name in COMMANDS if "--case" not in TABLE[name].split()} == NO_CASES
    assert {name for name in COMMANDS if "--format" not in TABLE[name].split()} == NO_FORMAT


def test_the_other_side_of_a_comparison_has_one_name():
    others = ("--baseline", "--base", "--start", "--release", "GOOD", "BAD")
    assert [name for name, words in TABLE.items() if set(others) & set(words.split())] == []
