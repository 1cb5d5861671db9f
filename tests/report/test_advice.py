from dataclasses import fields, replace

import pytest

from perfci.core.model import (
    CompiledKernel,
    Identity,
    KernelBinary,
    LaunchIdentity,
    Limits,
    OpRun,
    Reason,
    Static,
    StaticCase,
    StaticOp,
    Suite,
    Verdict,
)
from perfci.report import advice, frame

LIMITS = Limits(4000.0, {"float16": 800.0})
L2 = 50 * 2**20
BYTES = 400 * 10**6
"""100 us at the measured copy's rate, and more than four times the cache."""


def spread(us=100.0, span_us=None, activities=1.0):
    return frame.Spread(
        "mm", "n=1", "kernel", 8, 240, us, us, us, us, None, 0.01, 0, span_us or us, 20.0, activities, False
    )


@pytest.fixture
def facts(examples):
    """A case without a fault: it fills the device, spills nothing and moves its bytes as fast as a copy."""
    launch = LaunchIdentity("_kernel", "5f2c", (1024, 1, 1), 4, 3)
    case = replace(
        examples.performance_case("n=1", 100.0),
        case="n=1", dtype="float16", bytes_moved=BYTES, flops=None, identity=Identity(launches=(launch,)),
    )  # fmt: skip
    return advice.Facts("mm", case, LIMITS, spread(), processors=132, l2_bytes=L2)


def changed(facts, **changes):
    """The facts with another case; `kernel`, `limits`, `processors`, `l2_bytes` and `binaries` are the facts' own."""
    own = {name: changes.pop(name) for name in list(changes) if name in {f.name for f in fields(facts)}}
    return replace(facts, case=replace(facts.case, **changes), **own)


def launched(*grids):
    return Identity(launches=tuple(LaunchIdentity("_kernel", "5f2c", grid) for grid in grids))


def test_a_case_without_a_fault_gets_no_advice(facts):
    assert [rule(facts) for rule in advice.RULES] == [None] * len(advice.RULES)


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_a_grid_smaller_than_the_device_is_told_with_both_numbers(facts):
    found = advice.small_grid(changed(facts, identity=launched((8, 4, 1)), kernel=spread(us=200.0)))
    assert found.numbers == "`_kernel` runs 32 programs on 132 processors."


def test_a_small_grid_that_reaches_its_ceiling_is_not_told(facts):
    assert advice.small_grid(changed(facts, identity=launched((8, 4, 1)))) is None
    assert advice.small_grid(changed(facts, identity=launched((8, 4, 1)), limits=Limits()))


def test_of_several_launches_the_largest_counts(facts):
    facts = changed(facts, bytes_moved=None)
    assert advice.small_grid(changed(facts, identity=launched((1, 1, 1), (132, 1, 1)))) is None
    assert "runs 12 programs" in advice.small_grid(changed(facts, identity=launched((12,), (3, 1, 1)))).numbers


@pytest.mark.parametrize("missing", [{"identity": None}, {"identity": Identity()}, {"processors": None}])
def test_without_a_grid_or_the_number_of_processors_nothing_is_said_of_it(facts, missing):
    assert advice.small_grid(changed(changed(facts, identity=launched((3,)), bytes_moved=None), **missing)) is None


# --- spills -----------------------------------------------------------------------------------------------------------


def test_spills_are_told_of_the_kernel_that_has_most(facts):
    kernels = (CompiledKernel("a", 255, 2), CompiledKernel("b", 128, 40), CompiledKernel("c", 32, 0))

    found = advice.spills(changed(facts, compiled=kernels))

    assert found.numbers == "`b` spills 40 registers of a thread; it has 128."


@pytest.mark.parametrize("kernels", [(), (CompiledKernel("a", 255, 0),), (CompiledKernel("a", 255, None),)])
def test_without_spills_nothing_is_said_of_them(facts, kernels):
    assert advice.spills(changed(facts, compiled=kernels)) is None


# --- bandwidth --------------------------------------------------------------------------------------------------------


