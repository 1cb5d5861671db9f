"""Layers above the values that people wrote."""

from dataclasses import replace
from datetime import date

import pytest

from perfci.core.model import Expected
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.layers import Relaxed, is_stricter
from perfci.thresholds.limits import OpThresholds, Thresholds

CASE = "rows=7,dtype=float16"


def limits(earned=None, entries=(), commanded=None, **written):
    thresholds_of_op = OpThresholds(CaseThresholds(**written))
    thresholds = Thresholds(ops={"softmax": thresholds_of_op}, commanded=commanded or {})
    return replace(thresholds, earned={"softmax": {CASE: earned or {}}}, loosened={"softmax": tuple(entries)})


def relaxed(key, to=None, case=None):
    return Relaxed("softmax", key, "why", "2027-01-31", case=case, to=to)


def test_an_earned_value_tightens():
    limit = limits({"tau": 0.012, "speedup": 1.4, "max_abs": 1e-3}, speedup=1.2).for_case("softmax", CASE)

    assert (limit.speedup, limit.max_abs) == (1.4, 1e-3)
    assert (limit.tau_at(2.0), limit.tau_at(20.0), limit.tau_at(100.0)) == (0.012, 0.012, 0.01)


def test_an_earned_value_never_loosens_what_people_wrote():
    written = CaseThresholds(speedup=1.6, rsd=0.01)
    limit = limits({"tau": 0.2, "speedup": 1.4, "rsd": 0.04}, speedup=1.6, rsd=0.01).for_case("softmax", CASE)

    assert limit == written


def test_a_relaxed_entry_loosens_what_was_earned_and_written():
    limit = limits({"tau": 0.005}, [relaxed("tau", 0.03)]).for_case("softmax", CASE)

    assert (limit.tau_at(2.0), limit.tau_at(100.0)) == (0.03, 0.03)


def test_a_relaxed_entry_without_a_value_goes_back_to_what_people_wrote():
    limit = limits({"tau": 0.005, "speedup": 1.5}, [relaxed("tau"), relaxed("speedup")]).for_case("softmax", CASE)

    assert limit == CaseThresholds()


def test_a_relaxed_entry_is_about_the_cases_that_fit_it():
    limit = limits({}, [relaxed("rsd", 0.2, "rows=8,*")])

    assert limit.for_case("softmax", CASE).rsd == 0.05
    assert limit.for_case("softmax", "rows=8,dtype=float16").rsd == 0.2


def test_the_command_line_holds_above_all():
    limit = limits({"tau": 0.005}, [relaxed("tau", 0.03)], {"tau": 0.02, "alpha": 0.05})

    assert limit.for_case("softmax", CASE).tau_at(100.0) == 0.02
    assert limit.for_case("matmul", CASE).tau_at(1.0) == 0.02
    assert limit.alpha == 0.05


def test_an_expected_slow_down_widens_what_was_earned_too():
    written = limits({"tau": 0.005, "speedup": 1.5})
    entry = Expected("softmax", CASE, 0.06, "agreed", "2027-01-31")
    thresholds_of_op = replace(written.ops.get("softmax", OpThresholds(written.default)), expected=(entry,))
    limit = replace(written, ops={"softmax": thresholds_of_op}, excusing=0).for_case("softmax", CASE)

    assert limit.tau_at(100.0) == 0.06
    assert limit.speedup == pytest.approx(1.5 / 1.06)


@pytest.mark.parametrize(("day", "holds"), [("2027-01-31", True), ("2027-02-01", False), ("2020-01-01", True)])
def test_an_entry_holds_to_its_last_day(day, holds):
    assert relaxed("tau", 0.03).holds(date.fromisoformat(day)) is holds
    assert relaxed("tau", 0.03).holds(None)


def test_no_value_is_the_loosest():
    assert is_stricter("registers", 0.5, None)
    assert not is_stricter("registers", None, 0.5)
    assert not is_stricter("registers", None, None)
    assert is_stricter("bandwidth_share", 0.9, 0.8)
