"""What a self-check asks for, and what it makes of the answers."""

from dataclasses import replace

import pytest

from perfci.core.errors import DeviceError
from perfci.core.model.basics import Interval, Look, Reason, Suite, Verdict
from perfci.core.model.decision import Comparison, Judgement, Judgements
from perfci.core.model.place import Device
from perfci.extensions.lab.commands.selftest import (
    CaseNoise,
    SelfTest,
    Trial,
    copy_tree,
    judge_trial,
    selftest,
    show_trials,
)
from perfci.runs.bench import open_bench
from perfci.runs.plan import Request
from perfci.statistics.many_duels import Noise
from perfci.worker.tasks import Measure
from tests.cli.rendering import lines_of
from tests.runs import stand_ins

DUEL = Look(4, 1, Interval(0.0, 0.0, 0.0), 1.0, 1.0, (0.0,), (4,), 0.01)


def row(verdict, *kinds, op="relu", case="rows=1", duelled=True):
    comparison = Comparison(op, case or "", duel=DUEL if duelled else None)
    return Judgement(op, Suite.PERFORMANCE, case, verdict, tuple(map(Reason, kinds)), comparison)


def tried(name, *rows):
    return judge_trial(name, Judgements(rows))


# --- unchanged --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "kinds"),
    [
        (Verdict.INCONCLUSIVE, ("control_failed", "duel_slower")),
        (Verdict.INCONCLUSIVE, ("control_failed", "duel_faster")),
        # The call could not be captured, so it cannot be distinguished from a change.
        (Verdict.REGRESSED, ("duel_slower", "captured_opaque")),
        (Verdict.IMPROVED, ("duel_faster",)),
        (Verdict.INCONCLUSIVE, ("throttled", "control_failed", "duel_slower")),
    ],
)
def test_an_op_against_itself_that_is_called_slower_or_faster_is_a_false_alarm(verdict, kinds):
    checked = tried("unchanged", row(verdict, *kinds), row(Verdict.UNCHANGED, "duel_cleared", case="rows=2"))

    assert (checked.passed, checked.checked, checked.seen, checked.missed) == (False, 2, 1, ("relu rows=1",))


def test_where_nothing_could_be_timed_there_is_no_answer():
    with pytest.raises(DeviceError) as caught:
        tried("unchanged", row(Verdict.NEW, duelled=False))

    assert caught.value.reason.kind == "selftest_not_timed"


# --- what is run ------------------------------------------------------------------------------------------------------


def test_the_project_is_its_own_base_without_what_was_made_of_it(settings):
    for place in (".venv/lib", "data", "reports/old", "kernels/relu/__pycache__"):
        (settings.root / place).mkdir(parents=True)
        (settings.root / place / "file").write_text("x")
    unchanged = replace(settings, reports=settings.reports / "selftest" / "unchanged")
    unchanged.reports.mkdir(parents=True)
    with open_bench(unchanged, print) as bench:
        tree = copy_tree(bench)

        assert (tree.settings.root / "data" / "file").read_text() == "x"
        assert (tree.settings.kernels / "relu" / "relu_triton.py").is_file()
        left_out = (".venv", "reports/selftest", "kernels/relu/__pycache__")
        assert not any((tree.settings.root / place).exists() for place in left_out)
        assert tree.base.how == "asked" and tree.settings.reports == unchanged.reports


def test_without_a_device_there_is_one_sentence_before_anything_runs(workers, settings, heard, monkeypatch):
    monkeypatch.setattr(stand_ins, "DEVICE", Device("cpu", "CPU x86_64", "cpu"))

    with pytest.raises(DeviceError) as caught:
        selftest(settings, Request(), "perfci doctor --selftest", heard.append)

    assert caught.value.reason.kind == "selftest_not_timed"
    assert workers.measured() == []


@pytest.mark.nightly
def test_the_tries_leave_the_projects_own_run_alone(workers, settings, heard):
    reports = settings.reports / "run.json"
    reports.parent.mkdir()
    reports.write_text("mine")

    checked = selftest(settings, Request(seed=7), "perfci doctor --selftest", heard.append)

    # The stand-ins slow nothing down and break nothing.
    assert [trial.passed for trial in checked.trials] == [True, False, False]
    assert reports.read_text() == "mine"
    measuring = [task for task in workers.tasks if isinstance(task, Measure)]
    assert list(dict.fromkeys((task.op, task.plant.slowdown, task.plant.spoiled) for task in measuring)) == [
        ("relu", 0.0, False),
        ("scale", 0.0, False),
        ("relu", 2.0, False),
        ("relu", 0.0, True),
    ]
    assert (settings.reports / "selftest" / "slower" / "run.json").is_file()


UNCHANGED, SLOWER, WRONG = (Trial("unchanged", 7, 0, 0), Trial("slower", 7, 7, 7), Trial("wrong", 1, 1, 1))
NOISE = CaseNoise("relu", "rows=1", 12.0, 0.015, Noise(12, 0.004, 0.02))


def lines(*trials: Trial, noise: tuple[CaseNoise, ...] = ()) -> list[str]:
    return lines_of(show_trials(SelfTest(trials, noise, "Fake One")))


def test_three_good_tries_are_told_in_a_line_each():
    assert lines(UNCHANGED, SLOWER, WRONG) == [
        "ok: every op against itself: 0 false alarms in 7 cases",
        "ok: twice the allowed slow-down planted: found in 7 of 7 cases",
        "ok: a wrong element planted: found in 1 of 1 ops",
        "perfci can be trusted on this machine: nothing false was said, and what was planted was found.",
    ]


def test_a_false_alarm_fails_and_is_named():
    alarmed = Trial("unchanged", 7, 1, 0, ("relu rows=1",))

    told = lines(alarmed, SLOWER, WRONG)

    assert told[:2] == ["FAIL: every op against itself: 1 false alarms in 7 cases", "      relu rows=1"]
    assert "run `perfci doctor`" in told[-1]


def test_the_noise_table_has_spread_threshold_and_what_would_be_seen():
    told = lines(UNCHANGED, noise=(NOISE,))

    assert told[2] == "Noise on Fake One: spread of the shift between two equal arms, block by block"
    assert told[3].split() == ["op", "and", "case", "spread", "allowed", "seen", "at", "95", "%", "kernel"]
    assert told[4].split() == ["relu", "rows=1", "0.4", "%", "1.5", "%", "2.0", "%", "12.0", "us"]
