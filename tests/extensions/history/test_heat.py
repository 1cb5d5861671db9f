"""How an op changed since a release, and which alerts there are."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from perfci.core.model import Gate, HistoryRun, Judgement, Judgements, Reason, Suite, Verdict
from perfci.extensions.history.alerts import Alert, list_alerts, sort_alerts
from perfci.extensions.history.heat import Release, choose_runs, measure_heat
from perfci.store.history import KEPT
from tests.history_examples import CASE, OTHER, accepted, environment, figures

V1 = Release("v1", frozenset("1" * 40 + str(n) for n in range(4)))  # of runs 0 to 3


def history(*times: float, **changes) -> list[HistoryRun]:
    """Runs of one case with these times, each of a separate commit."""
    cells = []
    for number, us in enumerate(times):
        surroundings = {name: values[number] for name, values in changes.items()}
        cells.append(accepted(number, figures(kernel_us=us), commit="1" * 40 + str(number), **surroundings))
    return cells


@pytest.mark.parametrize(
    ("times", "change"),
    [
        ([10, 10, 10, 10, 11, 11, 11], 0.1),
        ([8, 8, 10, 10, 10, 10, 10], 0.0),  # a step before the release
        ([10, 10, 10, 10, 10, 10, 14], 0.0),  # one noisy run
        ([10, 10, 10, 10, 9], -0.1),
    ],
)
def test_a_change_goes_from_the_runs_up_to_the_release_to_the_newest_ones(times, change):
    assert measure_heat(history(*times), V1).changes == {CASE: pytest.approx(change)}


def test_without_a_release_it_goes_over_all_runs():
    assert measure_heat(history(8, 8, 10, 10, 10, 12, 12), None).changes == {CASE: pytest.approx(0.5)}


@pytest.mark.parametrize("times", [[], [10], [10, 10, 10, 10]])
def test_there_is_none_without_a_run_after_the_release(times):
    heat = measure_heat(history(*times), V1)

    assert (heat.changes, heat.worst, heat.mean) == ({}, "", None)


def test_a_run_of_an_unknown_commit_lies_where_its_neighbours_do():
    runs = history(10, 10, 10, 10, 12)
    runs[2] = replace(runs[2], environment=environment(commit="f" * 40))

    assert measure_heat(runs, V1).changes == {CASE: pytest.approx(0.2)}


def test_only_what_was_timed_alike_is_compared():
    runs = history(10, 10, 10, 10, 12, timer=["event"] * 4 + ["activity"])

    assert measure_heat(runs, V1).changes == {}


def test_the_worst_case_and_the_mean_are_of_all_cases():
    runs = [
        replace(run, cases=(*run.cases, figures(OTHER, us)))
        for run, us in zip(history(10, 10, 10, 10, 12.1), (20, 20, 20, 20, 20 / 1.21), strict=True)
    ]
    heat = measure_heat(runs, V1)

    assert heat.worst == CASE
    assert heat.mean == pytest.approx(0.0)


def test_a_new_driver_and_an_accepted_loss_in_between_are_noted_and_a_new_board_is_not():
    def note(**changes):
        return measure_heat(history(10, 10, 10, 10, 12, **changes), V1).notes

    assert note(uuid=["GPU-1"] * 4 + ["GPU-2"]) == ()
    assert note(driver=["580"] * 4 + ["590"]) == ("new environment",)
    assert note(why=[None] * 4 + ["agreed"]) == ("accepted loss",)
    assert note(why=["agreed"] + [None] * 4) == ()


def test_of_long_histories_the_newest_runs_and_those_up_to_the_release_are_read():
    runs = [accepted(n, created="2026-01-01T00:00:00Z", commit="1" * 40 + str(n)) for n in range(1000)]
    chosen = [run.run for run in choose_runs(runs, V1)]

    assert chosen[:3] == ["run1", "run2", "run3"]
    assert chosen[3:] == [f"run{n}" for n in range(1000 - KEPT, 1000)]


def test_without_a_release_long_histories_are_compared_over_the_runs_that_are_read():
    runs = [accepted(n, figures(kernel_us=10 + (n > 190)), created="2026-01-01T00:00:00Z") for n in range(200)]
    chosen = {run.run for run in choose_runs(runs, None)}
    read = [run if run.run in chosen else replace(run, cases=()) for run in runs]

    assert measure_heat(read, None).changes == {CASE: pytest.approx(0.1)}


@pytest.mark.parametrize("us", [0.0, 5e-324])
def test_times_that_cannot_be_are_no_change(us):
    assert measure_heat(history(us, us, us, us, 10), V1).changes == {}


# --- alerts -----------------------------------------------------------------------------------------------------------


def alert(case=CASE, state=Verdict.REGRESSED, gate=Gate.FAILS, change=0.1, commits="a..b", why="Slower.", **more):
    return Alert("nvidia-h200", "softmax", case, state, gate, change, commits, why, **more)


def run_of(*rows, commit="a" * 40):
    run = SimpleNamespace(environment=environment(commit=commit), plan=SimpleNamespace(base=None))
    return run, Judgements(tuple(rows))


def kept(**changes):
    """A verdict as a store gives it."""
    about = {"device": "nvidia-h200", "op": "softmax", "case_id": CASE, "suite": "performance", "target": ""}
    about |= {"verdict": "REGRESSED", "gate": "fails", "reason": "slower_since", "change": 0.2, "revision": "b" * 40}
    return SimpleNamespace(**about | {"said": "It was slower."} | changes)


def judged(verdict, *kinds, case=CASE):
    reasons = tuple(Reason(kind, {"good": "1", "bad": "2", "command": "perfci bisect"}) for kind in kinds)
    return Judgement("softmax", Suite.PERFORMANCE, case, verdict, reasons)


def test_an_alert_says_since_when_and_how_to_find_the_commit():
    (alert,) = list_alerts([run_of(judged(Verdict.REGRESSED, "slower_since"), judged(Verdict.PASS, case=OTHER))])

    assert alert.key == ("nvidia-h200", "softmax", CASE)
    assert "between 1 and 2: `perfci bisect` finds the commit" in alert.why


def test_the_newest_verdict_counts_so_that_what_was_settled_is_no_alert():
    assert [alert.why for alert in list_alerts([], [kept()])] == ["It was slower."]
    assert list_alerts([run_of(judged(Verdict.PASS))], [kept()]) == []


def test_a_verdict_of_tomorrow_that_a_store_keeps_is_shown_as_it_is():
    (alert,) = list_alerts([], [kept(verdict="HAUNTED", said=None, revision=None, reason=None)])

    assert (alert.state, alert.gate, alert.commits, alert.why) == ("HAUNTED", Gate.FAILS, "-", "")


def test_what_fails_comes_first_and_then_what_changed_most():
    alerts = [
        alert("x=1", Verdict.DRIFTED, Gate.WARNS, 0.9), alert("x=2", change=None, commits="c"), alert("x=3", change=0.2)
    ]  # fmt: skip

    assert [alert.case for alert in sort_alerts(alerts, [])] == ["x=3", "x=2", "x=1"]


def test_cases_of_an_op_that_are_alike_share_a_row():
    alerts = sort_alerts(
        [alert("x=1", change=0.1), alert("x=2", change=0.3), alert("x=3", kind="peak_memory_grew")], []
    )

    assert [(alert.case, alert.others) for alert in alerts] == [("x=2", ("x=1",)), ("x=3", ())]


def test_a_step_of_a_case_with_a_verdict_adds_to_that():
    steps = [
        alert(state="stepped", gate=Gate.WARNS, why="A step."),
        alert(OTHER, "stepped", Gate.WARNS, why="Another."),
    ]
    alerts = sort_alerts([alert()], steps)

    assert [(alert.case, alert.why) for alert in alerts] == [(CASE, "Slower. A step."), (OTHER, "Another.")]
