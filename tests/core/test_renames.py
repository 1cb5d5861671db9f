"""Baselines follow their cases and ops under the names of now."""

from perfci.core.model import Baseline, BaselineBlock, BaselineCase, Plan, PlannedOp
from perfci.core.renames import baseline_of, with_aliases


def stored(op, *cases, us=10.0):
    return Baseline(
        op, "gpu", "activity", (), tuple(BaselineCase(case, (BaselineBlock("r", us, us, 0.0),)) for case in cases)
    )


def ids(baseline):
    return [case.case for case in baseline.cases]


def test_a_renamed_case_is_stored_under_its_new_name():
    baseline = baseline_of(PlannedOp("op", renamed={"m=1": "n=1"}), {"op": stored("op", "n=1", "n=2")})

    assert ids(baseline) == ["m=1", "n=2"]


def test_of_a_case_stored_under_both_names_the_newer_counts():
    baseline = baseline_of(PlannedOp("op", renamed={"m=1": "n=1"}), {"op": stored("op", "n=1", "m=1")})

    assert ids(baseline) == ["m=1"]


def test_what_a_renamed_op_has_itself_comes_first():
    baselines = {"old": stored("old", "n=1"), "new": stored("new", "n=2")}

    assert ids(baseline_of(PlannedOp("new", renamed_from="old"), baselines)) == ["n=2"]


def test_all_ops_of_a_plan_are_followed_and_others_left_alone():
    plan = Plan((PlannedOp("new", renamed_from="old"), PlannedOp("lone")), 1, 1.0, "cuda")
    baselines = {"old": stored("old", "n=1"), "stays": stored("stays", "n=1")}

    aliased = with_aliases(baselines, plan)

    assert sorted(aliased) == ["new", "old", "stays"]
