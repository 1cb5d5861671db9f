"""Whether a release is fit, by what the commands left in the reports folder."""

import dataclasses
import json
from pathlib import Path

import pytest

from perfci import store
from perfci.cli.output import keep_answer
from perfci.core import settings
from perfci.core.model import Coverage, CoverageGap, Feature, Gate, Reason, Verdict
from perfci.core.model.run import Again
from perfci.lab.chains.records import ChainCase
from perfci.lab.soak.findings import SoakFinding, Status
from perfci.report.fitness import render_release
from perfci.runs import fitness
from tests.git_repositories import alone, commit_all, start

STORED = Path(__file__).parents[1] / "stored" / "format-1" / "reports"
OPS = ("relu", "row_sum", "scale")


@pytest.fixture
def where(tmp_path, monkeypatch):
    """A project of three ops and a chain, for whose commit everything was checked and is fine."""
    alone(monkeypatch, tmp_path)
    root = start(tmp_path / "project")
    (root / ".gitignore").write_text("reports/\n")
    for op in OPS:
        (root / "kernels" / op).mkdir(parents=True)
        (root / "kernels" / op / f"{op}_triton.py").write_text("")
    (root / "kernels" / "_chains").mkdir()
    (root / "kernels" / "_chains" / "block_chain.py").write_text("")
    commit = commit_all(root)
    found = settings.load(root)
    run = store.read_run(STORED)
    fine = dataclasses.replace(
        run,
        environment=dataclasses.replace(run.environment, commit=commit),
        # Against no base and no baseline every case is NEW.
        plan=dataclasses.replace(run.plan, base=None),
        ops=tuple(
            dataclasses.replace(
                op, performance=tuple(dataclasses.replace(case, base=None) for case in op.performance),
                accuracy=tuple(each for each in op.accuracy if not each.failure),
            )
            for op in run.ops
        ),
    )  # fmt: skip
    store.write_run(fine, found.reports)
    empty = dataclasses.replace(fine, ops=(), plan=dataclasses.replace(fine.plan, ops=(), again=Again("", (), "v1.0")))
    store.write_run(empty, found.reports / "creep")
    keep_answer(found, "soak", {"findings": [SoakFinding(op, "decay", "rows=4", Status.PASS) for op in OPS]})
    keep_answer(found, "chains", {"chains": [{"chain": "block", "cases": [ChainCase("x=1", 1)]}]})
    keep_answer(found, "coverage", {"ops": [Coverage(op, "sm_90") for op in OPS]})
    return found


def read(where):
    return fitness.read_fitness(where, [where.reports])[0]


def part(where, name):
    return next(each for each in read(where).parts if each.name.startswith(name))


def test_a_release_of_which_everything_was_looked_at_is_fit(where):
    found = read(where)

    assert {each.name.partition(",")[0]: each.gate for each in found.parts} == dict.fromkeys(
        ("Check", "Creep since the last release", "Soak", "Chains", "Coverage of suites"), Gate.OK
    )
    assert (found.fit, found.release) == (True, "v1.0")


