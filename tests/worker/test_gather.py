import pytest

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    BaseArm,
    Block,
    Device,
    HostArm,
    HostBlock,
    Identity,
    Limits,
    Measured,
    OpRun,
    PerformanceCase,
    Reason,
    Summary,
)
from perfci.core.wording import sentence
from perfci.runs.looks import Gathered
from perfci.worker.protocol import Doing, Finished, OpDone, Prepared, Ready, Waiting

CASE = "rows=1"
SUSPICION = Reason("above_bandwidth", {"case": CASE})


def block(index, process=0):
    arm = ArmBlock(Summary(30, 5.0, 4.9, 4.9, 4.95, 5.1, 5.2, 5.3, 5.01, 0.01, 1))
    return Block(index, process, 0.0, {"kernel": arm, "reference": arm}, {"kernel/reference": 0.0})


def gathered(start, *messages):
    gathered_op = Gathered(start)
    for message in messages:
        gathered_op.hear(message)
    return gathered_op


def first_look():
    prepared = PerformanceCase(CASE, bytes_moved=8, compile_s=1.5)
    finished = PerformanceCase(CASE, bytes_moved=8, compile_s=1.5, suspicion=(SUSPICION,))
    return gathered(
        OpRun("relu"),
        Doing("accuracy", "relu"),
        AccuracyCase(CASE, "normal", "contiguous", 0),
        Prepared(prepared),
        Measured(CASE, block(0), {}),
        Waiting("somebody"),
        Measured(CASE, block(1), {}),
        Finished(finished),
        OpDone(tuned="abc", verify_s=1.0, measure_s=2.0, limits=Limits(4000.0)),
    )


def test_all_that_a_worker_said_is_the_record_of_its_op():
    gathered_op = first_look()
    op = gathered_op.op_run()

    assert (op.op, op.tuned, op.verify_s, op.measure_s) == ("relu", "abc", 1.0, 2.0)
    assert [case.case for case in op.accuracy] == [CASE]
    (case,) = op.performance
    assert case.blocks == (block(0), block(1))
    assert (case.suspicion, case.compile_s) == ((SUSPICION,), 1.5)
    assert gathered_op.limits == Limits(4000.0)
    assert op.failure is None


def test_a_remeasurement_adds_blocks_and_the_first_looks_facts_stand():
    start = first_look().op_run()
    again = gathered(
        start,
        Prepared(PerformanceCase(CASE, compile_s=9.0)),
        Measured(CASE, block(0, process=1), {}),
        Finished(PerformanceCase(CASE, compile_s=9.0)),
        OpDone(tuned="other", verify_s=None, measure_s=9.0),
    )

    op = again.op_run()

    (case,) = op.performance
    assert case.blocks == (block(0), block(1), block(0, process=1))
    assert (case.compile_s, case.suspicion) == (1.5, (SUSPICION,))
    assert case.compile_again_s == (9.0,)
    assert (op.tuned, op.verify_s, op.measure_s) == ("abc", 1.0, 2.0)
    assert op.accuracy == start.accuracy


def test_a_remeasurement_adds_its_host_times_once_it_is_whole():
    looks = [(HostBlock(0, process, 10, {"kernel": HostArm(4.0, 5.0)}),) for process in (0, 1)]
    start = gathered(OpRun("relu"), Finished(PerformanceCase(CASE, host=looks[0]))).op_run()

    whole, cut = (
        gathered(start, Finished(PerformanceCase(CASE, host=looks[1]), short=short)).op_run() for short in (False, True)
    )

    assert whole.performance[0].host == (*looks[0], *looks[1])
    assert cut.performance[0].host == looks[0]


@pytest.mark.parametrize("message", [Prepared, Finished])
def test_a_remeasurement_that_fails_adds_its_failure_and_takes_nothing_away(message):
    failure = Reason("kernel_raised", {"case": CASE})
    again = gathered(first_look().op_run(), message(PerformanceCase(CASE, failure=failure, raised=True)))

    (case,) = again.op_run().performance

    assert (case.failure, case.raised) == (failure, True)
    assert (case.compile_s, case.suspicion, len(case.blocks)) == (1.5, (SUSPICION,), 2)


# --- boards -----------------------------------------------------------------------------------------------------------


