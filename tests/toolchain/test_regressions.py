"""Published regressions of compilers: what of them is found without a GPU, by figures that were recorded."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.core.model.basics import Suite, Verdict
from perfci.core.model.compiled import Identity, LaunchIdentity, Static, StaticCase, StaticOp
from perfci.core.model.place import OFFLINE
from perfci.core.model.run import Plan, PlannedBase, PlannedOp
from tests.decision_examples import BASE, judged, run
from tests.toolchain.regressions import KNOWN, read_figures

PAGE = Path(__file__).parents[2] / "docs" / "without-a-gpu.md"
UNSEEN = {"delta_rule"}  # compiles to fewer instructions of every class, and runs longer


def _judge(regression):
    """The verdict about a kernel, and the figures that got worse."""

    def op(binaries):
        launches = tuple(LaunchIdentity(binary.name, binary.artefact, (8,)) for binary in binaries)
        case = StaticCase("n=4096", Identity(launches=launches, inputs="digest"), binaries)
        return (StaticOp(regression.op, regression.target, (case,)),)

    recorded, found = read_figures()[regression.op], run()
    found = replace(found, environment=replace(found.environment, commit=BASE.commit))
    static = Static((regression.target,), "new", op(recorded["now"]), op(recorded["was"]), "old")
    # With another toolchain the base is the same commit.
    upgrade = replace(BASE, python="/other/python")
    base = BASE if regression.before else upgrade
    planned = PlannedOp(regression.op, (), ("n=4096",), base=PlannedBase())
    plan = Plan((planned,), 1, 1.0, OFFLINE, (Suite.PERFORMANCE,), base=base)
    (row,) = judged(replace(found, plan=plan, ops=(), static=static)).rows
    return row.verdict, {str(reason.facts.get("what")) for reason in row.reasons}


@pytest.mark.parametrize(
    ("op", "figure"),
    [
        ("small_gemm", "integer instructions"),
        ("tutorial_matmul", "integer instructions"),
        ("precise_matmul", "shared memory"),
        ("extend", "spill bytes"),
        ("norm", "occupancy"),
        ("strided", "bytes of a memory access"),
        ("reduced", "instructions"),
        ("swiglu", "double-precision instructions"),
    ],
)
def test_it_is_found_and_its_cause_is_named(op, figure):
    regression = next(regression for regression in KNOWN if regression.op == op)

    verdict, figures = _judge(regression)

    assert verdict is Verdict.REGRESSED
    assert figure in figures


@pytest.mark.parametrize("op", sorted(UNSEEN))
def test_it_is_not_found_without_a_gpu(op):
    assert _judge(next(regression for regression in KNOWN if regression.op == op))[0] is Verdict.PASS


def test_the_page_names_each_with_its_thread_and_whether_it_is_found():
    rows = {link: line for line in PAGE.read_text().splitlines() for link in re.findall(r"\]\((https:\S+)\)", line)}

    assert {regression.thread: regression.op in UNSEEN for regression in KNOWN} == {
        link: "not found" in line for link, line in rows.items() if line.startswith("|")
    }
