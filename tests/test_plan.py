import pytest

from perfci.errors import UsageError
from perfci.model import PlannedOp, Reason, Suite
from perfci.plan import SEED_BITS, Request, draw_seed, make_plan

RELU = PlannedOp("relu", ("rows=1",), ("rows=2", "rows=3"))
SCALE = PlannedOp("scale", (), ("rows=2",))
BROKEN = PlannedOp("broken", failure=Reason("no_cases", {"file": "broken_accuracy.py"}))


def test_a_plan_keeps_what_was_asked_for():
    request = Request(("relu",), "rows=*", "fake", 0.5, 7, "event", (Suite.ACCURACY,))

    plan = make_plan(request, [RELU, SCALE], "fake")

    assert (plan.ops, plan.seed, plan.budget_s, plan.device) == ((RELU, SCALE), 7, 0.5, "fake")
    assert (plan.suites, plan.filter) == ((Suite.ACCURACY,), "rows=*")


def test_the_family_is_every_performance_case_of_every_op():
    assert make_plan(Request(), [RELU, SCALE, BROKEN], "fake").family == 3


def test_seed_0_is_a_seed():
    assert make_plan(Request(seed=0), [RELU], "fake").seed == 0


def test_a_seed_that_nobody_asked_for_is_drawn_afresh():
    drawn = {make_plan(Request(), [RELU], "fake").seed for _ in range(20)}

    assert len(drawn) > 15
    assert all(0 <= seed < 1 << SEED_BITS for seed in drawn | {draw_seed()})


def test_a_pattern_that_fits_no_case_of_any_sound_op_is_a_usage_error():
    empty = [PlannedOp("relu"), PlannedOp("scale"), BROKEN]

    with pytest.raises(UsageError) as caught:
        make_plan(Request(pattern="rows=9"), empty, "fake")

    assert caught.value.reason == Reason("no_case_fits", {"pattern": "rows=9", "ops": "relu, scale"})


@pytest.mark.parametrize("described", [[RELU, PlannedOp("scale")], [SCALE], [BROKEN], []])
def test_a_pattern_that_fits_one_op_or_finds_only_broken_ones_is_none(described):
    assert make_plan(Request(pattern="rows=2"), described, "fake").filter == "rows=2"


def test_ops_without_cases_need_no_pattern():
    assert make_plan(Request(), [PlannedOp("relu")], "fake").family == 0