def on_board(uuid):
    return Ready(Device("cuda", "NVIDIA H200", "nvidia-h200", uuid), "activity")


def test_blocks_of_another_board_than_the_runs_name_it():
    gathered = Gathered(first_look().op_run(), board="GPU-0")
    for message in (on_board("GPU-1"), Measured(CASE, block(0, process=1), {})):
        gathered.hear(message)
    for message in (on_board("GPU-0"), Measured(CASE, block(0, process=2), {})):
        gathered.hear(message)

    (case,) = gathered.op_run().performance
    assert [(block.process, block.board) for block in case.blocks] == [(0, None), (0, None), (1, "GPU-1"), (2, None)]


# --- the base ---------------------------------------------------------------------------------------------------------

BASE = BaseArm(same=False, duelled=True)
LOST = Reason("base_raised", {"case": CASE})


def test_a_base_that_fails_while_it_is_timed_is_told_when_the_case_ends():
    failed = BaseArm(same=False, duelled=True, failure=LOST)
    gathered_op = gathered(
        OpRun("relu"), Prepared(PerformanceCase(CASE, base=BASE)), Finished(PerformanceCase(CASE, base=failed))
    )

    assert gathered_op.op_run().performance[0].base == failed


@pytest.mark.parametrize(
    ("stage", "together"), [("prepare", True), ("measure", True), ("accuracy", False), ("import", False)]
)
def test_a_worker_that_dies_while_both_revisions_are_at_work_does_not_tell_whose_fault_it_was(stage, together):
    died = Reason("worker_died", {"op": "relu", "where": stage, "signal": "SIGSEGV", "words": "x", "log": "y"})

    why = gathered(OpRun("relu"), Doing(stage, "relu", CASE)).apart(died)

    assert (why is not None) is together
    if why:
        assert why.kind == "died_together"
        assert "SIGSEGV" in sentence(why)


# --- when the time is up ----------------------------------------------------------------------------------------------

LATE = Reason("case_late", {"by": "--deadline", "limit_s": 60.0})
OTHER_CASE = "rows=2"


def two_cases(*messages):
    prepared = (Prepared(PerformanceCase(case)) for case in (CASE, OTHER_CASE))
    return gathered(OpRun("relu"), *prepared, *(Measured(case, block(0), {}) for case in (CASE, OTHER_CASE)), *messages)


def test_of_a_later_look_that_was_cut_nothing_is_kept_but_that_it_was():
    start = two_cases(*(Finished(PerformanceCase(case)) for case in (CASE, OTHER_CASE))).op_run()
    again = gathered(
        start,
        *(Measured(case, block(i, process=1), {}) for case in (CASE, OTHER_CASE) for i in range(2)),
        Finished(PerformanceCase(CASE)),
        Finished(PerformanceCase(OTHER_CASE), short=True),
    )

    whole, cut = again.op_run(None, LATE, (CASE, OTHER_CASE)).performance

    assert [(one.process, one.index) for one in whole.blocks] == [(0, 0), (1, 0), (1, 1)]
    assert [(one.process, one.index) for one in cut.blocks] == [(0, 0)]
    assert (whole.late, cut.late) == (None, LATE)


def test_a_case_that_was_not_wanted_is_not_late_and_one_that_got_its_blocks_is_so_no_more():
    start = two_cases(Finished(PerformanceCase(CASE), short=True)).op_run(None, LATE)
    again = gathered(start, Measured(CASE, block(0, process=1), {}), Finished(PerformanceCase(CASE)))

    first, other = again.op_run(None, None, (CASE,)).performance

    assert (first.late, other.late) == (None, LATE)


def test_a_remeasurement_adds_what_autotuners_chose_for_kernel_and_base():
    def chose(kernel, base):
        return PerformanceCase(
            CASE, identity=Identity(choices=(kernel,)), base=BaseArm(identity=Identity(choices=(base,)))
        )

    start = gathered(OpRun("relu"), Finished(chose("k: BLOCK: 64", "k: BLOCK: 32"))).op_run()

    (case,) = gathered(start, Finished(chose("k: BLOCK: 128", "k: BLOCK: 32"))).op_run().performance

    assert case.chosen == ("k: BLOCK: 64", "k: BLOCK: 32")
    assert case.chosen_again == (("k: BLOCK: 128", "k: BLOCK: 32"),)
