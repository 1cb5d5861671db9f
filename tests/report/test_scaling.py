from dataclasses import replace

import pytest

from perfci.core.model import Limits, OpRun
from perfci.report import frame
from perfci.report.scaling import BYTES, OPERATIONS, find_curves

LIMITS = Limits(4000.0, {"float16": 800.0, "bfloat16": 760.0})


def op(examples, *cases, bytes_moved=None):
    """bytes_moved: of each case, None for all where the op declares none."""
    moved = bytes_moved or [None] * len(cases)
    measured = [
        replace(examples.performance_case(case, 10.0 * (i + 1)), bytes_moved=size)
        for i, (case, size) in enumerate(zip(cases, moved, strict=True))
    ]
    return OpRun("softmax", performance=tuple(measured))


def found(examples, one, **changes):
    return find_curves(one, frame.pool_spreads(frame.tabulate_blocks(examples.run([one]))), **changes)


def sizes(curve):
    return [size for size, _ in curve.arms["kernel"]]


def test_the_size_is_what_the_op_declares_to_move(examples):
    one = op(examples, "n=1", "n=2", "n=3", bytes_moved=[100, 200, 400])

    seen = found(examples, one, limits=LIMITS)

    assert (seen.axis, seen.limit.per_us) == (BYTES, 4e6)
    (curve,) = seen.curves
    assert sizes(curve) == [100, 200, 400]
    median = one.performance[0].blocks[0].arms["kernel"].time.median_us
    assert curve.arms["kernel"][0][1] == pytest.approx(median, rel=0.05)
    assert set(curve.arms) == {"kernel", "reference"}


def test_else_it_is_the_axis_that_varies(examples):
    seen = found(examples, op(examples, "rows=64,n=1", "rows=64,n=2", "rows=64,n=8"), limits=LIMITS)

    assert (seen.axis, seen.limit) == ("n", None)
    assert sizes(seen.curves[0]) == [1, 2, 8]


def test_of_several_axes_it_is_the_one_with_most_values_and_the_others_tell_curves_apart(examples):
    cases = [f"rows={rows},n={n}" for rows in (16, 64) for n in (1, 2, 4)]

    seen = found(examples, op(examples, *cases))

    assert seen.axis == "n"
    assert {curve.name: sizes(curve) for curve in seen.curves} == {"rows=16": [1, 2, 4], "rows=64": [1, 2, 4]}


@pytest.mark.parametrize(
    ("flops", "axis", "per_us"),
    [
        ((10**6, 10**7, 10**8), OPERATIONS, 8e8),
        ((10**3, 10**7, 10**8), OPERATIONS, 8e8),
        ((10**3, 10**4, 10**8), BYTES, 4e6),
        ((None, 10**7, 10**8), BYTES, 4e6),
    ],
    ids=["all bound by arithmetic", "most", "few", "not all known"],
)
def test_operations_are_the_size_where_most_cases_are_bound_by_arithmetic(examples, flops, axis, per_us):
    plain = op(examples, *(f"n={n},dtype=float16" for n in (1, 2, 4)), bytes_moved=[10**3, 10**4, 10**5])
    cases = tuple(replace(case, flops=count) for case, count in zip(plain.performance, flops, strict=True))

    seen = found(examples, replace(plain, performance=cases), limits=LIMITS)

    assert (seen.axis, seen.limit.per_us) == (axis, per_us)


def test_shapes_of_the_same_bytes_stand_at_the_same_size(examples):
    cases = ["rows=1,n=64", "rows=64,n=1", "rows=8,n=16", "rows=2,n=2"]

    seen = found(examples, op(examples, *cases, bytes_moved=[128, 128, 256, 8]))

    assert sizes(seen.curves[0]) == [8, 128, 128, 256]


@pytest.mark.parametrize(
    ("cases", "moved"),
    [
        (["n=1", "n=2"], [10, 20]),
        (["n=1", "n=2", "n=4"], [10, 10, 10]),
        (["n=1,dtype=a", "n=2,dtype=b", "n=4,dtype=c"], [10, 20, 40]),
        (["kind=a", "kind=b", "kind=c"], None),
        (["n=0", "n=1", "n=2"], None),
    ],
)
def test_fewer_than_three_sizes_of_one_kind_make_no_curve(examples, cases, moved):
    assert found(examples, op(examples, *cases, bytes_moved=moved)) is None


def test_bytes_that_only_some_cases_declare_are_no_size(examples):
    seen = found(examples, op(examples, "n=1", "n=2", "n=4", bytes_moved=[10, None, 40]), limits=LIMITS)

    assert (seen.axis, seen.limit) == ("n", None)
