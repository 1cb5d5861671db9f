import dataclasses
from collections.abc import Mapping

import pytest

from perfci.core.errors import UsageError
from perfci.core.model.baseline import Step, StepCase, StepSide
from perfci.core.model.basics import Reason, Suite, Verdict
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import ArmBlock, Block, Cache, OpRun, PerformanceCase, Summary
from perfci.core.model.place import Device, Environment
from perfci.core.model.run import Plan, PlannedOp, Run
from perfci.core.wording import sentence
from perfci.runs.accept import Evidence, accept

H200 = Device("cuda", "NVIDIA H200", "nvidia-h200")
CPU = Device("cpu", "CPU", "cpu")
OLD, NEW = {"torch": "2.11.0"}, {"torch": "2.13.0"}


def arm(us: float) -> ArmBlock:
    return ArmBlock(Summary(8, us, us, us, us, us, us, us, us, 0.0, 0), span_us=us + 0.5)


def block(index: int, us: float, process: int = 0) -> Block:
    return Block(index, process, 0.0, {"kernel": arm(us), "reference": arm(12.0)}, {"kernel/reference": -0.18})


def evidence(
    run_id: str,
    us: float = 10.0,
    cases: tuple[str, ...] = ("rows=1", "rows=2"),
    *,
    device: Device = H200,
    timer: str = "activity",
    pattern: str | None = None,
    dirty: bool = False,
    packages: Mapping[str, str] | None = None,
    verdicts: tuple[Judgement, ...] = (),
    cache: Cache = "cold",
) -> Evidence:
    measured = tuple(
        PerformanceCase(case, blocks=(block(0, us), block(1, us + 1), block(0, us + 9, process=1)), cache=cache)
        for case in cases
    )
    plan = Plan((PlannedOp("softmax", performance=cases),), 1, 1.0, device.kind, filter=pattern)
    environment = Environment(device, timer, "3.12", packages or {}, "host", "Linux", commit="abc", dirty=dirty)
    run = Run(run_id, "2026-01-01", "0.1.0", "perfci check", environment, plan, (OpRun("softmax", (), measured),))
    return run, Judgements(verdicts)


def judged(verdict: Verdict, case: str | None, suite: Suite = Suite.PERFORMANCE, op: str = "softmax") -> Judgement:
    return Judgement(op, suite, case, verdict, (Reason("because"),))


def test_the_first_looks_of_a_run_become_the_baseline():
    acceptance = accept("softmax", [evidence("r1")])

    assert acceptance.accepted == ("rows=1", "rows=2")
    assert acceptance.refused == ()
    assert acceptance.baseline is not None
    assert (acceptance.baseline.op, acceptance.baseline.device, acceptance.baseline.timer) == (
        "softmax",
        "nvidia-h200",
        "activity",
    )
    assert [run.id for run in acceptance.baseline.runs] == ["r1"]
    blocks = acceptance.baseline.cases[0].blocks
    assert [(one.run, one.kernel_us, one.reference_us, one.shift, one.span_us) for one in blocks] == [
        ("r1", 10.0, 12.0, -0.18, 10.5),
        ("r1", 11.0, 12.0, -0.18, 11.5),
    ]


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT, Verdict.INCONCLUSIVE])
def test_a_case_that_cannot_be_trusted_is_refused_with_a_reason(verdict):
    acceptance = accept("softmax", [evidence("r1", verdicts=(judged(verdict, "rows=1"),))])

    assert acceptance.accepted == ("rows=2",)
    assert [(reason.facts["case"], reason.facts["verdict"]) for reason in acceptance.refused] == [
        ("rows=1", verdict.value)
    ]


@pytest.mark.parametrize("cases", [("rows=1", "rows=2"), ()])
def test_an_op_that_is_wrong_and_so_was_not_timed_is_refused_by_name(cases):
    run, judgements = evidence("r1", cases=cases, verdicts=(judged(Verdict.WRONG, None, Suite.ACCURACY),))
    untimed = dataclasses.replace(run, ops=(OpRun("softmax", (), ()),))

    acceptance = accept("softmax", [(untimed, judgements)])

    assert (acceptance.accepted, acceptance.baseline) == ((), None)
    assert [reason.facts["case"] for reason in acceptance.refused] == [*(cases or ["accuracy"])]
    assert sentence(acceptance.refused[0]).endswith("softmax is WRONG in run r1; resolve that and run again.")


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.REGRESSED, Verdict.NEW, Verdict.STALE, Verdict.TOO_SLOW])
def test_a_case_that_was_measured_well_is_accepted_whatever_its_speed(verdict):
    assert accept("softmax", [evidence("r1", verdicts=(judged(verdict, "rows=1"),))]).refused == ()


