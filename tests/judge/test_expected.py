"""Slow-downs that were agreed on: what an entry excuses, for how long, and which one would."""

import math
from dataclasses import replace
from datetime import date, timedelta

import pytest

from perfci.core.model import Expected, Gate, Need, PerformanceCase, PlannedOp, Reason, Suite, Verdict
from perfci.core.wording import sentence
from perfci.judge import judge
from perfci.judge.expected import GRACE, ROOM, Standing, day_of, stage
from perfci.report import rows
from perfci.report.data import to_json
from perfci.report.steps import KEY
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from perfci.thresholds.read import load
from tests.decision_examples import (
    BASE,
    CASE,
    again,
    against,
    assert_worded,
    baseline,
    check,
    duel_plan,
    duelled,
    hosted,
    plan,
    row_of,
    run,
)

DAY = date(2026, 2, 1)
"""On which the examples' runs were made."""

SLOWER = duelled(0.03, 0.03, 0.03, 0.03)
BOOM = Reason("boom", {"what": "it broke"})


def entry(up_to=0.06, case="rows=4096,*", until="2027-01-31", **fields):
    where = {"file": "thresholds/op.yaml", "line": 2, "why": "float32 accumulation, see !42"}
    return Expected("op", case, up_to=up_to, until=until, **where | fields)


def rules(*entries, dropped=(), listed=None, **limits):
    common = CaseThresholds(**limits)
    return Thresholds(common, {"op": OpThresholds(common, (), entries, tuple(dropped), listed)})


def judged(measured, thresholds, stored=None):
    judgements = judge(measured, {"op": stored} if stored else {}, thresholds)
    for reason in (*judgements.notes, *(reason for row in judgements.rows for reason in row.reasons)):
        assert_worded(reason)
    return judgements


def row(timed, *entries, stored=None, base=True, options=None, **limits):
    """The row of one case, duelled unless there is no base."""
    case = timed if isinstance(timed, PerformanceCase) else against(timed) if base else timed
    measured = run(case, planned=duel_plan() if base else plan(), **options or {})
    return row_of(judged(measured, rules(*entries, **limits), stored))


def kinds(judged_row):
    return [reason.kind for reason in judged_row.reasons]


# --- what an entry covers ---------------------------------------------------------------------------------------------


def test_a_duel_within_the_entry_is_expected_and_said_with_why_until_when_and_where():
    excused = row(SLOWER, entry())

    assert (excused.verdict, excused.gate) == (Verdict.EXPECTED, Gate.OK)
    assert kinds(excused)[:2] == ["expected_of_base", "duel_slower"]
    assert excused.expected == entry()
    told = sentence(excused.reasons[0])
    assert told.startswith("+3.0 % against the base, 95 % interval +3.0 % to +3.0 %, is expected: float32 accumul")
    assert told.endswith("see !42. Up to 6.0 % are allowed until 2027-01-31 by thresholds/op.yaml, line 2.")


def test_beyond_the_entry_it_stays_regressed_and_the_reason_says_how_much_is_allowed():
    excused = row(SLOWER, entry(0.015))

    assert (excused.verdict, excused.gate, excused.expected) == (Verdict.REGRESSED, Gate.FAILS, entry(0.015))
    assert kinds(excused)[:2] == ["duel_slower", "expected_exceeded"]
    assert sentence(excused.reasons[1]) == "The expected entry in thresholds/op.yaml, line 2, allows only 1.5 %."


@pytest.mark.parametrize(
    ("timed", "up_to", "verdict"),
    [
        (SLOWER, 0.031, Verdict.EXPECTED),
        (SLOWER, 0.028, Verdict.REGRESSED),
        (duelled(0.03, 0.03), 0.031, Verdict.EXPECTED),
        (duelled(0.03, 0.03), 0.01, Verdict.REGRESSED),
        (duelled(0.03, 0.03, 0.03, 0.03, spread=0.01), 0.028, Verdict.EXPECTED),
        (duelled(0.03, 0.03, 0.03, 0.03, spread=0.01), 0.015, Verdict.REGRESSED),
    ],
    ids=[
        "just above",
        "just below",
        "two processes",
        "two processes, no wider than tau",
        "within the noise",
        "far off",
    ],
)
def test_the_test_itself_says_whether_the_entry_is_exceeded(timed, up_to, verdict):
    assert row(timed, entry(up_to)).verdict is verdict


def test_where_only_more_processes_can_tell_whether_the_entry_is_exceeded_they_are_asked_for():
    measured = run(against(duelled(0.03, 0.03)), planned=duel_plan())

    judgements = judged(measured, rules(entry(0.025)))

    assert row_of(judgements).verdict is Verdict.INCONCLUSIVE
    assert kinds(row_of(judgements))[:2] == ["duel_open", "expected_open"]
    assert judgements.needs == (Need("op", CASE, 3),)
    assert row_of(judgements).expected is None