@pytest.mark.parametrize(
    ("name", "file", "command"),
    [
        ("Check", "run.json", "perfci check"),
        ("Creep", "creep/run.json", "perfci check --against-release"),
        ("Soak", "soak/soak.json", "perfci check --soak"),
        ("Chains", "chains/chains.json", "perfci check --chain"),
        ("Coverage", "coverage/coverage.json", "perfci list --coverage"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "torn", "of another tool", "of tomorrow"])
def test_what_nobody_looked_at_or_cannot_be_read_makes_it_unfit(where, name, file, command, damage):
    path = where.reports / file
    if damage == "missing":
        path.unlink()
    else:
        texts = {"torn": path.read_bytes()[:-20], "of another tool": b"[]", "of tomorrow": b'{"format": 99}'}
        path.write_bytes(texts[damage])
    found = read(where)

    assert not found.fit
    assert found.gravest[0].name.startswith(name)
    assert found.gravest[0].command == command
    assert "Nobody looked yet" in found.gravest[0].what or str(path) in found.gravest[0].what


def test_what_is_of_another_commit_says_nothing_about_this_one(where):
    (where.root / "kernels" / "relu" / "relu_triton.py").write_text("# other")
    commit_all(where.root)

    assert {each.gate for each in read(where).parts} == {None}
    assert "which is checked out: run it again" in part(where, "Soak").what


def test_what_left_ops_or_cases_out_does_not_count(where):
    keep_answer(where, "soak", {"findings": [SoakFinding("relu", "decay", "rows=4", Status.PASS)]})
    keep_answer(where, "coverage", {"case": "x=*", "ops": [Coverage(op, "sm_90") for op in OPS]})

    assert (part(where, "Soak").gate, part(where, "Coverage").gate) == (None, None)
    assert "left out 2 of 3 ops: row_sum, scale" in part(where, "Soak").what


def test_what_failed_is_said_first_with_what_to_do(where):
    leak = Reason("soak_leak", {"case": "rows=4", "rate": 96.0, "before": 1, "after": 2, "calls": 3})
    keep_answer(where, "soak", {"findings": [SoakFinding(op, "memory", "rows=4", Status.FAIL, leak) for op in OPS]})
    found = read(where)
    page = render_release(found, "kernels")

    assert (found.fit, found.gate, found.gravest[0].command) == (False, Gate.FAILS, "perfci check --soak")
    assert len(found.gravest[0].details) == 2
    assert page.index("leaves 96 B of device memory") < page.index("Parts")


def test_wrong_chains_and_holes_in_coverage_fail(where):
    wrong = ChainCase("x=1", 1, failures=(Reason("worker_silent"),))
    keep_answer(where, "chains", {"chains": [{"chain": "block", "cases": [wrong]}]})
    gap = CoverageGap("rows=4", (Feature("kernel", "", "", "program", "0"),))
    keep_answer(where, "coverage", {"ops": [Coverage("relu", "sm_90", (gap,)), *(Coverage(op, "x") for op in OPS[1:])]})

    assert (part(where, "Chains").gate, part(where, "Coverage").gate) == (Gate.FAILS, Gate.FAILS)


def test_chains_that_could_not_be_checked_here_leave_it_open(where):
    unchecked = ChainCase("x=1", 1, unchecked=Reason("chain_accelerator_case", {"case": "x=1"}))
    keep_answer(where, "chains", {"chains": [{"chain": "block", "cases": [unchecked]}]})

    assert part(where, "Chains").gate is None


def test_a_first_release_has_nothing_to_creep_from(where):
    path = where.reports / "creep"
    run = store.read_run(path)
    store.write_run(dataclasses.replace(run, plan=dataclasses.replace(run.plan, again=Again())), path)

    assert part(where, "Creep").gate is Gate.OK


def test_a_check_that_fails_lends_its_head_to_the_page(where):
    run = store.read_run(where.reports)
    broken = dataclasses.replace(run.ops[0], failure=Reason("worker_silent"))
    store.write_run(dataclasses.replace(run, ops=(broken, *run.ops[1:])), where.reports)
    found, judged = fitness.read_fitness(where, [where.reports])

    assert found.gravest[0].table.rows[0][0].strip("\ue001") == Verdict.ERROR
    assert not found.fit
    assert {row.verdict for row in judged[0][1].rows if row.op == "relu"} >= {Verdict.ERROR}


def test_without_any_report_nothing_is_claimed(tmp_path, where):
    found = dataclasses.replace(where, reports=tmp_path / "none")

    assert read(found).parts == ()
    assert not read(found).fit
    assert "perfci list --coverage" in render_release(read(found), "kernels")


def test_answers_are_kept_as_documented(where):
    kept = json.loads((where.reports / "soak" / "soak.json").read_text())

    assert kept["format"] == 1
    assert not kept["dirty"]
    assert kept["findings"][0]["status"] == "PASS"
