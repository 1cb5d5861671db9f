"""Baselines across a change of the environment: what is refused, what is written, and whether the code changed too."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from perfci import store
from perfci.cli.output import print_parts
from perfci.core.codec import encode
from perfci.core.errors import UsageError
from perfci.core.model import Bearing, Difference, Interval, OpRun, PerformanceCase, Plan, PlannedOp, Reason, Run
from perfci.core.wording import sentence
from perfci.extensions.common.history import read_history
from perfci.extensions.history.commands.environment import describe_for_programs, show_moves
from perfci.extensions.history.rebaseline import CaseMove, Rebaselined, RebaselineOptions, rebaseline_runs
from perfci.report.data import write_plain
from perfci.runs.accept_runs import AcceptOptions, accept_runs
from perfci.runs.decide import decide
from tests.decision_examples import blocks, check, environment
from tests.git_repositories import commit, commit_all, git

WRITE = RebaselineOptions(write=True, why="driver 590 everywhere")
CASES = ("rows=1,dtype=float16", "rows=2,dtype=float16")


def run_of(settings, name, *, slower=1.0, kernel=1.0, commit=None, ops=("relu", "scale"), cases=CASES, **surroundings):
    """A run of ops with blocks that have noise; the environment makes all slower, or kernels alone."""
    timed = blocks(kernel, clock=slower, seed=sum(map(ord, name)))
    measured = tuple(OpRun(op, (check(),), tuple(PerformanceCase(case, blocks=timed) for case in cases)) for op in ops)
    plan = Plan(tuple(PlannedOp(op, ("rows=4096,dtype=float16",), cases) for op in ops), 1, 1.0, "cuda")
    now = environment(commit=commit or git(settings.root, "rev-parse", "HEAD"), **surroundings)
    return Run(name, f"2026-01-01T00:00:{len(name):02}Z", "0", "perfci check --no-judge", now, plan, measured)


@pytest.fixture
def project(settings):
    """A repository with baselines of driver 580."""
    git(settings.root.parent, "init", "-q", "-b", "main", str(settings.root))
    (settings.root / ".gitignore").write_text("reports/\nbaselines/\n")
    commit_all(settings.root)
    accept_runs([run_of(settings, "old")], settings, (), AcceptOptions())
    return settings


def path_of(settings, op, key="nvidia-h200"):
    return store.baseline_path(settings.baselines, key, op)


def stored(settings, op="relu"):
    return store.read_baseline(path_of(settings, op))


def bytes_of(settings):
    return {path: path.read_bytes() for path in settings.baselines.rglob("*.json")}


def kinds(rebaselined):
    return [reason.kind for one in rebaselined for reason in (*one.withheld, *one.said)]


def refused(runs, settings, *arguments):
    before = bytes_of(settings)
    with pytest.raises(UsageError) as caught:
        rebaseline_runs(runs, settings, *arguments)
    assert bytes_of(settings) == before
    assert "{" not in sentence(caught.value.reason)
    return caught.value.reason


# --- showing and writing ----------------------------------------------------------------------------------------------


def test_without_a_wish_to_write_all_is_shown_and_nothing_changes(project):
    before = bytes_of(project)

    rebaselined = rebaseline_runs([run_of(project, "new", slower=1.05, driver="590")], project, (), RebaselineOptions())

    assert [one.op for one in rebaselined] == ["relu", "scale"]
    assert all(one.taken == CASES and one.path is None for one in rebaselined)
    assert rebaselined[0].cases[0].kernel.value == pytest.approx(0.05, abs=0.005)
    assert bytes_of(project) == before


def test_what_was_written_is_what_a_later_run_is_held_against(project):
    rebaselined = rebaseline_runs([run_of(project, "new", slower=1.05, driver="590")], project, (), WRITE)

    again = decide(run_of(project, "later", slower=1.05, driver="590"), project)

    assert [one.path for one in rebaselined] == [path_of(project, op) for op in ("relu", "scale")]
    assert stored(project).steps[0].why == "driver 590 everywhere"
    assert {row.verdict.value for row in again.rows} == {"PASS"}


def test_writing_needs_a_reason(project):
    run = run_of(project, "new", driver="590")

    assert refused([run], project, (), RebaselineOptions(write=True, why="  ")).kind == "rebaseline_without_why"


# --- what is withheld -------------------------------------------------------------------------------------------------


def test_a_kernel_that_moved_alone_stays_until_it_is_named(project):
    run = run_of(project, "new", kernel=1.06, driver="590")

    first = rebaseline_runs([run], project, (), WRITE)
    named = rebaseline_runs([run], project, (), dataclasses.replace(WRITE, included=("scale",)))

    assert kinds(first) == ["rebaseline_unexplained"] * 2
    reason = first[1].withheld[0]
    commit = git(project.root, "rev-parse", "HEAD")[:10]
    assert f"perfci check scale --against {commit} --duel all" in sentence(reason)
    assert reason.facts["change"] == pytest.approx(0.06, abs=0.01)
    assert [one.taken for one in named] == [(), CASES]
    assert (stored(project, "relu").steps, len(stored(project, "scale").steps)) == ((), 1)


def test_an_op_whose_own_files_changed_stays_until_it_is_named(project):
    before = git(project.root, "rev-parse", "HEAD")
    commit(project.root, "pass", "kernels/relu/relu_triton.py")
    run = run_of(project, "new", slower=1.05, driver="590")

    first = rebaseline_runs([run], project, (), WRITE)
    named = rebaseline_runs([run], project, ["relu"], dataclasses.replace(WRITE, included=("relu",)))

    assert kinds(first) == ["rebaseline_code_changed"]
    assert first[0].withheld[0].facts == {"op": "relu", "commit": before[:10], "files": "kernels/relu/relu_triton.py"}
    assert [one.taken for one in (*first, *named)] == [(), CASES, CASES]


# --- history ----------------------------------------------------------------------------------------------------------


def history(settings, op="relu"):
    return read_history(settings.baselines, "nvidia-h200", op)


def test_a_step_leaves_a_line_of_history_a_run(project):
    rebaseline_runs([run_of(project, "new", slower=1.03, driver="590")], project, (), WRITE)

    assert [run.run for run in history(project).runs] == ["old", "new"]
    assert [run.environment.device.driver for run in history(project).runs] == ["580", "590"]


DRIVER = Difference("device.driver", "580", "590")
HOST = Difference("host", "one", None, Bearing.NAMED)
DAMAGED = Reason("file_damaged", {"path": "relu.json", "line": 1, "column": 2})


def move(case="rows=1", kernel=0.05, reference=0.05, *, unexplained=False):
    ends = [Interval(value, value - 0.001, value + 0.001) for value in (kernel, reference)]
    return CaseMove(case, *ends, before_us=50.0, after_us=50.0 * (1 + kernel), unexplained=unexplained)


def moved(op="relu", *cases, differs=(DRIVER, HOST), **options):
    cases = cases or (move(), move("rows=2", 0.07))
    return Rebaselined(op, differs, cases, **{"taken": tuple(one.case for one in cases)} | options)


def text(*rebaselined, wrote=False, terminal=False, width=120):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    print_parts(show_moves(rebaselined, wrote=wrote), console)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_what_changed_comes_first_then_every_op_with_its_spread(terminal):
    lines = text(moved(), moved("scale"), terminal=terminal).splitlines()

    assert lines[:3] == [
        "Changed since the baselines:",
        "  device.driver: 580 -> 590",
        "  host: one -> - (no matter for times)",
    ]
    assert lines[3].split() == ["op", "cases", "kernel", "reference"]
    assert lines[4].split()[:2] == ["relu", "2"]
    assert "+6.0 % (+5.0 % .. +7.0 %)" in lines[4]
    assert "+5.0 % (+5.0 % .. +5.0 %)" in lines[4]
    assert lines[-1] == "Nothing was written. Store 4 cases anew, with a step: --write --why TEXT"


def test_what_was_written_is_said_and_what_could_not_be_too():
    shown = text(
        moved(path=Path("/elsewhere/relu.json")), Rebaselined("scale", failure=DAMAGED), wrote=True
    )  # fmt: skip

    assert "  Written: /elsewhere/relu.json" in shown
    assert "  relu.json is not complete JSON" in shown
    assert shown.splitlines()[-1] == "2 cases stored anew, with a step that says why."


def test_programs_get_every_case_and_every_field():
    rebaselined = moved("relu", move(unexplained=True), taken=(), withheld=(DAMAGED,))

    answer = json.loads(encode(write_plain(describe_for_programs(rebaselined))))

    assert [(difference["field"], difference["moves"]) for difference in answer["differs"]] == [
        ("device.driver", True),
        ("host", False),
    ]
    assert answer["cases"][0]["kernel"] == pytest.approx(
        {"value": 0.05, "low": 0.049, "high": 0.051, "confidence": 0.95}
    )
    assert (answer["cases"][0]["unexplained"], answer["cases"][0]["taken"]) == (True, False)
    assert answer["withheld"][0]["sentence"].startswith("relu.json is not complete JSON")
    assert answer["written"] is answer["failure"] is None