def test_against_a_baseline_it_is_the_baseline_that_counts():
    covered, beyond = (row(again(1.05), entry(up_to), stored=baseline(), base=False) for up_to in (0.07, 0.03))

    assert (covered.verdict, kinds(covered)[:2]) == (Verdict.EXPECTED, ["expected_of_baseline", "slower_confirmed"])
    assert (beyond.verdict, kinds(beyond)[:2]) == (Verdict.REGRESSED, ["slower_confirmed", "expected_exceeded"])


def test_a_longer_span_is_covered_by_the_same_entry():
    timed = duelled(0.0, 0.0, 0.0, 0.0, spans=(1.8, 1.4), us=100.0)

    plain, covered, beyond = (row(timed, *entries) for entries in ((), (entry(0.35),), (entry(0.2),)))

    assert (plain.verdict, kinds(plain)[0]) == (Verdict.REGRESSED, "duel_span_slower")
    assert (covered.verdict, kinds(covered)[:2]) == (Verdict.EXPECTED, ["expected_of_span", "duel_span_slower"])
    assert (beyond.verdict, kinds(beyond)[:2]) == (Verdict.REGRESSED, ["duel_span_slower", "expected_exceeded"])


def test_a_longer_host_time_is_covered_by_the_same_entry():
    measured = run(against(duelled(0.0), host=hosted(7.5, 7.5)), planned=duel_plan())

    covered, beyond = (row_of(judged(measured, rules(entry(up_to)))) for up_to in (9.0, 4.0))

    assert (covered.verdict, kinds(covered)[:2]) == (Verdict.EXPECTED, ["expected_of_host", "duel_host_slower"])
    assert (beyond.verdict, kinds(beyond)[:2]) == (Verdict.REGRESSED, ["duel_host_slower", "expected_exceeded"])


def test_a_speedup_below_its_target_is_covered_by_as_much_as_it_may_take_longer():
    timed = again(1.0)  # 1.5 times as fast as its reference

    assert row(timed, base=False, speedup=1.6).verdict is Verdict.TOO_SLOW
    covered = row(timed, entry(0.08), base=False, speedup=1.6)
    beyond = row(timed, entry(0.03), base=False, speedup=1.6)

    assert (covered.verdict, kinds(covered)[:2]) == (Verdict.EXPECTED, ["expected_of_target", "too_slow"])
    assert "(the target is 1.60), is expected" in sentence(covered.reasons[0])
    assert (beyond.verdict, kinds(beyond)[:2]) == (Verdict.TOO_SLOW, ["too_slow", "expected_exceeded"])


def test_one_entry_has_to_cover_all_that_is_slower_about_a_case():
    timed = duelled(0.03, 0.03, 0.03, 0.03, spans=(1.8, 1.4), us=100.0)

    both, one = row(timed, entry(0.5)), row(timed, entry(0.06))

    assert both.verdict is Verdict.EXPECTED
    assert {"expected_of_base", "expected_of_span"} <= set(kinds(both))
    assert (one.verdict, kinds(one)[:2]) == (Verdict.REGRESSED, ["duel_span_slower", "expected_exceeded"])
    assert "expected_of_base" in kinds(one)


def test_what_is_left_undecided_beyond_tau_is_expected_where_the_entry_surely_covers_it():
    timed = duelled(0.013, 0.013, 0.013, 0.013, spread=0.01)

    assert row(timed).verdict is Verdict.INCONCLUSIVE
    assert row(timed, entry(0.05)).verdict is Verdict.EXPECTED
    assert row(timed, entry(0.011)).verdict is Verdict.INCONCLUSIVE


def test_of_several_entries_the_one_that_covers_counts_wherever_it_stands():
    narrow, wide = entry(0.015, case=CASE), entry(0.05, case="*", line=3)

    for entries in ((narrow, wide), (wide, narrow)):
        excused = row(SLOWER, *entries)
        assert (excused.verdict, excused.expected.up_to) == (Verdict.EXPECTED, 0.05)


def test_an_entry_that_the_change_takes_out_holds_for_it_still():
    measured = run(against(SLOWER), planned=duel_plan())

    judgements = judged(measured, rules(dropped=(entry(),)))

    assert row_of(judgements).verdict is Verdict.EXPECTED


def test_the_family_of_all_cases_is_corrected_for_with_the_entries_in_place():
    many = duel_plan(CASE, *(f"rows={number}" for number in range(400)))
    measured = run(against(SLOWER), planned=many)

    assert row_of(judged(measured, rules(entry(0.028)))).verdict is Verdict.REGRESSED
    assert row_of(judged(measured, rules(entry(0.031)))).verdict is Verdict.EXPECTED


