"""Boards with results that are advice: their times gate nothing, and wrong answers stay wrong."""

from dataclasses import replace

import pytest

from perfci.core.model import BaseArm, Gate, Judgement, Judgements, OpRun, PerformanceCase, Reason, Suite, Verdict
from perfci.core.wording import sentence
from perfci.extensions.history.accepting import make_line
from perfci.judge.quarantine import advise
from perfci.runs.accept import accept
from tests.decision_examples import CASE, blocks, duel_plan, duelled, environment, judged, row_of, run

SLOW = PerformanceCase(CASE, blocks=duelled(0.05, 0.05), base=BaseArm(same=False, duelled=True))


def on(board, made, process=None):
    """Blocks as measured on a board, or those of one process."""
    return tuple(replace(block, board=board) if process in {None, block.process} else block for block in made)


def made(case=SLOW, uuid="GPU-1"):
    timed = run(case, planned=duel_plan())
    return replace(timed, environment=environment(uuid=uuid))


def row(timed, quarantine, judgements=None):
    judgements = judgements or judged(timed)
    return row_of(advise(timed, judgements, quarantine))


def test_a_regression_on_a_quarantined_board_alone_is_inconclusive_and_says_so():
    timed = made()
    judgements = advise(timed, judged(timed), ("GPU-1",))
    told = row_of(judgements)

    assert row_of(judged(timed)).verdict is Verdict.REGRESSED
    assert (told.verdict, told.gate) == (Verdict.INCONCLUSIVE, Gate.WARNS)
    assert told.reasons[0].kind == "board_quarantined"
    assert told.reasons[0].facts["verdict"] == "REGRESSED"
    assert told.reasons[1:-1] == row_of(judged(timed)).reasons
    assert judgements.notes[-1].kind == "only_quarantined"
    assert all("{" not in sentence(reason) for reason in (*told.reasons, *judgements.notes))


@pytest.mark.parametrize("listed", ["GPU-1", "gpu-1", "1", " GPU-1 "])
@pytest.mark.parametrize("uuid", ["GPU-1", "gpu-1", "1"])
def test_a_board_is_known_by_any_spelling_of_its_uuid(listed, uuid):
    assert row(made(uuid=uuid), (listed,)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("uuid", "listed"), [("GPU-1", ("GPU-12",)), (None, ("GPU-1",)), ("GPU-1", ())])
def test_another_board_and_one_that_is_not_known_gate_as_ever(uuid, listed):
    timed = made(uuid=uuid)

    assert advise(timed, judged(timed), listed) == judged(timed)


def test_where_another_board_joined_the_verdict_stands():
    timed = made(replace(SLOW, blocks=on("GPU-2", SLOW.blocks, process=1)))

    assert row(timed, ("GPU-1",)).verdict is Verdict.REGRESSED
    assert row(timed, ("GPU-1", "GPU-2")).verdict is Verdict.INCONCLUSIVE


def test_of_merged_shards_only_the_cases_of_that_board_advise():
    cases = [
        replace(SLOW, case=name, blocks=on(board, SLOW.blocks)) for name, board in (("a", "GPU-1"), ("b", "GPU-2"))
    ]
    timed = replace(made(uuid=None), ops=(OpRun("op", performance=tuple(cases)),))
    rows = tuple(
        Judgement("op", Suite.PERFORMANCE, case.case, Verdict.REGRESSED, (Reason("slower"),)) for case in cases
    )

    judgements = advise(timed, Judgements(rows), ("GPU-2",))

    assert [row.verdict for row in judgements.rows] == [Verdict.REGRESSED, Verdict.INCONCLUSIVE]
    assert judgements.notes[0].kind == "some_quarantined"
    assert judgements.notes[0].facts == {"boards": "GPU-2", "count": 1, "cases": 2}
    assert judgements.gate is Gate.FAILS


def judged_as(verdict, suite=Suite.PERFORMANCE, case=CASE):
    judged = made()
    op = judged.ops[0].op
    judgements = Judgements((Judgement(op, suite, case, verdict, (Reason("why"),)),))
    return advise(judged, judgements, ("GPU-1",)).rows[0]


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.PASS, Verdict.STALE, Verdict.NEW])
def test_other_verdicts_stay_and_say_where_they_come_from(verdict):
    judged = judged_as(verdict)

    assert (judged.verdict, judged.reasons[-1].kind) == (verdict, "board_advises")


def test_what_was_timed_on_a_quarantined_board_becomes_no_baseline():
    case = PerformanceCase(CASE, blocks=blocks())
    timed = run(case)
    judgements = advise(timed, judged(timed), ("GPU-1",))
    op = timed.ops[0].op

    answer = accept(op, [(timed, judgements)])

    assert answer.baseline is None
    assert [reason.kind for reason in answer.refused] == ["accept_quarantined"]
    assert "GPU-1" in sentence(answer.refused[0])
    assert accept(op, [(timed, judged(timed))]).accepted == (CASE,)


def test_the_history_counts_what_a_quarantined_board_said_as_judged_and_not_as_open():
    timed = made()
    op = timed.ops[0].op
    kept = make_line(op, timed, advise(timed, judged(timed), ("GPU-1",)), ())

    (counts,) = kept.boards
    assert (counts.board, counts.judged, counts.inconclusive, counts.suspects, counts.overturned) == (
        "GPU-1",
        1,
        0,
        1,
        0,
    )
