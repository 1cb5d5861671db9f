from dataclasses import replace

import pytest

from perfci.core.model import Limits, OpRun
from perfci.report import frame, speed

LIMITS = Limits(4000.0, {"float16": 800.0})


@pytest.fixture
def case(examples):
    return replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)


def table(examples, case, title, limits=LIMITS):
    op = OpRun("mm", performance=(case,))
    spreads = frame.pool_spreads(examples.run([op]))
    part = next(part for part in speed.make_parts(op, spreads, limits) if part.title.endswith(f": {title}"))
    return [dict(zip(part.table.columns, cells, strict=True)) for cells in part.table.rows]


@pytest.mark.parametrize(("flops", "bound"), [(10**9, "memory"), (4 * 10**9, "arithmetic")])
def test_the_lower_ceiling_is_what_bounds_a_case(examples, case, flops, bound):
    (row,) = table(examples, replace(case, flops=flops), "achieved rates")

    assert (row["operations a byte"], row["bound by"]) == (f"{flops // 10**7}", bound)
    assert {"of copy limit", "of matmul limit"} < set(row)


def test_a_case_that_is_timed_with_a_warm_cache_says_so(examples, case):
    (cold,), (warm,) = table(examples, case, "one call"), table(examples, replace(case, cache="warm"), "one call")

    assert "cache" not in cold
    assert warm["cache"] == "warm"
