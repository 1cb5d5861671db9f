from dataclasses import replace

import pytest

from perfci.core.model import OpRun
from perfci.report import accuracy


def row(*checks):
    table = next(accuracy.make_parts(OpRun("softmax", checks))).table
    return dict(zip(table.columns, table.rows[0], strict=True))


def with_l2(check, value):
    return replace(check, errors=replace(check.errors, l2=value))


@pytest.fixture
def check(examples):
    return examples.accuracy_case("n=1,dtype=float16")


def test_errors_are_the_worst_of_all_checks_with_ordinary_values(examples, check):
    large = with_l2(examples.accuracy_case("n=1,dtype=float16", values="large"), 1.0)

    assert row(with_l2(check, 2e-4), with_l2(check, 5e-4), large)["L2"] == "5.00e-04"


def test_an_error_that_no_check_measured_has_no_column(check):
    assert "L2" not in row(with_l2(check, None))


def test_tolerances_that_differ_are_a_range(check):
    found = row(replace(check, rtol=0.001, atol=1e-5), replace(check, rtol=0.001, atol=4e-5))

    assert found["tolerance (rtol, atol)"] == "0.001, 1e-05 to 4e-05"


def test_refused_input_is_a_row_of_its_own(examples):
    refused = replace(examples.accuracy_case("rejects=an integer"), errors=None, reference_errors=None)

    assert row(refused)["dtype"] == "bad input"
