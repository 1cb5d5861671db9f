import math
from dataclasses import replace

import pytest

from perfci.report.past import day
from perfci.report.site import trend
from perfci.report.site.trend import Kind, State
from perfci.thresholds.limits import CaseThresholds, OpThresholds, Thresholds


def exact(histories, us, **changes):
    """Runs of one case with exactly these times; None: the run lacks it."""
    runs = []
    for number, one in enumerate(us):
        each = {name: values[number] for name, values in changes.items() if values[number] is not None}
        cases = [] if one is None else [told(histories, "n=1", one)]
        runs.append(histories.run(number, cases, **each))
    return runs


def told(histories, name, us):
    spread = histories.Spread(us, us, us)
    return histories.HistoryCase(name, 8, spread, histories.Spread(200.0, 200.0, 200.0))


def only(histories, us, **changes):
    (case,) = trend.op(histories.kept(exact(histories, us, **changes))).cases
    return case


def test_a_move_goes_from_the_first_runs_to_the_last():
    assert trend.move([100, 100, 101, 100, 100, 150, 110, 110, 110, 111, 109]) == pytest.approx(0.10)
    assert trend.move([100, None, 103]) == pytest.approx(0.03)
    assert trend.move([100.0]) is None
    assert trend.move([]) is None


def test_one_odd_run_at_the_end_is_no_move():
    assert trend.move([100.0] * 20 + [150.0]) == 0


def test_a_case_is_slower_where_it_lost_more_than_a_merge_request_may(histories):
    assert only(histories, [100.0] * 5 + [100.9] * 5).state is State.STEADY
    assert only(histories, [100.0] * 5 + [101.1] * 5).state is State.SLOWER
    assert only(histories, [100.0] * 5 + [98.5] * 5).state is State.FASTER


def test_what_is_allowed_is_what_the_thresholds_say_of_that_case(histories):
    limits = Thresholds(ops={"softmax": OpThresholds(CaseThresholds(), (("n=1", {"tau": ((0.0, 0.2),)}),))})
    kept = histories.kept(exact(histories, [100.0] * 5 + [115.0] * 5), limits=limits)
    (case,) = trend.op(kept).cases

    assert (case.allowed, case.state) == (0.2, State.STEADY)


def test_three_runs_are_too_few_to_call_a_case_anything(histories):
    assert only(histories, [100.0, 100.0, 150.0]).state is State.FEW
    assert only(histories, [100.0, 100.0, 150.0, 150.0]).state is State.SLOWER


def test_the_jump_at_a_new_driver_is_nobodys_fault(histories):
    drivers = ["580"] * 10 + ["590"] * 10
    case = only(histories, [100.0] * 10 + [110.0] * 10, driver=drivers)

    assert case.state is State.STEADY
    assert case.own == 0
    assert case.move == pytest.approx(0.10)


def test_a_creep_on_both_sides_of_a_new_driver_adds_up(histories):
    drivers = ["580"] * 20 + ["590"] * 20
    us = [100 * 1.0004**n for n in range(20)] + [90 * 1.0004**n for n in range(20)]
    case = only(histories, us, driver=drivers)

    assert case.own == pytest.approx(2 * (1.0004**15 - 1), rel=0.05)
    assert case.state is State.SLOWER


def test_a_driver_that_is_new_in_every_run_leaves_nothing_to_say(histories):
    case = only(histories, [100.0 + n for n in range(10)], driver=[str(n) for n in range(10)])

    assert (case.state, case.own) == (State.FEW, None)
    assert len(case.marks) == 9


def test_an_epoch_is_a_new_beginning_for_its_cases_alone(histories):
    runs = exact(histories, [100.0] * 5 + [105.0] * 5 + [110.0] * 10)
    runs = [replace(one, cases=(*one.cases, replace(one.cases[0], case="n=2"))) for one in runs]
    runs[10] = replace(runs[10], epoch=histories.Epoch("more exact", ("n=1",)))
    first, second = trend.op(histories.kept(runs)).cases

    assert (first.start, first.own, first.state) == (10, 0, State.STEADY)
    assert (second.start, second.state) == (0, State.SLOWER)
    assert second.marks == ()


def test_an_epoch_without_cases_is_about_all(histories):
    runs = exact(histories, [100.0] * 5 + [110.0] * 5)
    runs[5] = replace(runs[5], epoch=histories.Epoch("all of it", ()))

    (mark,) = trend.op(histories.kept(runs)).marks
    assert (mark.kind, mark.what, mark.why, mark.cases) == (Kind.EPOCH, "all cases", "all of it", None)