def test_a_low_share_of_the_measured_copy_is_told(facts):
    found = advice.low_bandwidth(changed(facts, kernel=spread(us=200.0)))

    assert found.numbers == "It moves 381 MiB in 200 us: 50.0 % of the measured copy, 4000 GB/s."


@pytest.mark.parametrize(
    "silent",
    [
        {"kernel": spread(us=100.0 / advice.LOW_BANDWIDTH * 0.99)},
        {"kernel": None},
        {"bytes_moved": None},
        {"limits": Limits()},
        {"l2_bytes": None},
        {"l2_bytes": BYTES // advice.L2_TIMES + 1},
        {"cache": "warm"},
        {"flops": 10**12},
        {"flops": 10**9, "dtype": "float8"},
    ],
    ids=["high", "untimed", "no bytes", "no limit", "no cache size", "in the cache", "warm", "arithmetic", "no ridge"],
)
def test_bandwidth_that_is_high_unknown_or_not_the_bound_is_not_told(facts, silent):
    slow = changed(facts, kernel=spread(us=200.0))

    assert advice.low_bandwidth(changed(slow, **silent)) is None


def test_declared_operations_left_of_the_ridge_leave_memory_the_bound(facts):
    assert advice.low_bandwidth(changed(facts, kernel=spread(us=200.0), flops=10**9))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_a_low_share_of_the_measured_product_is_told(facts):
    found = advice.low_compute(changed(facts, flops=4 * 10**11, kernel=spread(us=1000.0)))

    assert found.numbers == (
        "At 1000 operations a byte, right of the ridge at 200, it reaches 400 TFLOP/s: 50.0 % of the measured matrix "
        "product in float16."
    )


@pytest.mark.parametrize(
    "silent",
    [
        {"kernel": spread(us=600.0)},
        {"flops": 10**10},
        {"flops": None},
        {"dtype": "float8"},
        {"limits": Limits(4000.0)},
        {"kernel": None},
    ],
    ids=["high", "memory", "no operations", "no product", "no products", "untimed"],
)
def test_arithmetic_that_is_fast_unknown_or_not_the_bound_is_not_told(facts, silent):
    slow = changed(facts, flops=4 * 10**11, kernel=spread(us=1000.0))

    assert advice.low_compute(changed(slow, **silent)) is None


# --- occupancy --------------------------------------------------------------------------------------------------------


def binary(**changes):
    return KernelBinary("_kernel", "5f2c", **{"registers": 255, "shared_bytes": 1024, "warps": 4, **changes})


def low(facts, target="sm_90", occupancy=0.125, **changes):
    made = ((target, binary(occupancy=occupancy, **changes)),)
    return changed(facts, kernel=spread(us=200.0), binaries=made)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "255 registers a thread"),
        ({"registers": 32, "shared_bytes": 200 * 1024}, "200 KiB of shared memory a program"),
        ({"target": "sm_999"}, "255 registers a thread and 1.00 KiB of shared memory"),
        ({"warps": None}, "255 registers a thread and 1.00 KiB of shared memory"),
    ],
)
def test_what_holds_occupancy_down_is_told_where_it_can_be(facts, changes, cause):
    found = advice.low_occupancy(low(facts, **changes))

    assert found.numbers.endswith(f"held down by {cause}.")
    assert found.numbers.startswith("`_kernel` fills 12.5 % of a processor's warps on sm")


def test_occupancy_does_not_matter_where_the_ceiling_is_reached(facts):
    assert advice.low_occupancy(changed(low(facts), kernel=spread())) is None


@pytest.mark.parametrize("occupancy", [None, advice.LOW_OCCUPANCY, 1.0])
def test_occupancy_that_is_unknown_or_enough_is_not_told(facts, occupancy):
    assert advice.low_occupancy(low(facts, occupancy=occupancy)) is None


# --- launches of a call -----------------------------------------------------------------------------------------------


def test_gaps_between_the_kernels_of_a_call_are_told(facts):
    found = advice.gaps(changed(facts, kernel=spread(us=10.0, span_us=30.0, activities=3.0)))

    assert found.numbers == (
        "A call lasts 30.0 us for 10.0 us of work in 3 kernels, copies and memsets: 20.0 us of it are gaps."
    )


