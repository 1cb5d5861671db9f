"""Every command is in the help with its defaults, and options that make no sense together are refused."""

import re
from typing import get_args

import pytest
import typer.main

from perfci.cli.app import GROUPS, app
from perfci.cli.main import run
from perfci.cli.options import DeviceKind, DuelKind
from perfci.cli.parsing import CHOSEN, COMPARED, CONTEXT, MEASURED, OTHERWISE, SHOWN
from perfci.core.model import DuelWhat
from perfci.device import KINDS

GROUP = typer.main.get_command(app)
COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}
LEAVES = {
    (name, *inner): command
    for name, shown in COMMANDS.items()
    for inner, command in ([((word,), one) for word, one in getattr(shown, "commands", {}).items()] or [((), shown)])
}


def options():
    for path, command in LEAVES.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and "--help" not in parameter.opts:
                yield path, parameter.opts[0]


@pytest.fixture
def help_of(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")

    def ask(*path):
        assert run([*path, "--help"]) == 0
        return capsys.readouterr().out

    return ask


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_names_arguments_and_defaults_in_words_and_no_types_of_python(path, help_of):
    shown = help_of(*path)

    assert [odd for odd in ("list[", "<str>", "<path>", "range>", "{", "......", "default: (") if odd in shown] == []
    unsaid = {"off", "none", "as OP"} if path == ("check",) else set()  # what goes without saying among so many
    for option in [
        one.opts[0] for one in LEAVES[path].params if one.opts[0][0] == "-" and one.show_default not in unsaid
    ]:
        help_text = " ".join(re.split(r"\n  -", shown.partition(f" {option} ")[2])[0].split())
        assert re.search(r"\[default: .+\]|\[required\]", help_text), (option, help_text)


def test_the_help_of_check_is_one_screen_with_examples_first_and_options_in_groups(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["check", "--help"]) == 0
    shown = capsys.readouterr().out

    assert len(shown.splitlines()) <= 60
    headings = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert headings == ["Examples", CHOSEN, COMPARED, MEASURED, OTHERWISE, SHOWN]
    listed = [option for path, option in options() if path == ("check",)]
    assert [
        option for option in listed if len(re.findall(rf"^  (?:-\w, )?{option}(?![\w-])", shown, re.MULTILINE)) != 1
    ] == []


def test_examples_of_the_help_are_commands_that_are_understood():
    examples = [
        (path, example) for path, command in LEAVES.items() for example in getattr(command.callback, "examples", ())
    ]
    assert len(examples) == 6

    for path, example in examples:
        program, *words = example.split("  # ")[0].split()
        assert (program, tuple(words[: len(path)])) == ("perfci", path)
        LEAVES[path].make_context("check", words[len(path) :], **CONTEXT)


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ("help check", "check --help"),
        ("help ci plan", "ci plan --help"),
        ("help ci", "ci --help"),
        ("help", "--help"),
        ("-V", "--version"),
    ],
)
def test_what_people_try_first_works(arguments, same, capsys):
    answers = []
    for words_given in (arguments, same):
        assert run(words_given.split()) == 0
        answers.append(capsys.readouterr().out)

    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("chek", "There is no command chek: did you mean check?"),
        ("help chek", "There is no command chek: did you mean check?"),
        ("help ci pln", "There is no command pln: did you mean plan?"),
        ("thresholds shwo", "There is no command shwo: did you mean show?"),
        ("run", "There is no command run: name one of list, demo, init, new"),
        ("ci run", "There is no command run: name one of plan, merge, note."),
        ("check --opp relu", "There is no option --opp: did you mean --op?"),
        ("--versoin", "There is no option --versoin: did you mean --version?"),
        ("show --zzz", "There is no option --zzz: `perfci show --help` lists those that there are."),
        ("ci plan --zzz", "There is no option --zzz: `perfci ci plan --help` lists"),
        ("check --static", "There is no option --static of perfci check: see `perfci static --help`."),
        ("check --target sm_80", "There is no option --target of perfci check: see `perfci static --help`."),
        ("list --coverage", "There is no option --coverage of perfci list: see `perfci static --help`."),
        ("check --calls 5", "There is no option --calls of perfci check: see `perfci soak --help`."),
    ],
)
def test_a_misspelt_word_is_refused_and_the_nearest_one_is_named(arguments, said, capsys):
    assert run(arguments.split()) == 1

    seen = capsys.readouterr()
    assert (seen.out, seen.err.count("\n")) == ("", 1) and seen.err.startswith(f"perfci: {said}")


