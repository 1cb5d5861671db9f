from dataclasses import replace

import pytest

from perfci.core.model import ErrorStats, Limits, OpRun
from perfci.report import frame, speed

LIMITS = Limits(4000.0, {"float16": 800.0})


@pytest.fixture
def case(examples):
    return replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)


def table(examples, case, title, limits=LIMITS):
    op = OpRun("mm", performance=(case,))
    spreads = frame.pool_spreads(frame.tabulate_blocks(examples.run([op])))
    part = next(part for part in speed.make_parts(op, spreads, limits) if part.title.endswith(f": {title}"))
    return [dict(zip(part.table.columns, cells, strict=True)) for cells in part.table.rows]


def test_a_case_is_told_on_which_side_of_the_ridge_it_is_and_how_near_to_its_ceiling(examples, case):
    (found,) = table(examples, case, "achieved rates")

    assert (found["operations a byte"], found["bound by"]) == ("100", "memory")
    assert float(found["of that ceiling"].rstrip(" %")) == pytest.approx(float(found["of copy limit"].rstrip(" %")))


def test_right_of_the_ridge_the_ceiling_is_the_matrix_product(examples, case):
    (found,) = table(examples, replace(case, flops=4 * 10**9), "achieved rates")

    assert found["bound by"] == "arithmetic"
    assert found["of that ceiling"] == found["of matmul limit"]


def test_a_case_that_is_timed_with_a_warm_cache_says_so(examples, case):
    (cold,), (warm,) = table(examples, case, "one call"), table(examples, replace(case, cache="warm"), "one call")

    assert "cache" not in cold
    assert warm["cache"] == "warm"


def test_the_l2_error_of_the_timed_outputs_stands_beside_their_largest(examples, case):
    errors = ErrorStats(10, max_abs=0.25, l2=0.001)

    (found,) = table(examples, replace(case, errors=errors), "one call")

    assert (found["max abs error"], found["L2 error"]) == ("0.250", "0.00100")
