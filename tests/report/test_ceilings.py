from dataclasses import replace

import pytest

from perfci.core.model import Limits, OpRun, Suite, Verdict
from perfci.report import ceilings, frame

LIMITS = Limits(4000.0, {"float16": 800.0})


@pytest.fixture
def case(examples):
    return replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)


def test_a_case_left_of_the_ridge_is_bound_by_memory(case):
    place = ceilings.find_place("mm", case, 10.0, LIMITS)

    assert (place.intensity, place.ridge, place.by_memory) == (100.0, 200.0, True)
    assert place.tflops == pytest.approx(100.0)
    assert place.ceiling == pytest.approx(400.0)
    assert place.share == pytest.approx(0.25)


def test_a_case_right_of_the_ridge_is_bound_by_arithmetic(case):
    place = ceilings.find_place("mm", replace(case, flops=10**10), 100.0, LIMITS)

    assert not place.by_memory
    assert (place.ceiling, place.share) == (800.0, pytest.approx(0.125))


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT])
@pytest.mark.parametrize("whole", [True, False])
def test_unsound_cases_have_no_place(examples, case, verdict, whole):
    op = OpRun("mm", performance=(case, replace(case, case="m=2,dtype=float16")))
    named = None if whole else case.case
    row = examples.judgement("mm", named, verdict, examples.reason("example_same"), suite=Suite.PERFORMANCE)

    points = ceilings.find_points([op], frame.pool_spreads(examples.run([op])), [row], LIMITS)

    assert [one.case.case for one in points] == ([] if whole else ["m=2,dtype=float16"])


def test_without_operations_the_ceiling_is_the_copys_and_without_limits_there_is_none(case):
    def find(case, limits):
        (point,) = ceilings.find_points([OpRun("mm", performance=(case,))], [kernel_of(case)], [], limits)
        return point.share

    assert find(case, LIMITS) == pytest.approx(0.25)
    assert find(replace(case, flops=None), LIMITS) == pytest.approx(0.25)
    assert find(replace(case, flops=None), Limits()) is None
    assert find(replace(case, bytes_moved=None), LIMITS) is None


def kernel_of(case):
    return replace(next(frame.pool_case("mm", case)), arm="kernel", p50_us=10.0)
