"""What is kept of an accepted run: the first look's figures, the worst errors, and the noise of controls."""

from dataclasses import replace

import pytest

from perfci.core.model.basics import ErrorStats, Reason, Suite, Verdict
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import AccuracyCase, ArmBlock, BaseArm, Block, OpRun, PerformanceCase, Summary
from perfci.core.model.place import Limits
from perfci.core.model.run import Plan, PlannedOp, Run
from perfci.extensions.common.accepted_runs import Epoch, Spread
from perfci.extensions.history.accepting import make_line
from tests.history_examples import environment


def arm(us, rsd=0.01, span=1.0):
    return ArmBlock(Summary(8, us, us, us, us, us, us, us, us, rsd, 0), span_us=us + span)


def block(index, us, process=0, base=None):
    arms = {"kernel": arm(us), "reference": arm(2 * us)} | ({"base": arm(us)} if base is not None else {})
    shifts = {"kernel/reference": -0.7} | ({"kernel/base": base} if base is not None else {})
    return Block(index, process, 0.0, arms, shifts)


def case(name="n=1", blocks=(), **fields):
    return PerformanceCase(name, blocks=blocks or tuple(block(i, 10.0 + i) for i in range(5)), **fields)


def run_of(*cases, accuracy=(), planned=None):
    plan = Plan((planned or PlannedOp("softmax"),), 1, 1.0, "cuda")
    op = OpRun("softmax", tuple(accuracy), cases)
    limits = Limits(copy_gbps=4000.0)
    return Run("r1", "2026-01-01T00:00:00Z", "0", "perfci check", environment(), plan, (op,), limits)


def kept(run, *accepted, rows=(), epoch=None):
    return make_line("softmax", run, Judgements(tuple(rows)), accepted or ("n=1",), epoch)


def test_a_case_keeps_the_median_and_quartiles_of_its_block_medians():
    (kept_case,) = kept(run_of(case(compile_s=2.5, peak_bytes=1 << 20, flops=7, cache="warm"))).cases

    assert kept_case.kernel_us == Spread(12.0, 11.0, 13.0)
    assert kept_case.reference_us == Spread(24.0, 22.0, 26.0)
    assert (kept_case.blocks, kept_case.shift, kept_case.span_us, kept_case.rsd) == (5, -0.7, 13.0, 0.01)
    assert (kept_case.compile_s, kept_case.peak_bytes, kept_case.flops, kept_case.cache) == (2.5, 1 << 20, 7, "warm")


def test_the_share_of_the_bandwidth_is_of_the_runs_own_copy():
    (kept_case,) = kept(run_of(case(bytes_moved=24_000_000))).cases

    assert kept_case.bandwidth_share == pytest.approx(24_000_000 / 12e-6 / 4000e9)
    assert kept(run_of(case())).cases[0].bandwidth_share is None


def test_blocks_that_were_measured_again_are_left_out():
    again = (*(block(i, 10.0) for i in range(4)), block(0, 99.0, process=1))

    (kept_case,) = kept(run_of(case(blocks=again))).cases

    assert (kept_case.blocks, kept_case.kernel_us.median_us) == (4, 10.0)


def test_only_accepted_cases_are_kept():
    assert [each.case for each in kept(run_of(case("n=1"), case("n=2")), "n=2").cases] == ["n=2"]


def test_of_a_run_of_which_nothing_was_accepted_nothing_is_kept():
    assert kept(run_of(case()), "n=7") is None
    assert make_line("gone", run_of(case()), Judgements(()), ("n=1",)) is None


def test_cases_that_nothing_could_be_said_about_are_kept_by_name():
    rows = [
        Judgement("softmax", Suite.PERFORMANCE, "n=1", Verdict.INCONCLUSIVE, (Reason("x"),)),
        Judgement("softmax", Suite.PERFORMANCE, "n=2", Verdict.PASS, (Reason("x"),)),
        Judgement("other", Suite.PERFORMANCE, "n=3", Verdict.INCONCLUSIVE, (Reason("x"),)),
    ]

    line = make_line("softmax", run_of(case("n=1"), case("n=2")), Judgements(tuple(rows)), (), Epoch("why", ("n=1",)))

    assert (line.cases, line.inconclusive, line.epoch) == ((), ("n=1",), None)