def test_a_case_that_lacks_blocks_alone_is_accepted_as_its_sentence_says():
    """Beside a baseline of one run a family may be too large for any verdict: else no run could ever be added."""
    row = Judgement("softmax", Suite.PERFORMANCE, "rows=1", Verdict.INCONCLUSIVE, (Reason("too_few_blocks", {}),))

    acceptance = accept("softmax", [evidence("r1", verdicts=(row,)), evidence("r2", verdicts=(row,))])

    assert (acceptance.accepted, acceptance.refused) == (("rows=1", "rows=2"), ())


@pytest.mark.parametrize("case", ["rows=7", None])
def test_a_wrong_kernel_has_no_speed_in_any_case(case):
    acceptance = accept("softmax", [evidence("r1", verdicts=(judged(Verdict.WRONG, case, Suite.ACCURACY),))])

    assert acceptance.baseline is None
    assert len(acceptance.refused) == 2


def test_a_case_that_the_op_no_longer_has_leaves_the_baseline():
    old = accept("softmax", [evidence("r1")]).baseline

    acceptance = accept("softmax", [evidence("r2", cases=("rows=2",))], old)

    assert acceptance.baseline is not None
    assert [case.case for case in acceptance.baseline.cases] == ["rows=2"]


def test_a_filtered_run_leaves_the_other_cases_as_they_were():
    old = accept("softmax", [evidence("r1")]).baseline

    acceptance = accept("softmax", [evidence("r2", cases=("rows=2",), pattern="rows=2")], old)

    assert acceptance.baseline is not None
    assert {case.case: case.blocks[0].run for case in acceptance.baseline.cases} == {"rows=1": "r1", "rows=2": "r2"}
    assert [run.id for run in acceptance.baseline.runs] == ["r1", "r2"]


def test_a_refused_case_keeps_its_old_blocks():
    old = accept("softmax", [evidence("r1")]).baseline

    acceptance = accept("softmax", [evidence("r2", verdicts=(judged(Verdict.SUSPECT, "rows=1"),))], old)

    assert acceptance.baseline is not None
    assert {case.case: case.blocks[0].run for case in acceptance.baseline.cases} == {"rows=1": "r1", "rows=2": "r2"}


@pytest.mark.parametrize(
    ("runs", "kind"),
    [
        ([evidence("r1", device=CPU)], "accept_no_baselines"),
        ([evidence("r1", dirty=True)], "accept_dirty"),
        ([evidence("r1"), evidence("r2", timer="event")], "accept_mixed"),
        ([evidence("r1"), evidence("r2", device=Device("fake", "Fake One", "fake-one"))], "accept_mixed"),
        ([evidence("r1"), evidence("r1")], "accept_twice"),
        ([evidence("r1", packages=OLD), evidence("r2", packages=NEW)], "accept_mixed"),
        ([evidence("r1"), evidence("r2", cache="warm")], "accept_mixed"),
    ],
)
def test_runs_that_do_not_go_together_are_refused(runs, kind):
    with pytest.raises(UsageError) as caught:
        accept("softmax", runs)

    assert caught.value.reason.kind == kind


# --- runs of several environments -------------------------------------------------------------------------------------


def board(uuid: str, driver: str = "580") -> Device:
    return dataclasses.replace(H200, uuid=uuid, driver=driver)


def test_runs_of_several_boards_make_one_baseline():
    acceptance = accept("softmax", [evidence("r1", device=board("GPU-1")), evidence("r2", device=board("GPU-2"))])

    assert acceptance.baseline is not None
    assert len(acceptance.baseline.runs) == 2


def test_steps_outlive_whatever_is_accepted_later():
    old = accept("softmax", [evidence("r1")]).baseline
    assert old is not None
    side = StepSide(("r0",), ("abc",))
    step = Step("2026-01-01T00:00:00Z", "driver 590", side, side, (), (StepCase("rows=1", 0.05, 0.05),))

    acceptance = accept("softmax", [evidence("r2")], dataclasses.replace(old, steps=(step,)))

    assert acceptance.baseline is not None
    assert acceptance.baseline.steps == (step,)
