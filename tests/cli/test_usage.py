"""Errors about a command that was typed wrongly, in the reader's language."""

import re

import pytest

from perfci.cli.main import run

WRONG = {
    "check --device tpu": ["--device", "tpu", "fake"],
    "check --budget x": ["--budget"],
    "check --budget 0": ["--budget", "0.01"],
    "check --seed 1.5": ["--seed"],
    "check --seed 99999999999": ["2147483647"],
    "check --lang zh --seed": ["--seed"],
    "check --no-judge=1": ["--no-judge"],
    "check --devcie fake": ["--devcie", "--device"],
    "chek": ["chek", "check"],
    "bisect op": ["--against"],
    "thresholds relax": ["KEY"],
    "demo x": ["x"],
}
"""Command -> what is named of it"""

_NAMES = re.compile(r"[`'(][^`'()]*[`')]|perfci( [a-z]+)*|--?[a-z-]+|\b[A-Z.\[\] ]+\b|\b[a-z]\b|chek|check")


@pytest.mark.parametrize("command", WRONG)
def test_what_is_wrong_with_a_command_is_told_in_chinese(command, capsys):
    words = command.split() if "--lang" in command else [*command.split(), "--lang", "zh"]

    assert run(words) == 1
    told = capsys.readouterr().err

    assert all(name in told for name in WRONG[command]), told
    assert re.findall(r"[A-Za-z]{2,}", _NAMES.sub("", told)) == []


@pytest.mark.parametrize("command", ["check --device tpu", "check --seed 1.5", "bisect op", "demo x"])
def test_in_english_it_is_told_as_typer_does(command, capsys):
    assert run([*command.split(), "--lang", "en"]) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: perfci")
    assert lines[-1].startswith("Error: ")


def test_a_language_that_perfci_does_not_have_is_refused(capsys):
    assert run(["list", "--lang", "tlh"]) == 1

    assert "'tlh' is not one of 'en', 'zh'" in capsys.readouterr().err


def test_commands_that_are_printed_ask_for_the_language_too(tmp_path, capsys):
    assert run(["demo", "--keep", str(tmp_path / "demo"), "--lang", "zh"]) == 2

    printed = [line for line in capsys.readouterr().out.splitlines() if "perfci check" in line]
    assert len(printed) == 3
    assert all("--lang zh" in line for line in printed)
