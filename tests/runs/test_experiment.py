"""Measuring and deciding by turns: what comes first if time is short."""

import ast

import pytest

from perfci.core.model import Comparison, Interval, Judgement, Judgements, Look, Need, Reason, Suite, Verdict
from perfci.runs.experiment import order_needs
from tests.sources import trees, walk

TAU = 0.01


def look(shift):
    return Look(12, 1, Interval(shift, shift, shift), 1.0, 1.0, (shift,), (12,), TAU)


def row(case, reason="duel_open", **seen):
    comparison = Comparison("op", case, **seen)
    return Judgement("op", Suite.PERFORMANCE, case, Verdict.INCONCLUSIVE, (Reason(reason),), comparison)


def turns(*rows):
    needs = tuple(Need("op", one.case, 1) for one in rows)
    return [[need.case for need in part] for part in order_needs(Judgements(rows, needs))]


def test_what_speaks_against_a_case_goes_first_the_strongest_before_the_others():
    rows = [
        row("faster", duel=look(-0.05)),
        row("slower", duel=look(0.011)),
        row("much slower", duel=look(0.05)),
        row("longer", duel=look(-0.001), duel_span=look(0.02)),
    ]

    assert turns(*rows) == [["much slower", "longer", "slower"], ["faster"]]


@pytest.mark.parametrize("kind", ["too_slow_suspected", "bandwidth_suspected", "compile_suspected"])
def test_a_case_that_falls_short_of_its_target_is_a_suspect(kind):
    assert turns(row("on time", duel=look(0.02)), row("short", kind, duel=look(-0.01))) == [["short", "on time"]]


STEPS = ("new_run", "make_plan", "verify_rules_unchanged", "refuse_looser")


def test_a_step_that_every_kind_of_check_takes_is_called_at_one_place():
    calls = [
        (getattr(node.func, "id", None) or getattr(node.func, "attr", None), path.name)
        for path, tree in trees().items()
        for node in walk(tree)
        if isinstance(node, ast.Call)
    ]

    assert sorted(call for call in calls if call[0] in STEPS) == [(step, "experiment.py") for step in sorted(STEPS)]
