import pytest

from perfci.model import (
    AccuracyCase,
    ArmBlock,
    Block,
    Limits,
    OpRun,
    PerformanceCase,
    Reason,
    Summary,
)
from perfci.worker.gather import Gathered
from perfci.worker.protocol import Checked, Finished, Measured, OpDone, Prepared, Step, Waiting

CASE = "rows=1"
SUSPICION = Reason("above_bandwidth", {"case": CASE})


def block(index, process=0):
    arm = ArmBlock(Summary(30, 5.0, 4.9, 4.9, 4.95, 5.1, 5.2, 5.3, 5.01, 0.01, 1))
    return Block(index, process, 0.0, {"kernel": arm, "reference": arm}, {"kernel/reference": 0.0})


def gathered(start, *messages):
    found = Gathered(start)
    for message in messages:
        found.hear(message)
    return found


def first_look():
    prepared = PerformanceCase(CASE, bytes_moved=8, compile_s=1.5, warmup_launches=20)
    finished = PerformanceCase(CASE, bytes_moved=8, compile_s=1.5, warmup_launches=20, suspicion=(SUSPICION,))
    return gathered(
        OpRun("relu"),
        Step("accuracy", "relu"),
        Checked(AccuracyCase(CASE, "normal", "contiguous", 0)),
        Prepared(prepared),
        Measured(CASE, block(0), {}),
        Waiting("somebody"),
        Measured(CASE, block(1), {}),
        Finished(finished),
        OpDone(tuned="abc", verify_s=1.0, measure_s=2.0, busy_share=0.7, limits=Limits(4000.0)),
    )


def test_all_that_a_worker_said_is_the_record_of_its_op():
    found = first_look()
    op = found.op_run()

    assert (op.op, op.tuned, op.verify_s, op.measure_s, op.busy_share) == ("relu", "abc", 1.0, 2.0, 0.7)
    assert [case.case for case in op.accuracy] == [CASE]
    (case,) = op.performance
    assert case.blocks == (block(0), block(1))
    assert (case.suspicion, case.compile_s) == ((SUSPICION,), 1.5)
    assert found.limits == Limits(4000.0)
    assert op.failure is None


def test_what_was_said_before_a_worker_died_is_kept():
    found = gathered(OpRun("relu"), Prepared(PerformanceCase(CASE, compile_s=1.5)), Measured(CASE, block(0), {}))

    op = found.op_run(Reason("worker_died"))

    assert op.failure == Reason("worker_died")
    assert op.performance == (PerformanceCase(CASE, compile_s=1.5, blocks=(block(0),)),)


def test_a_case_that_failed_before_it_was_timed_has_its_failure_and_no_blocks():
    failed = PerformanceCase(CASE, failure=Reason("kernel_raised"), raised=True)

    assert gathered(OpRun("relu"), Prepared(failed)).op_run().performance == (failed,)


def test_a_remeasurement_adds_blocks_and_the_first_looks_facts_stand():
    start = first_look().op_run()
    again = gathered(
        start,
        Prepared(PerformanceCase(CASE, compile_s=9.0, warmup_launches=99)),
        Measured(CASE, block(0, process=1), {}),
        Finished(PerformanceCase(CASE, compile_s=9.0)),
        OpDone(tuned="other", verify_s=None, measure_s=9.0, busy_share=0.1),
    )

    op = again.op_run()

    (case,) = op.performance
    assert case.blocks == (block(0), block(1), block(0, process=1))
    assert (case.compile_s, case.warmup_launches, case.suspicion) == (1.5, 20, (SUSPICION,))
    assert (op.tuned, op.verify_s, op.measure_s, op.busy_share) == ("abc", 1.0, 2.0, 0.7)
    assert op.accuracy == start.accuracy


def test_a_remeasurement_adds_each_suspicion_once():
    other = Reason("timing_function_replaced", {"name": "time.perf_counter"})
    again = gathered(first_look().op_run(), Finished(PerformanceCase(CASE, suspicion=(SUSPICION, other))))

    assert again.op_run().performance[0].suspicion == (SUSPICION, other)


@pytest.mark.parametrize("message", [Prepared, Finished])
def test_a_remeasurement_that_fails_adds_its_failure_and_takes_nothing_away(message):
    failure = Reason("kernel_raised", {"case": CASE})
    again = gathered(first_look().op_run(), message(PerformanceCase(CASE, failure=failure, raised=True)))

    (case,) = again.op_run().performance

    assert (case.failure, case.raised) == (failure, True)
    assert (case.compile_s, case.suspicion, len(case.blocks)) == (1.5, (SUSPICION,), 2)


def test_the_first_failure_of_a_case_stands():
    wrong = Reason("timed_output_wrong", {"case": CASE})
    start = gathered(OpRun("relu"), Finished(PerformanceCase(CASE, failure=wrong))).op_run()

    again = gathered(start, Finished(PerformanceCase(CASE, failure=Reason("kernel_raised"), raised=True)))

    assert (again.op_run().performance[0].failure, again.op_run().performance[0].raised) == (wrong, False)


def test_a_remeasurement_whose_worker_dies_keeps_the_first_look():
    op = gathered(first_look().op_run()).op_run(Reason("worker_hung"))

    assert op.failure == Reason("worker_hung")
    assert len(op.performance[0].blocks) == 2