def test_boards_by_turns_are_one_mark_and_part_nothing(histories):
    boards = ["GPU-1", "GPU-1", "GPU-2", "GPU-1", "GPU-2", "GPU-2", "GPU-3", "GPU-1"]
    case = only(histories, [100.0] * 4 + [102.0] * 4, uuid=boards)

    assert [(mark.kind, mark.run) for mark in case.marks] == [(Kind.BOARD, 2), (Kind.BOARD, 6)]
    assert case.state is State.SLOWER


def test_a_recorded_step_gives_its_reason_to_the_mark(histories):
    runs = exact(histories, [100.0] * 10, driver=["580"] * 5 + ["590"] * 5)
    (mark,) = trend.op(histories.kept(runs, steps=(histories.step(runs, 5),))).marks

    assert (mark.run, mark.kind, mark.why) == (5, Kind.ENVIRONMENT, "New driver on all runners")
    assert mark.what == "device.driver 580 -> 590"


def test_a_step_whose_runs_are_gone_is_placed_by_its_day_or_not_at_all(histories):
    runs = exact(histories, [100.0] * 10)
    step = histories.step(runs, 5)
    unknown = replace(step, after=replace(step.after, run_ids=("elsewhere",)))
    older = replace(unknown, date="2020-01-01T00:00:00Z")
    strange = replace(unknown, date="some day")

    assert [mark.run for mark in trend.op(histories.kept(runs, steps=(unknown,))).marks] == [5]
    assert trend.op(histories.kept(runs, steps=(older, strange))).marks == ()


def test_runs_stand_in_the_order_of_their_lines(histories):
    runs = exact(histories, [100.0] * 5 + [110.0] * 5)
    mixed = [replace(one, created=f"2026-01-{20 - at:02}T00:00:00Z") for at, one in enumerate(runs)]

    (case,) = trend.op(histories.kept(mixed)).cases
    assert case.kernel == (100.0,) * 5 + (110.0,) * 5


def test_a_case_that_the_last_run_lacks_is_gone(histories):
    case = only(histories, [100.0] * 5 + [None])
    assert case.state is not State.GONE  # a run without any case says nothing about one

    runs = exact(histories, [100.0] * 6)
    runs[5] = replace(runs[5], cases=(replace(runs[5].cases[0], case="n=2"),))
    new, old = trend.op(histories.kept(runs)).cases
    assert (new.case, new.state, old.case, old.state) == ("n=2", State.FEW, "n=1", State.GONE)


def test_a_case_that_was_not_accepted_last_is_not_gone(histories):
    runs = exact(histories, [100.0] * 6 + [None])
    runs[6] = replace(runs[6], inconclusive=("n=1",))

    assert trend.op(histories.kept(runs)).cases[0].state is State.STEADY


def test_an_op_is_what_its_worst_case_is(softmax):
    assert softmax.state is State.SLOWER
    assert softmax.worst.case == "rows=4096,cols=32768,dtype=float16"
    assert sorted(case.state for case in softmax.cases).count(State.GONE) == 1


def test_a_planted_creep_is_measured(softmax):
    # 0.11 % a run from run 35 on: 16 runs before the last mark, 10 behind it; medians of five shorten both.
    assert 0.008 < softmax.worst.own < 0.0286


def test_speedup_is_that_of_the_shift_else_of_the_medians(histories):
    spread = histories.Spread(100.0, 99.0, 101.0)
    plain = histories.HistoryCase("n=1", 8, spread, histories.Spread(150.0, 149.0, 151.0))
    shifted, alone = replace(plain, shift=-math.log(1.6)), replace(plain, reference_us=None)
    runs = [histories.run(number, [case]) for number, case in enumerate((plain, shifted, alone))]

    (case,) = trend.op(histories.kept(runs)).cases
    assert case.speedup == (pytest.approx(1.5), pytest.approx(1.6), None)


def test_cases_together_are_a_geometric_mean_that_a_gap_does_not_move(histories):
    runs = exact(histories, [100.0] * 8)
    runs = [
        replace(one, cases=(*one.cases, *([told(histories, "n=2", 9000.0)] if at != 4 else [])))
        for at, one in enumerate(runs)
    ]
    op = trend.op(histories.kept(runs))

    assert op.relative == pytest.approx((0.0,) * 8)
    assert op.move == 0


def test_an_empty_history_has_nothing_to_tell(histories):
    op = trend.op(histories.kept(()))

    assert (op.cases, op.marks, op.worst, op.move, op.state) == ((), (), None, None, State.FEW)


def test_marks_are_named_as_columns_of_a_sheet(histories):
    marks = trend.named([trend.Mark(number, Kind.EPOCH, "") for number in range(60)])

    assert [marks[at].name for at in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]


def test_a_date_that_is_none_is_shown_as_it_stands(histories):
    run = histories.run(0, [], created="yesterday\x1b[31m")

    assert (day(run), trend.minute(run)) == ("yesterday", "yesterday")