def test_there_are_at_most_24_commands_in_five_groups_with_an_uncut_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out

    assert len(COMMANDS) <= 24
    assert [heading for heading in GROUPS if f"\n{heading}:\n" in shown] == list(GROUPS) and len(GROUPS) == 5
    assert max(map(len, shown.splitlines())) <= 80
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", shown, re.MULTILINE), name
    assert "2 the gate failed" in shown


def test_a_choice_that_there_is_not_is_named_without_the_words_of_a_library(capsys):
    assert run(["check", "--device", "gpu"]) == 1

    assert "'--device': 'gpu' is not one of 'auto', 'cuda'" in capsys.readouterr().err


def test_devices_and_duels_are_those_that_there_are():
    assert get_args(DeviceKind) == KINDS
    assert list(get_args(DuelKind)) == [kind.value for kind in DuelWhat]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("static --coverage --case x", "--coverage does not go with --case"),
        ("check --no-judge --retry r", "--no-judge does not go with --retry"),
        ("check --retry reports relu", "--retry does not go with OP..."),
        ("check --retry reports --op relu", "--retry does not go with OP..."),
        ("check --no-judge --strict", "--no-judge does not go with --strict"),
        ("check --plan p --shard 1/2 --budget 1.0", "--plan does not go with --budget"),
        ("check --plan p --shard 1/2 --confirm r", "--confirm does not go with --shard"),
        ("check --shard 1/2", "--shard goes only with --plan"),
        ("check --plan p", "--plan goes only with --shard I/N"),
        ("check --confirm r", "--confirm goes only with --plan"),
        ("check -q --verbose", "--quiet does not go with --verbose"),
        ("check --out x", "--out goes only with --retry or --against-release"),
        ("accept r --why x", "--why goes only with --slower or --environment"),
        ("accept r --propose", "--propose does not go with RUN..."),
        ("accept r --environment --case x", "--environment does not go with --case"),
        ("history --boards --strict", "--boards does not go with --strict"),
        ("history --strict", "--strict goes only with --drift"),
        ("report --to csv --against b", "--to csv does not go with --against"),
        ("report r --verdicts", "--verdicts goes only with --to csv or --to parquet"),
        ("doctor --seed 3", "--seed goes only with --selftest"),
        ("new x --from a:b --fake", "--from does not go with --fake"),
        ("new x --from a:b --from-library .", "--from does not go with --from-library"),
        ("new x --reference torch.add", "--reference goes only with --from"),
        ("new x --tests a.py", "--tests goes only with --from or --from-library"),
    ],
)
def test_options_that_make_no_sense_together_are_refused_in_one_sentence(arguments, words, capsys, tmp_path):
    assert run([*arguments.split(), "--project", str(tmp_path)]) == 1

    seen = capsys.readouterr()
    assert (seen.out, seen.err.count("\n")) == ("", 1)
    assert seen.err.startswith(f"perfci: {words}")


@pytest.mark.parametrize("command", [["check"], ["check", "--no-judge"], ["doctor", "--selftest"]])
@pytest.mark.parametrize("devices", ["", "two", "0 1", "0,", "-1"])
def test_what_chooses_no_devices_is_a_usage_error(capsys, command, devices):
    assert run([*command, "--devices", devices]) == 1
    assert "--devices" in capsys.readouterr().err


def test_a_report_names_the_forms_that_it_knows(capsys):
    assert run(["report", "--to", "md,pdf"]) == 1
    assert "cannot take pdf here" in capsys.readouterr().err
