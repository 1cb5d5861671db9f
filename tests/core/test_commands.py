"""Commands that are printed work as they are typed, and are the same in every language."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.core import commands
from perfci.core.commands import Reader, complete, reading, write
from perfci.core.wording import ENGLISH, LANGUAGES, catalogue, fill, phrases
from tests.core.test_wording import said
from tests.decision_examples import plan, run
from tests.typed import find_commands, list_leaves, parse

OTHERS = [language for language in LANGUAGES if language != ENGLISH]
LEAVES = dict(list_leaves())
NAMES = sorted({name.split()[0] for name in LEAVES})
BARE = re.compile(rf"\bperfci (?:{'|'.join(NAMES)})\b(?! 的)")
SAMPLES = {"bad": "HEAD", "key": "tau", "op": "soft max", "good": "HEAD~1", "value": "3 %", "named": "tau"}


def templates(language):
    """Every template of a language, under the name that it has in all."""
    texts = {text: text for text in said()} if language == ENGLISH else phrases(language)
    return {**catalogue(language), **texts}


def shown(template):
    """The commands of a template, with something for each fact."""
    quoted = "".join(re.findall(r"`perfci [^`]*`", template))
    facts = {name: SAMPLES.get(name, "x") for name in re.findall(r"{(\w+)", quoted)}
    return sorted(find_commands(fill(quoted, facts)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_command_of_a_sentence_has_its_options_and_quotes_its_facts(language):
    for name, template in templates(language).items():
        for command in shown(template):
            parse(command)
        for quoted in re.findall(r"`(perfci [^`]*)`", template):
            assert re.findall(r"{\w+}", quoted) == [], name


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_command_in_a_sentence_stands_in_backticks_so_that_it_is_completed(language):
    texts = templates(language)

    bare = {name for name, template in texts.items() if BARE.search("".join(template.split("`")[::2]))}
    assert bare == set()


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_shows_the_same_commands(language):
    english, other = templates(ENGLISH), templates(language)

    assert {name for name in english if shown(english[name]) != shown(other.get(name, ""))} == set()


def test_there_are_commands_in_sentences():
    assert sum(len(shown(template)) for template in templates(ENGLISH).values()) > 100


# --- what is added ----------------------------------------------------------------------------------------------------


def test_what_is_added_to_a_command_is_what_it_takes():
    for name, command in LEAVES.items():
        options = {param.name for param in command.params}
        takes = commands._read_takes()
        added = takes.get(name, takes.get(name.split()[0]))  # a command of a group, or what is said of the group
        assert ("project" in options) == (added is not None), name
        assert set((added or "").split()) <= options, name


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("check a", "check a --device fake --suite accuracy --timer event --project ../p"),
        ("check a --device cpu", "check a --device cpu --suite accuracy --timer event --project ../p"),
        ("static a", "static a --project ../p"),
        ("check --retry r", "check --retry r --device fake --timer event --project ../p"),
        ("show --op a", "show 'my run' --op a --project ../p"),
        ("show old", "show old --project ../p"),
        ("accept --slower", "accept 'my run' --slower --project ../p"),
        ("thresholds show --op a", "thresholds show --op a --project ../p"),
        ("doctor", "doctor --project ../p"),
        ("doctor --selftest a", "doctor --selftest a --device fake --timer event --project ../p"),
        ("demo", "demo"),
        ("bisect a --against b", "bisect a --against b --device fake --timer event --project ../p"),
    ],
)
def test_a_command_gets_what_its_reader_would_have_to_add(words, completed):
    with reading(Reader(runs=("my run",), project="../p", device="fake", suite="accuracy", timer="event")):
        assert complete(f"perfci {words}") == f"perfci {completed}"
        assert complete(f"perfci {completed}") == f"perfci {completed}"
        parse(f"perfci {completed}")
    assert complete(f"perfci {words}") == f"perfci {words}"
    assert complete(f"git {words}") == f"git {words}"


def test_a_command_for_another_machine_names_no_device_of_this_one():
    assert complete("perfci soak --device auto") == "perfci soak"
    with reading(Reader(project="../p", device="cpu")):
        assert complete("perfci soak --device auto") == "perfci soak --project ../p"


def test_words_are_quoted_for_a_shell():
    with reading(Reader(project="a b; c")):
        assert write("check", "soft max") == "perfci check 'soft max' --project 'a b; c'"


def test_a_run_is_named_from_where_its_reader_stands_unless_it_is_the_projects_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Reader(reports=tmp_path / "reports")

    assert here.told_of(tmp_path / "reports").runs == here.told_of(Path("reports/run.json")).runs == ()
    assert here.told_of(tmp_path / "reports" / "static").runs == ("reports/static",)
    assert here.told_of(Path("/elsewhere/run.json")).runs == ("/elsewhere/run.json",)
    assert here.told_of(Path("reports"), Path("old")).runs == ("reports", "old")


@pytest.mark.parametrize(
    ("command", "device", "asked"),
    [
        ("perfci check a", "cpu", None),
        ("perfci check a --device cpu", "cpu", "cpu"),
        ("perfci check --device=cuda a", "cuda", "cuda"),
        ("perfci ci merge reports/shards", "fake", "fake"),
    ],
)
def test_a_run_is_repeated_on_the_device_that_it_was_asked_to_take(command, device, asked):
    earlier = replace(run(planned=replace(plan(), device=device)), command=command)

    assert Reader().asked_for(earlier).device == asked
