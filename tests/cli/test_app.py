"""Every option says its default, and every command reaches its answer with the options as given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from perfci.cli import answers, demo, init, notes, shards
from perfci.cli.app import app
from perfci.cli.main import run
from perfci.cli.options import DeviceKind, DuelKind, Format, SuiteKind, TimerKind
from perfci.core.model import DuelWhat, Suite
from perfci.device import KINDS
from perfci.runs.plan import DEFAULT_BUDGET_S, Request
from perfci.runs.rebaseline import RebaselineOptions

COMMANDS = typer.main.get_command(app).commands
BOTH = (Suite.ACCURACY, Suite.PERFORMANCE)


def options():
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and "--help" not in parameter.opts:
                yield name, parameter.opts[0]


def help_of(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert run([command, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("command", "option"), list(options()))
def test_every_options_default_stands_in_its_help(command, option, capsys, monkeypatch):
    _, _, told = help_of(command, capsys, monkeypatch).partition(f" {option} ")
    own = " ".join(re.split(r"\n  -", told)[0].split())

    assert re.search(r"\[default: .+\]", own), own


PAGES = [*([name] for name in COMMANDS), *(["thresholds", name] for name in COMMANDS["thresholds"].commands)]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_help_names_arguments_and_defaults_in_words_and_no_types_of_python(page, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")

    assert run([*page, "--help"]) == 0

    shown = capsys.readouterr().out
    assert [odd for odd in ("list[", "<str>", "<path>", "range>", "{", "......", "default: (") if odd in shown] == []


def test_several_runs_are_asked_for_as_one_writes_them(capsys):
    run(["accept", "--help"])

    assert "perfci accept [OPTIONS] RUN...\n" in capsys.readouterr().out


def test_a_choice_that_there_is_not_is_told_without_the_words_of_a_library(capsys):
    assert run(["check", "--device", "gpu"]) == 1

    assert "'--device': 'gpu' is not one of 'auto', 'cuda'" in capsys.readouterr().err


def test_all_commands_are_there_with_a_sentence_each(capsys):
    run(["--help"])
    shown = capsys.readouterr().out

    names = "check run static selftest compare report accept list show doctor demo init export rebaseline new note"
    names += " creep drift boards thresholds tune chain soak"
    assert set(COMMANDS) == {*names.split(), "plan", "merge", "history", "site", "again", "propose", "bisect"}
    assert all(name in shown and command.help for name, command in COMMANDS.items())
    assert "2 the gate failed" in shown


def test_devices_are_those_that_can_be_opened():
    assert tuple(DeviceKind) == KINDS


@pytest.fixture
def called(monkeypatch):
    """What reaches the answers, with exit codes that nothing else gives."""
    calls = []

    def record(name, code):
        def answer(*args, **kwargs):
            calls.append((name, args, kwargs))
            return code

        return answer

    for code, name in enumerate(["check", "run", "compare", "report", "accept", "list_ops", "show", "doctor"], 40):
        monkeypatch.setattr(answers, name, record(name, code))
    monkeypatch.setattr(answers, "list_chains", record("list_chains", 49))
    for code, name in enumerate(["static", "selftest", "rebaseline"], 51):
        monkeypatch.setattr(answers, name, record(name, code))
    monkeypatch.setattr(demo, "demo", record("demo", 50))
    monkeypatch.setattr(init, "set_up", record("set_up", 60))
    monkeypatch.setattr(notes, "post", record("post", 70))
    for code, name in enumerate(["plan", "check_part", "merge"], 80):
        monkeypatch.setattr(shards, name, record(name, code))
    return calls


def test_check_without_options_takes_the_defaults_of_a_request(called):
    assert run(["check"]) == 40

    assert called == [("check", (Request(), Path()), {"strict": False, "json": False, "html": False})]
    assert called[0][1][0].budget_s == DEFAULT_BUDGET_S


def test_checks_options_arrive(called):
    common = "--op relu --op scale --case rows=* --device fake --budget 0.5 --seed 7 --suite accuracy --timer event"
    run(["check", *common.split(), "--strict", "--html", "--format", "json", "--project", "/p"])

    wanted = Request(("relu", "scale"), "rows=*", "fake", 0.5, 7, "event", (Suite.ACCURACY,))
    assert called == [("check", (wanted, Path("/p")), {"strict": True, "json": True, "html": True})]


def test_checks_devices_and_time_limit_arrive(called, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    run(["check", "--devices", "0,1", "--deadline", "90"])
    monkeypatch.setenv("CI_JOB_TIMEOUT", "3600")
    monkeypatch.setenv("CI_JOB_STARTED_AT", "2023-11-14T22:13:20Z")
    run(["check"])
    run(["check", "--deadline", "0"])
    monkeypatch.setenv("CI_JOB_TIMEOUT", "an hour")
    run(["check"])

    asked, of_job, off, nonsense = (call[1][0] for call in called)
    assert (asked.devices, asked.deadline.until, asked.deadline.by) == ("0,1", "2023-11-14T22:14:50.000Z", "--deadline")
    assert (of_job.devices, of_job.deadline.until) == (None, "2023-11-14T23:10:20.000Z")
    assert (off.deadline, off.deadline_note) == (None, None)
    assert (nonsense.deadline, nonsense.deadline_note.kind) == (None, "deadline_malformed")


@pytest.mark.parametrize("arguments", [["check"], ["run"], ["selftest"]])
@pytest.mark.parametrize("devices", ["", "two", "0 1", "0,", "-1"])
def test_what_chooses_no_devices_is_a_usage_error(called, capsys, arguments, devices):
    assert run([*arguments, "--devices", devices]) == 1
    assert (called, "--devices" in capsys.readouterr().err) == ([], True)


def test_checks_base_is_found_by_itself_unless_it_is_named(called):
    run(
        ["check", "--against", "v1.2", "--duel", "all", "--base-python", "/old/bin/python", "--target", "sm_80, gfx942"]
    )
    run(["check"])

    named, found = (call[1][0] for call in called)
    assert (named.against, named.duel, named.base_python) == ("v1.2", DuelWhat.ALL, "/old/bin/python")
    assert named.targets == ("sm_80", "gfx942")
    assert (found.against, found.duel, found.base_python, found.targets) == (None, DuelWhat.CHANGED, None, ())


def test_rebaselines_options_arrive(called):
    run(["rebaseline", "a", "b", "--op", "relu", "--cases", "--dirty", "--project", "/p", "--format", "json"])
    by_name = ["--include-unexplained", "relu", "--include-unexplained", "scale", "--include-changed-code", "relu"]
    run(["rebaseline", "a", "--write", "--why", "driver 590", *by_name])

    assert called == [
        (
            "rebaseline",
            ([Path("a"), Path("b")], ["relu"], Path("/p"), RebaselineOptions(dirty=True)),
            {"cases": True, "json": True},
        ),
        (
            "rebaseline",
            ([Path("a")], [], Path(), RebaselineOptions(True, "driver 590", ("relu", "scale"), ("relu",))),
            {"cases": False, "json": False},
        ),
    ]


def test_kinds_of_duels_are_those_of_a_plan():
    assert [kind.value for kind in DuelKind] == [kind.value for kind in DuelWhat]


@pytest.mark.parametrize(
    ("suite", "suites"),
    [
        (SuiteKind.BOTH, BOTH),
        (SuiteKind.ACCURACY, (Suite.ACCURACY,)),
        (SuiteKind.PERFORMANCE, (Suite.PERFORMANCE,)),
    ],
)
def test_a_suite_is_chosen_by_name(called, suite, suites):
    run(["run", "--suite", suite])

    assert called[0][1][0].suites == suites


@pytest.mark.parametrize("timer", list(TimerKind))
def test_a_timer_is_chosen_by_name(called, timer):
    run(["run", "--timer", timer])

    assert called[0][1][0].timer == timer.value


@pytest.mark.parametrize(
    ("arguments", "call", "code"),
    [
        (["run"], ("run", (Request(), Path()), {"json": False}), 41),
        (["compare", "r"], ("compare", (Path("r"), None, Path()), {"strict": False, "json": False}), 42),
        (
            ["compare", "r", "--baseline", "b", "--strict", "--format", Format.JSON],
            ("compare", (Path("r"), Path("b"), Path()), {"strict": True, "json": True}),
            42,
        ),
        (
            ["report", "r", "--baseline", "b", "--out", "o", "--html"],
            ("report", (Path("r"), Path("b"), Path("o"), Path()), {"html": True}),
            43,
        ),
        (
            ["accept", "r", "s", "--op", "relu", "--add"],
            (
                "accept",
                ([Path("r"), Path("s")], ["relu"], Path()),
                {"add": True, "dirty": False, "json": False, "slower": False, "why": None, "case": None},
            ),
            44,
        ),
        (
            ["list", "--op", "relu", "--case", "c", "--device", "cpu"],
            ("list_ops", (["relu"], "c", "cpu", Path()), {"json": False}),
            45,
        ),
        (
            ["list", "--chains", "--case", "c", "--format", "json"],
            ("list_chains", ([], "c", "auto", Path()), {"json": True}),
            49,
        ),
        (
            ["show", "r", "--op", "relu", "--case", "c"],
            ("show", (Path("r"), ["relu"], "c", Path()), {"json": False}),
            46,
        ),
        (
            ["note", "r", "--report", "out/report.md", "--key", "npu", "--dry-run"],
            ("post", (Path("r"), Path()), {"report": "out/report.md", "key": "npu", "dry_run": True}),
            70,
        ),
        (
            ["plan", "--op", "relu", "--device", "cuda", "--shards", "4", "--last", "r", "--out", "o", "--all"],
            (
                "plan",
                (Request(("relu",), device="cuda"), Path(), Path("o")),
                {"shards": 4, "last": Path("r"), "every": True, "json": False},
            ),
            80,
        ),
        (
            ["plan", "--against", "v1", "--duel", "none", "--seed", "3"],
            (
                "plan",
                (Request(seed=3, against="v1", duel=DuelWhat.NONE), Path(), Path("plan.json")),
                {"shards": 1, "last": None, "every": False, "json": False},
            ),
            80,
        ),
        (
            ["check", "--plan", "p", "--shard", "1/2", "--device", "cuda"],
            ("check_part", (Path("p"), "1/2", "cuda", Path()), {"json": False, "devices": None, "deadline": None}),
            81,
        ),
        (
            ["check", "--plan", "p", "--shard", "1/2", "--devices", "0,1", "--deadline", "600"],
            ("check_part", (Path("p"), "1/2", "auto", Path()), {"json": False, "devices": "0,1", "deadline": 600.0}),
            81,
        ),
        (["run", "--devices", "all"], ("run", (Request(devices="all"), Path()), {"json": False}), 41),
        (["selftest", "--devices", "1"], ("selftest", (Request(devices="1"), Path()), {"json": False}), 52),
        (
            ["merge", "a", "b", "--plan", "p", "--out", "o", "--strict", "--html"],
            (
                "merge",
                ([Path("a"), Path("b")], Path("p"), Path("o"), Path()),
                {"strict": True, "json": False, "html": True},
            ),
            82,
        ),
        (["doctor", "--format", "json"], ("doctor", (Path(),), {"json": True}), 47),
        (
            ["static", "--op", "relu", "--against", "main", "--target", "sm_80", "--strict"],
            (
                "static",
                (
                    Request(("relu",), None, "cpu", suites=(Suite.PERFORMANCE,), against="main", targets=("sm_80",)),
                    Path(),
                ),
                {"strict": True, "json": False},
            ),
            51,
        ),
        (
            ["selftest", "--device", "fake", "--seed", "3"],
            ("selftest", (Request(device="fake", seed=3), Path()), {"json": False}),
            52,
        ),
        (["demo", "--keep", "k"], ("demo", (Path("k"),), {}), 50),
        (["demo"], ("demo", (None,), {}), 50),
        (["init"], ("set_up", (Path(), [], None), {"dry_run": False}), 60),
        (
            ["init", "--owners", "@a", "--owners", "@b", "--install", "perfci==1", "--dry-run", "--project", "p"],
            ("set_up", (Path("p"), ["@a", "@b"], "perfci==1"), {"dry_run": True}),
            60,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_command_reaches_its_answer_and_exits_with_its_code(called, arguments, call, code):
    assert run(arguments) == code
    assert called == [call]


def test_one_calls_ops_do_not_stick_to_the_next(called):
    run(["check", "--op", "relu"])
    run(["check"])

    assert called[1][1][0].ops == ()