# --- what it never covers ---------------------------------------------------------------------------------------------


def test_wrong_answers_and_errors_are_never_excused():
    wrong = run(against(SLOWER), planned=duel_plan(), accuracy=(check(failure=BOOM),))
    raised = run(against(failure=BOOM), planned=duel_plan())
    raised = replace(raised, ops=(replace(raised.ops[0], performance=(against(failure=BOOM, raised=True),)),))

    everything = rules(entry(10.0, case="*"))

    assert {judged_row.verdict for judged_row in judged(wrong, everything).rows} == {Verdict.WRONG}
    assert row_of(judged(raised, everything)).verdict is Verdict.ERROR


# --- until when -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "verdict", "gate", "second"),
    [
        (DAY, Verdict.EXPECTED, Gate.OK, "duel_slower"),
        (DAY - timedelta(days=1), Verdict.EXPECTED, Gate.WARNS, "expected_overdue"),
        (DAY - GRACE, Verdict.EXPECTED, Gate.WARNS, "expected_overdue"),
        (DAY - GRACE - timedelta(days=1), Verdict.REGRESSED, Gate.FAILS, "expected_ended"),
    ],
    ids=["on its last day", "the day after", "on the last day of grace", "later"],
)
def test_an_entry_warns_for_two_weeks_after_its_last_day_and_then_fails(until, verdict, gate, second):
    judgements = judged(run(against(SLOWER), planned=duel_plan()), rules(entry(until=until.isoformat())))

    (one,) = [verdict_row for verdict_row in judgements.rows if verdict_row.suite is Suite.PERFORMANCE]
    assert (one.verdict, one.gate, judgements.gate) == (verdict, gate, gate)
    assert kinds(one)[1] == second
    assert one.expected.until == until.isoformat()
    if second != "duel_slower":
        assert f"expired on {until}" in sentence(one.reasons[1])
        assert str(until + GRACE) in sentence(one.reasons[1])


def test_the_day_is_the_runs_own_and_one_that_is_not_known_expires_nothing():
    made = run(against(SLOWER), planned=duel_plan())

    assert day_of(made) == DAY
    assert day_of(replace(made, created="yesterday")) is None
    assert stage(entry(until="2020-01-01"), None) is Standing.HOLDS
    assert stage(entry(until="nonsense"), DAY) is Standing.ENDED
    assert stage(entry(until="9999-12-31"), DAY) is Standing.HOLDS


# --- the lines to paste -----------------------------------------------------------------------------------------------


def paste(text, judgements):
    """Changes a file as the words beside the lines ask: below its key, in the place of an entry for the same case."""
    new = [row.suggested.line for row in judgements.rows if row.suggested]
    lines = [line for line in text.splitlines() if not any(line.split(",")[0] == one.split(",")[0] for one in new)]
    at = lines.index(KEY) if KEY in lines else len(lines)
    return "\n".join([*lines[:at], KEY, *new, *lines[at + 1 :]]) + "\n"


FILES = {
    "no file": None,
    "an empty file": "",
    "other keys": "rsd: 6 %\ncases:\n  rows=1:\n    margin: 3 %\n",
    "a list": 'expected:\n  - {case: "rows=7", up_to: 3 %, why: "agreed", until: 2026-05-01}\nrsd: 6 %\n',
    "a list in full": "expected:\n  - case: rows=7\n    up_to: 3 %\n    why: agreed\n    until: 2026-05-01\n",
    "a list that is empty": "rsd: 6 %\nexpected:\nspan_floor_us: 6\n",
    "too small an entry": f'rsd: 6 %\nexpected:\n  - {{case: "{CASE}", up_to: 1.1 %, why: "x", until: 2026-05-01}}\n',
    "an old entry": f'expected:\n  - {{case: "{CASE}", up_to: 9 %, why: "x", until: 2020-05-01}}\n',
}

SLOW = {
    "a duel": (lambda: run(against(SLOWER), planned=duel_plan()), None),
    "a duel of two processes": (lambda: run(against(duelled(0.031, 0.031)), planned=duel_plan()), None),
    "a span": (
        lambda: run(against(duelled(0.0, 0.0, 0.0, 0.0, spans=(1.8, 1.4), us=100.0)), planned=duel_plan()),
        None,
    ),
    "a screen": (lambda: run(again(1.05)), baseline()),
    "a screen of another regime": (lambda: run(again(1.25, clock=1.05)), baseline()),
    "a span by the baseline": (lambda: run(again(span=1.5, activities=2, factor=1.0)), baseline(span=1.1)),
    "a target": (lambda: run(again(1.0)), None),
    "many times slower": (lambda: run(against(duelled(*[4.0] * 4)), planned=duel_plan()), None),
}


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize("file", FILES)
def test_the_lines_that_are_printed_make_the_same_run_expected_once_they_are_pasted(tmp_path, slow, file):
    made, stored = SLOW[slow]
    folder, measured = tmp_path / "thresholds", made()
    folder.mkdir()
    path = folder / "op.yaml"
    if slow == "a target":
        (folder / "default.yaml").write_text("speedup: 1.6\n")
    if FILES[file] is not None:
        path.write_text(FILES[file])

    before = judged(measured, load(folder, root=tmp_path), stored)
    path.write_text(paste(path.read_text() if path.exists() else "", before))
    after = judged(measured, load(folder, root=tmp_path), stored)

    assert before.gate is Gate.FAILS
    assert row_of(before).suggested.file == "thresholds/op.yaml"
    assert row_of(after).verdict is Verdict.EXPECTED
    assert (after.gate, row_of(after).suggested) == (Gate.OK, None)
    assert row_of(after).expected.case == CASE
    assert row_of(after).expected.until == str(DAY + ROOM)


