"""Runs with parts that fit together, as perfci writes them, and names and numbers that make no sense."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.model.basics import Shift
from perfci.core.model.compiled import Static, StaticCase, StaticOp
from perfci.core.model.measured import AccuracyCase, ArmBlock, BaseArm, Block, OpRun, PerformanceCase
from perfci.core.model.place import Environment
from perfci.core.model.run import Plan, PlannedBase, PlannedOp, Run
from tests.fuzz import values

SHIFTS = values.of(Shift)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """One or two ops, planned and measured, on a device that times."""
    names = draw(st.lists(st.sampled_from(values.NAMES), min_size=1, max_size=2, unique=True))
    planned = [draw(_planned()) for _ in names]
    ops = [draw(_op(name, cases)) for name, cases in zip(names, planned, strict=True)]
    plan = draw(values.records(Plan, ops=st.just(tuple(map(_named, planned, names)))))
    static = draw(st.none() | _static(names))
    return draw(values.records(Run, ops=st.just(tuple(ops)), plan=st.just(plan), static=st.just(static)))


def _named(planned: PlannedOp, op: str) -> PlannedOp:
    return replace(planned, op=op)


def _planned() -> st.SearchStrategy[PlannedOp]:
    cases = st.lists(st.sampled_from(values.CASES), max_size=3, unique=True).map(tuple)
    base = st.none() | values.records(PlannedBase, performance=cases)
    return values.records(PlannedOp, performance=cases, accuracy=cases, audit=cases, base=base)


@st.composite
def _op(draw: st.DrawFn, name: str, planned: PlannedOp) -> OpRun:
    measured = tuple(draw(_performance(case)) for case in planned.performance if draw(st.booleans()))
    checked = tuple(draw(values.records(AccuracyCase, case=st.just(case))) for case in planned.accuracy)
    return draw(values.records(OpRun, op=st.just(name), performance=st.just(measured), accuracy=st.just(checked)))


@st.composite
def _performance(draw: st.DrawFn, case: str) -> PerformanceCase:
    arms = ("kernel", "reference", "base")[: draw(st.integers(2, 3))]
    blocks = [draw(_block(arms, index)) for index in range(draw(st.sampled_from([0, 1, 4, 9])))]
    base = draw(values.records(BaseArm, duelled=st.just(True))) if "base" in arms else None
    fixed = {"case": st.just(case), "blocks": st.just(tuple(blocks)), "base": st.just(base)}
    return draw(values.records(PerformanceCase, **fixed))


@st.composite
def _block(draw: st.DrawFn, arms: tuple[str, ...], index: int) -> Block:
    timed = {name: draw(values.records(ArmBlock)) for name in arms}
    shifts = {f"kernel/{name}": draw(SHIFTS) for name in arms[1:]}
    return draw(
        values.records(Block, index=st.just(index), arms=st.just(timed), shifts=st.just(shifts))
    )  # fmt: skip


@st.composite
def _static(draw: st.DrawFn, names: list[str]) -> Static:
    def ops() -> tuple[StaticOp, ...]:
        cases = st.lists(values.records(StaticCase), max_size=2, unique_by=lambda case: case.case).map(tuple)
        return tuple(draw(values.records(StaticOp, op=st.just(name), cases=cases)) for name in names)

    return draw(values.records(Static, ops=st.just(ops()), base_ops=st.just(ops())))


@st.composite
def baselines(draw: st.DrawFn, run: Run) -> dict[str, Baseline]:
    """What is stored for some of the run's ops, mostly for its device and timer."""
    parts = {}
    for op in run.plan.ops:
        if draw(st.booleans()):
            parts[op.op] = draw(_baseline(op, run.environment))
    return parts


@st.composite
def _baseline(draw: st.DrawFn, op: PlannedOp, environment: Environment) -> Baseline:
    ids = ("r1", "r2", "r3")
    cases = tuple(BaselineCase(case, tuple(draw(_stored(ids)))) for case in op.performance)
    sources = tuple(BaselineRun(name, "2026-01-01T00:00:00Z", environment) for name in ids)
    fixed: dict[str, Any] = {"op": op.op, "runs": sources, "cases": cases, "device": environment.device.key}
    timer = st.just(environment.timer or "event")
    return draw(values.records(Baseline, timer=timer, **{name: st.just(value) for name, value in fixed.items()}))


def _stored(ids: tuple[str, ...]) -> st.SearchStrategy[list[BaselineBlock]]:
    block = values.records(BaselineBlock, run=st.sampled_from(ids))
    return st.sampled_from([0, 1, 6, 24]).flatmap(lambda count: st.lists(block, min_size=count, max_size=count))
