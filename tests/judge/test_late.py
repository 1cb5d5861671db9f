"""What the time limit left undone never passes, is never missing, and names what to do."""

from dataclasses import replace

import pytest

from perfci.core.model import Deadline, Gate, OpRun, PerformanceCase, PlannedOp, Reason, Suite, Verdict
from perfci.core.wording import sentence
from tests.decision_examples import CASE, against, baseline, blocks, check, duel_plan, duelled, judged, plan, run

FACTS = {"by": "CI_JOB_TIMEOUT", "limit_s": 3600.0, "reserve_s": 180.0}
OTHER = "rows=1,dtype=float16"


def late(kind, **facts):
    return Reason(kind, {**facts, **FACTS})


def unreached(**options):
    return run(planned=plan(CASE, OTHER), accuracy=(), op={"late": late("op_not_reached", op="op")}, **options)


def kinds(row):
    return [reason.kind for reason in row.reasons]


def by_case(judgements):
    return {(row.suite, row.case): row for row in judgements.rows}


# --- ops --------------------------------------------------------------------------------------------------------------


def test_an_op_that_was_not_reached_is_one_inconclusive_row_that_says_what_to_do():
    judgements = judged(unreached())

    (row,) = judgements.rows
    assert (row.op, row.suite, row.case, row.verdict) == ("op", Suite.ACCURACY, None, Verdict.INCONCLUSIVE)
    assert (kinds(row), judgements.gate) == (["op_not_reached"], Gate.WARNS)
    text = sentence(row.reasons[0])
    assert all(word in text for word in ("CI_JOB_TIMEOUT", "3600", "timeout:", "--deadline", "--shards", "--budget"))


def test_an_op_that_was_ended_while_it_started_was_not_reached_either():
    judgements = judged(run(planned=plan(CASE), accuracy=(), op={"late": late("op_late", op="op")}))

    assert [kinds(row) for row in judgements.rows] == [["op_not_reached"]]


def test_accuracy_that_was_cut_is_inconclusive_and_so_is_every_case():
    planned = plan(CASE, OTHER, accuracy=(CASE, OTHER))
    judgements = judged(run(planned=planned, accuracy=(check(),), op={"late": late("op_late", op="op")}))

    rows = by_case(judgements)
    assert {row.verdict for row in judgements.rows} == {Verdict.INCONCLUSIVE}
    assert kinds(rows[Suite.ACCURACY, None]) == ["accuracy_late"]
    assert [kinds(rows[Suite.PERFORMANCE, case]) for case in (CASE, OTHER)] == [["case_late"]] * 2


def test_a_suite_that_was_cut_behind_its_last_case_is_not_green():
    done, cut = (
        judged(run(PerformanceCase(CASE, blocks=blocks()), op={"late": late(kind, op="op")}))
        for kind in ("op_late", "checks_late")
    )

    row = by_case(cut)[Suite.ACCURACY, None]
    assert by_case(done)[Suite.ACCURACY, None].verdict is Verdict.PASS
    assert (row.verdict, kinds(row)) == (Verdict.INCONCLUSIVE, ["checks_late"])


def test_cases_that_were_done_before_the_end_keep_their_verdicts():
    timed = PerformanceCase(CASE, blocks=blocks())
    judgements = judged(
        run(timed, planned=plan(CASE, OTHER), op={"late": late("op_late", op="op")}), baseline(CASE, OTHER)
    )

    rows = by_case(judgements)
    assert rows[Suite.PERFORMANCE, CASE].verdict is Verdict.PASS
    assert (rows[Suite.PERFORMANCE, OTHER].verdict, kinds(rows[Suite.PERFORMANCE, OTHER])) == (
        Verdict.INCONCLUSIVE,
        ["case_late"],
    )


# --- cases ------------------------------------------------------------------------------------------------------------


def case_row(case, stored=None, planned=None):
    judgements = judged(run(case, planned=planned), stored)
    return by_case(judgements)[Suite.PERFORMANCE, CASE]


@pytest.mark.parametrize("stored", [None, baseline()], ids=["new", "known"])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_half_a_first_look_is_inconclusive_whatever_it_looks_like(count, stored):
    row = case_row(PerformanceCase(CASE, blocks=blocks(count=count), late=late("case_late")), stored)

    assert (row.verdict, row.reasons[0].kind) == (Verdict.INCONCLUSIVE, "case_late")


def test_later_looks_that_could_only_have_told_more_leave_the_verdict():
    case = replace(against(duelled(0.0)), late=late("looks_late"))

    row = case_row(case, planned=duel_plan())

    assert (row.verdict, kinds(row)) == (Verdict.PASS, ["duel_cleared", "looks_late"])


# --- the run ----------------------------------------------------------------------------------------------------------


def test_the_run_says_once_how_much_the_limit_cost():
    planned = replace(plan(CASE), ops=(*plan(CASE, OTHER).ops, PlannedOp("two", (CASE,), (CASE,))))
    measured = run(
        PerformanceCase(CASE, blocks=blocks(), late=late("looks_late")),
        planned=planned,
        op={"late": late("op_late", op="op")},
    )
    measured = replace(measured, ops=(*measured.ops, OpRun("two", late=late("op_not_reached", op="two"))))

    notes = [note for note in judged(measured).notes if note.kind.startswith("run_late")]

    (note,) = notes
    assert [note.facts[key] for key in ("unreached", "cut", "cases", "ops")] == [1, 1, 1, 2]
    assert note.kind == "run_late_reserve" and "180 s are kept" in sentence(note)


def test_a_run_that_was_in_time_says_nothing_and_one_whose_limit_was_ignored_says_so():
    limit = Deadline("2026-01-01T00:00:00Z", 60.0)
    ignored = Reason("deadline_ignored", {"variable": "CI_JOB_TIMEOUT", "value": "soon"})

    quiet, told = (
        judged(run(blocks(), planned=replace(plan(), deadline=limit, deadline_note=note))) for note in (None, ignored)
    )

    assert not any(note.kind.startswith(("run_late", "deadline")) for note in quiet.notes)
    assert ignored in told.notes
