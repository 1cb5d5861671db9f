from dataclasses import fields, replace

import pytest

from perfci.core.model import CompiledKernel, Identity, LaunchIdentity, Limits, OpRun, Reason, Suite, Verdict
from perfci.report import advice, frame
from perfci.report.text import spell

LIMITS = Limits(4000.0, {"float16": 800.0})
L2 = 50 * 2**20
BYTES = 400 * 10**6
"""100 us at the measured copy's rate, and more than four times the cache."""


def spread(us=100.0, span_us=None, activities=1.0):
    return frame.ArmSpread(
        "mm", "n=1", "kernel", 8, 240, us, us, us, us, None, 0.01, 0, span_us or us, 20.0, activities, False
    )


def launched(*grids):
    return Identity(launches=tuple(LaunchIdentity("_kernel", "5f2c", grid) for grid in grids))


@pytest.fixture
def facts(examples):
    """A case without a fault: it fills the device, spills nothing and moves its bytes as fast as a copy."""
    case = replace(
        examples.performance_case("n=1", 100.0),
        case="n=1", dtype="float16", bytes_moved=BYTES, flops=None, identity=launched((1024, 1, 1)),
    )  # fmt: skip
    return advice.CaseFacts("mm", case, LIMITS, spread(), processors=132, l2_bytes=L2)


def changed(facts, **changes):
    """The facts with another case; `kernel`, `limits`, `processors` and `l2_bytes` are the facts' own."""
    own = {name: changes.pop(name) for name in list(changes) if name in {f.name for f in fields(facts)}}
    return replace(facts, case=replace(facts.case, **changes), **own)


def test_a_case_without_a_fault_gets_no_advice(facts):
    assert [rule(facts) for rule in advice.RULES] == [None] * len(advice.RULES)


def test_fewer_programs_than_processors_are_found_unless_the_ceiling_is_reached(facts):
    small = changed(facts, identity=launched((8, 4, 1)), kernel=spread(us=200.0))

    assert spell(advice.find_small_grid(small).numbers) == "`_kernel` runs 32 programs on 132 processors."
    assert advice.find_small_grid(changed(small, kernel=spread())) is None
    assert advice.find_small_grid(changed(small, identity=launched((1, 1, 1), (132, 1, 1)))) is None
    assert advice.find_small_grid(changed(small, processors=None)) is None


def test_spilled_registers_are_found_in_the_kernel_that_spills_most(facts):
    kernels = (CompiledKernel("a", 255, 8), CompiledKernel("b", 255, 64), CompiledKernel("c", 40, 0))

    found = advice.find_spills(changed(facts, compiled=kernels))

    assert spell(found.numbers) == "`b` spills 64 registers of a thread; it has 255."
    assert advice.find_spills(changed(facts, compiled=kernels[2:])) is None


def test_low_bandwidth_is_measured_against_the_copy(facts):
    found = advice.find_low_bandwidth(changed(facts, kernel=spread(us=200.0)))

    assert found.numbers == "It moves 381 MiB in 200 us: 50.0 % of the measured copy, 4000 GB/s."


@pytest.mark.parametrize(
    "silent",
    [
        {"kernel": spread(us=100.0 / advice.LOW_BANDWIDTH * 0.99)},
        {"limits": Limits()},
        {"l2_bytes": None},
        {"l2_bytes": BYTES // advice.L2_TIMES + 1},
        {"cache": "warm"},
        {"flops": 4 * 10**11},
        {"kernel": None},
    ],
)
def test_bandwidth_that_is_enough_unknown_or_not_the_bound_is_not_reported(facts, silent):
    slow = changed(facts, kernel=spread(us=200.0))

    assert advice.find_low_bandwidth(changed(slow, **silent)) is None


def test_low_compute_is_measured_against_the_matrix_product(facts):
    slow = changed(facts, flops=4 * 10**11, kernel=spread(us=1000.0))

    assert advice.find_low_compute(slow).numbers == (
        "At 1000 operations a byte, right of the ridge at 200, it reaches 400 TFLOP/s: 50.0 % of the measured matrix "
        "product in float16."
    )
    assert advice.find_low_compute(changed(slow, kernel=spread(us=600.0))) is None
    assert advice.find_low_compute(changed(slow, limits=Limits(4000.0))) is None


def test_gaps_between_the_kernels_of_a_call_are_found(facts):
    found = advice.find_gaps(changed(facts, kernel=spread(us=10.0, span_us=30.0, activities=3.0)))

    assert found.numbers == (
        "A call lasts 30.0 us for 10.0 us of work in 3 kernels, copies and memsets: 20.0 us of it are gaps."
    )


@pytest.mark.parametrize("close", [(10.0, 12.5), (1000.0, 1050.0), (100.0, None)])
def test_several_launches_without_gaps_might_be_fused(facts, close):
    found = advice.find_gaps(changed(facts, kernel=spread(*close, activities=2.0)))

    assert found.numbers.startswith("A call makes 2 kernels, copies and memsets")


@pytest.mark.parametrize("kernel", [spread(us=10.0, span_us=30.0), spread(us=10.0, activities=None), None])
def test_one_launch_has_no_gaps(facts, kernel):
    assert advice.find_gaps(changed(facts, kernel=kernel)) is None


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
    (part,) = advice.make_parts(run, op, judged, frame.pool_spreads(frame.tabulate_blocks(run)))
    return [tuple(map(spell, row)) for row in part.table.rows]


def test_cases_with_the_same_advice_share_a_row_the_furthest_off_first(examples, slow):
    ((cases, measured, tried),) = rows(examples, slow)

    assert cases == "`n=8`, `n=100`"
    assert measured == "`_kernel` runs 8 programs on 132 processors."
    assert tried == "Processors are left without work: try smaller blocks, or split the reduced axis."


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT])
def test_a_case_that_is_wrong_or_broken_gets_no_advice(examples, slow, verdict):
    ((cases, _, _),) = rows(examples, slow, examples.judgement("mm", "n=8", verdict, examples.reason("example_same")))

    assert cases == "`n=100`"


@pytest.mark.parametrize("suite", [Suite.ACCURACY, Suite.PERFORMANCE])
def test_an_op_that_is_wrong_as_a_whole_gets_no_advice(examples, slow, suite):
    bad = examples.judgement("mm", None, Verdict.WRONG, examples.reason("example_same"), suite=suite)

    assert rows(examples, slow, bad) == []


@pytest.mark.parametrize("changes", [{"failure": Reason("x")}, {"suspicion": (Reason("x"),)}, {"blocks": ()}])
def test_a_case_that_failed_looks_wrong_or_was_not_timed_gets_no_advice(examples, slow, changes):
    bad = replace(slow, performance=tuple(replace(case, **changes) for case in slow.performance))

    assert rows(examples, bad) == []