# --- entries that nothing needs ---------------------------------------------------------------------------------------


def notes(measured, *entries, stored=None, **options):
    judgements = judged(measured, rules(*entries, **options), stored)
    return [(note.kind, sentence(note)) for note in judgements.notes if note.kind.startswith("expected_")]


EQUAL = duelled(0.0, count=4)


def test_an_entry_without_which_all_its_cases_are_fine_says_so_with_file_and_line():
    measured = run(against(EQUAL), planned=duel_plan())

    ((kind, told),) = notes(measured, entry())

    assert kind == "expected_unneeded"
    assert told.startswith("thresholds/op.yaml, line 2: no case needs the expected entry for rows=4096,*")
    assert "delete it" in told


def test_an_entry_that_one_of_its_cases_needs_or_may_need_is_not_spoken_of():
    for other in (SLOWER, duelled(0.02)):
        cases = (CASE, "rows=4096,x=1")
        measured = run(against(EQUAL), against(other, case=cases[1]), planned=duel_plan(*cases))
        assert notes(measured, entry()) == []


def test_an_entry_that_fits_no_case_is_named():
    measured = run(against(EQUAL), planned=duel_plan())

    ((kind, told),) = notes(measured, entry(case="zebra=1"))

    assert kind == "expected_fits_nothing"
    assert "delete it" in told


@pytest.mark.parametrize(
    "options",
    [
        {"planned": duel_plan(filter="rows=4096,*")},
        {"stopped": "SIGINT"},
        {"planned": duel_plan(suites=(Suite.ACCURACY,))},
        {"planned": replace(duel_plan(), ops=(PlannedOp("op", failure=BOOM),))},
        {"planned": replace(duel_plan(), ops=())},
    ],
    ids=["--case", "stopped", "accuracy alone", "an op that does not import", "another op"],
)
def test_a_run_that_did_not_look_at_everything_calls_no_entry_unneeded(options):
    measured = run(against(EQUAL), **{"planned": duel_plan()} | options)

    assert notes(measured, entry(), entry(case="zebra=1")) == []


# --- a merge request that asks for one itself -------------------------------------------------------------------------


def test_what_a_change_asks_for_itself_is_told_before_all_else():
    asked = entry(added=True)
    base = replace(BASE, changed_rules=("thresholds/op.yaml",), expected=(asked, entry(0.02, case="rows=7")))
    measured = run(against(SLOWER), planned=duel_plan(base=base))

    judgements = judged(measured, rules(asked))
    first, _, _ = rows.split_notes(judgements, None)

    assert [note.kind for note in judgements.notes][:2] == ["rules_changed", "expected_added"]
    assert [note.kind for note in judgements.notes].count("expected_added") == 1
    told = sentence(judgements.notes[1])
    for word in (
        "op rows=4096,*",
        "6.0 %",
        "2027-01-31",
        "thresholds/op.yaml, line 2",
        "float32 accumulation, see !42",
    ):
        assert word in told
    assert list(first) == [sentence(note) for note in judgements.notes[:2]]


# --- how it is reported -----------------------------------------------------------------------------------------------


def test_the_answer_for_programs_carries_the_entry():
    covered, beyond = (judged(run(against(SLOWER), planned=duel_plan()), rules(entry(x))) for x in (0.06, 0.011))

    for judgements, verdict, gate in ((covered, "EXPECTED", "ok"), (beyond, "REGRESSED", "fails")):
        answer = to_json(judgements)
        (told,) = [row for row in answer["verdicts"] if row["case"] == CASE]
        assert (told["verdict"], told["gate"], answer["gate"]) == (verdict, gate, gate)
        assert told["expected"]["why"] == "float32 accumulation, see !42"
        assert (told["expected"]["file"], told["expected"]["line"]) == ("thresholds/op.yaml", 2)
    assert math.isclose(told["expected"]["up_to"], 0.011)
