from dataclasses import replace

import pytest

from perfci.core.model import OpRun
from perfci.report import accuracy


def table(checks, title="accuracy"):
    found = accuracy.make_parts(OpRun("softmax", tuple(checks)))
    return next(part for part in found if part.title.endswith(f": {title}"))


def with_l2(check, value):
    return replace(check, errors=replace(check.errors, l2=value))


def row(part):
    return dict(zip(part.table.columns, part.table.rows[0], strict=True))


@pytest.fixture
def check(examples):
    return examples.accuracy_case("n=1,dtype=float16")


def test_the_l2_error_stands_beside_the_others_the_worst_of_all_checks(check):
    part = table([with_l2(check, 2e-4), with_l2(check, 5e-4)])

    assert row(part)["L2"] == "5.00e-04"
    assert part.table.columns.index("L2") == part.table.columns.index("RMSE") + 1
    assert "\ue002L2\ue002: the norm of the error over that of the float64 reference." in part.note


def test_a_run_of_before_it_was_measured_has_no_column_for_it(check):
    part = table([with_l2(check, None)])

    assert "L2" not in part.table.columns
    assert "L2" not in part.note


def test_errors_of_extreme_values_are_left_out(examples, check):
    large = with_l2(examples.accuracy_case("n=1,dtype=float16", values="large"), 1.0)

    assert row(table([with_l2(check, 2e-4), large]))["L2"] == "2.00e-04"


def test_tolerances_that_differ_are_told_as_a_range(check):
    part = table([replace(check, rtol=0.001, atol=1e-5), replace(check, rtol=0.001, atol=4e-5)])

    assert row(part)["tolerance (rtol, atol)"] == "0.001, 1e-05 to 4e-05"


def test_refused_input_is_a_row_of_its_own(examples):
    part = table([replace(examples.accuracy_case("rejects=an integer"), errors=None, reference_errors=None)])

    assert row(part)["dtype"] == "bad input"