def control(same=True, duelled=True, failure=None):
    blocks = (block(0, 10.0, 0, 0.001), block(1, 10.0, 0, -0.002), block(0, 10.0, 1, 0.003), block(2, 10.0, 0))
    return case(blocks=blocks, base=BaseArm(same=same, duelled=duelled, failure=failure))


def test_a_control_keeps_the_shifts_of_all_its_processes():
    assert kept(run_of(control())).cases[0].null == ((0.001, -0.002), (0.003,))


@pytest.mark.parametrize(
    "other", [control(same=False), control(same=None), control(duelled=False), control(failure=Reason("x")), case()]
)
def test_a_duel_of_two_that_do_other_work_is_no_noise(other):
    assert kept(run_of(other)).cases[0].null == ()


def test_an_accuracy_case_keeps_the_worst_of_its_checks_on_ordinary_values():
    checks = [
        AccuracyCase(
            "n=1", "normal", "contiguous", 1, errors=ErrorStats(4, max_abs=0.5, p99_abs=0.1, worst_index=(7,))
        ),
        AccuracyCase("n=1", "normal", "strided", 2, errors=ErrorStats(4, max_abs=0.2, p99_abs=0.3, worst_index=(8,))),
        AccuracyCase("n=1", "large", "contiguous", 1, errors=ErrorStats(4, max_abs=9e9)),
        AccuracyCase("n=1", "normal", "contiguous", 3, unchecked=Reason("x")),
    ]

    (kept_check,) = kept(run_of(case(), accuracy=checks)).accuracy

    assert (kept_check.case, kept_check.checks) == ("n=1", 2)
    assert kept_check.errors == ErrorStats(8, max_abs=0.5, p99_abs=0.3, worst_index=(7,))


def test_the_line_says_who_made_it_where_and_what_was_renamed():
    planned = PlannedOp("softmax", renamed={"n=1": "m=1"}, renamed_from="smax")

    line = kept(run_of(case(), planned=planned), epoch=Epoch("float32 sums", ("n=1",)))

    assert (line.run, line.created, line.environment) == ("r1", "2026-01-01T00:00:00Z", environment())
    assert (line.renamed, line.renamed_from) == ({"n=1": "m=1"}, "smax")
    assert line.epoch == Epoch("float32 sums", ("n=1",))


# --- boards -----------------------------------------------------------------------------------------------------------


def judgement(name, verdict, *reasons):
    return Judgement("softmax", Suite.PERFORMANCE, name, verdict, reasons)


def counted(*pairs, **changes):
    """Of a run with these cases and their verdicts: counts by board."""
    cases = tuple(timed for timed, _ in pairs)
    rows = [judgement(timed.case, verdict) for timed, verdict in pairs]
    line = kept(run_of(*cases), *(case.case for case in cases), rows=rows, **changes)
    return {board.board: (board.judged, board.inconclusive, board.suspects, board.overturned) for board in line.boards}


def looks(name, *processes, board=None):
    blocks = tuple(block(at, 10.0, process=process) for at, process in enumerate(processes))
    return case(name, blocks=tuple(replace(block, board=board) for block in blocks))


def test_a_board_is_told_what_its_first_looks_came_to():
    counts = counted(
        (looks("a", 0, 0), Verdict.PASS),
        (looks("b", 0, 1, 2), Verdict.PASS),
        (looks("c", 0, 1), Verdict.REGRESSED),
        (looks("d", 0, 1), Verdict.INCONCLUSIVE),
    )

    assert counts == {"GPU-1": (4, 1, 2, 1)}


def test_each_board_of_a_run_has_counts_of_its_own_and_a_case_names_another_than_the_runs():
    elsewhere = looks("b", 0, board="GPU-2")

    assert counted((looks("a", 0), Verdict.PASS), (elsewhere, Verdict.PASS)) == {
        "GPU-1": (1, 0, 0, 0),
        "GPU-2": (1, 0, 0, 0),
    }
    line = kept(run_of(looks("a", 0), elsewhere), "a", "b")
    assert [case.board for case in line.cases] == [None, "GPU-2"]


def test_what_time_ran_out_for_and_what_has_no_verdict_tell_of_no_board():
    late = replace(looks("a", 0), late=Reason("case_late"))

    assert counted((late, Verdict.INCONCLUSIVE), (looks("b", 0), Verdict.PASS)) == {"GPU-1": (1, 0, 0, 0)}
    assert kept(run_of(looks("a", 0)), "a").boards == ()