@pytest.mark.parametrize(
    "silent",
    [
        spread(us=10.0, span_us=30.0, activities=1.0),
        spread(us=10.0, span_us=30.0, activities=None),
        spread(us=10.0, span_us=12.5, activities=3.0),
        spread(us=1000.0, span_us=1050.0, activities=3.0),
        None,
    ],
    ids=["one kernel", "unknown", "some us", "a small part", "untimed"],
)
def test_gaps_that_are_short_or_unknown_are_not_told(facts, silent):
    assert advice.gaps(changed(facts, kernel=silent)) is None


def test_several_launches_are_told_once(facts):
    close, apart = spread(activities=2.0), spread(us=10.0, span_us=30.0, activities=2.0)

    assert advice.several_launches(changed(facts, kernel=close)).numbers == (
        "A call makes 2 kernels, copies and memsets, 100 us in all."
    )
    assert advice.several_launches(changed(facts, kernel=apart)) is None
    assert advice.several_launches(facts) is None
    assert advice.several_launches(changed(facts, kernel=spread(activities=None))) is None


# --- a whole op -------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(examples):
    """Two cases with too few programs, one of them far more."""
    cases = tuple(
        replace(examples.performance_case(f"n={n}", 10.0), bytes_moved=None, identity=launched((n, 1, 1)))
        for n in (100, 8)
    )
    return OpRun("mm", performance=cases)


def rows(examples, op, *judged, **changes):
    run = examples.run([op], **changes)
    (part,) = advice.parts(run, op, judged, frame.spreads(frame.blocks(run)))
    return part.table.rows


def test_cases_of_one_rule_share_a_row_the_furthest_off_first(examples, slow):
    ((cases, measured, tried),) = rows(examples, slow)

    assert cases == "`n=8`, `n=100`"
    assert measured == "`_kernel` runs 8 programs on 132 processors."
    assert tried == advice.advised(advice.small_grid)


def test_of_many_cases_a_few_are_named(examples, slow):
    many = replace(slow, performance=tuple(replace(slow.performance[1], case=f"n={n}") for n in range(9)))

    ((cases, _, _),) = rows(examples, many)

    assert cases.endswith("and 6 more")


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT])
def test_a_case_that_is_wrong_or_broken_gets_no_advice(examples, slow, verdict):
    bad = examples.judgement("mm", "n=8", verdict, examples.reason("example_same"))

    ((cases, _, _),) = rows(examples, slow, bad)

    assert cases == "`n=100`"


@pytest.mark.parametrize("suite", [Suite.ACCURACY, Suite.PERFORMANCE])
def test_an_op_that_is_wrong_as_a_whole_gets_no_advice(examples, slow, suite):
    bad = examples.judgement("mm", None, Verdict.WRONG, examples.reason("example_same"), suite=suite)

    assert rows(examples, slow, bad) == ()


@pytest.mark.parametrize("changes", [{"failure": Reason("x")}, {"suspicion": (Reason("x"),)}, {"blocks": ()}])
def test_a_case_that_failed_looks_wrong_or_was_not_timed_gets_no_advice(examples, slow, changes):
    bad = replace(slow, performance=tuple(replace(case, **changes) for case in slow.performance))

    assert rows(examples, bad) == ()


def test_binaries_are_those_of_the_same_op_and_case(examples, slow):
    ours, other = binary(occupancy=0.1), binary(occupancy=0.2)
    ops = (
        StaticOp("mm", "sm_90", (StaticCase("n=8", binaries=(ours,)), StaticCase("n=9", binaries=(other,)))),
        StaticOp("softmax", "sm_90", (StaticCase("n=8", binaries=(other,)),)),
    )
    run = examples.run([slow], static=Static(("sm_90",), "triton", ops))

    found = {one.case.case: one.binaries for one in advice.facts(run, slow, (), ())}

    assert found == {"n=100": (), "n=8": (("sm_90", ours),)}


def test_every_rule_has_its_advice():
    assert all(advice.advised(rule).endswith(".") for rule in advice.RULES)
