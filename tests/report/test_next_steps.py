"""What to type next: for a kernel that became slower, what changed and the command that finds the commit."""

import re
from dataclasses import replace

import pytest

from perfci.core import commands
from perfci.core.commands import Reader
from perfci.core.model import Judgements, Suite, Verdict
from perfci.report import steps, summary
from tests.typed import parse

LINES = ("+++ kernels/softmax/softmax_triton.py", "-    num_warps=4", "+    num_warps=8")


@pytest.fixture
def slow(examples):
    """A run in which softmax alone is slower than its base, and its judgements."""
    run, judgements = examples.duelled()
    rows = tuple(row for row in judgements.rows if row.op == "softmax" and row.verdict is Verdict.REGRESSED)
    return with_base(run, lines=LINES), Judgements(rows)


def with_base(run, op="softmax", **changes):
    ops = tuple(replace(one, base=replace(one.base, **changes)) if one.op == op else one for one in run.plan.ops)
    return replace(run, plan=replace(run.plan, ops=ops))


def first(run, judgements):
    return steps.make_steps(run, judgements)[0].command.splitlines()


def test_what_became_slower_is_read_and_looked_for_from_the_base_on(slow):
    run, judgements = slow
    commit = run.plan.base.commit[:12]

    diff, bisect = first(run, judgements)

    assert diff == f"git diff {commit} -- kernels/softmax"
    assert bisect == f"perfci bisect softmax --case {judgements.rows[0].case} --against {commit}"
    parse(bisect)


def test_shared_files_are_named_beside_the_ops_folder_and_not_too_many(slow):
    run, judgements = slow
    names = ("kernels/_launch.py", "kernels/deep/softmax/softmax_triton.py", "kernels/deep/softmax/tuned/x.json")
    several = with_base(run, changed=names)
    many = with_base(run, changed=tuple(f"kernels/_{at} of them.py" for at in range(20)))

    assert first(several, judgements)[0].endswith(" -- kernels/_launch.py kernels/deep/softmax")
    assert first(many, judgements)[0].count("'kernels/_") == steps.PLACES


def test_what_is_not_committed_cannot_be_bisected(slow):
    run, judgements = slow
    dirty = replace(run, environment=replace(run.environment, dirty=True))

    assert [line.partition(" ")[0] for line in first(dirty, judgements)] == ["git"]


def test_without_a_base_or_a_changed_file_every_look_is_shown(slow):
    run, judgements = slow

    for other in (replace(run, plan=replace(run.plan, base=None)), with_base(run, changed=())):
        assert [line.split()[:2] for line in first(other, judgements)] == [["perfci", "show"]]


def test_from_elsewhere_git_is_told_where_the_project_is(slow):
    with commands.reading(Reader(project="../my ops")):
        assert first(*slow)[0].startswith("git -C '../my ops' diff ")


def test_the_first_changed_lines_stand_in_the_head_as_they_are_and_only_if_something_is_not_fine(slow, examples):
    run, judgements = slow

    assert summary.make_head(run, judgements).changes == LINES
    assert summary.make_head(with_base(run, lines=tuple("+line" for _ in range(20))), judgements).changes == (
        ("+line",) * summary.CHANGED
    )
    faster = Judgements(tuple(replace(row, verdict=Verdict.IMPROVED) for row in judgements.rows))
    assert summary.make_head(run, faster).changes == ()


def test_no_changed_line_becomes_anything_in_the_report(slow, examples, tmp_path):
    from perfci import report

    run, judgements = slow
    loud = with_base(run, lines=(f"+++ {examples.HOSTILE}", "-```", f"+<script>{examples.HOSTILE}</script>"))

    page = report.write(loud, judgements, tmp_path, formats=("md", "html"))

    (fence,) = re.findall(r"\n(`+)text\n\+\+\+ a\|b", page.read_text())
    assert fence not in "\n".join(loud.plan.ops[-1].base.lines)
    assert "<script>alert" not in page.with_suffix(".html").read_text()


@pytest.mark.parametrize(
    ("case", "asked", "again"),
    [
        ("rows=7", "check softmax --thorough", "perfci check softmax --case rows=7 --seed 420 --thorough"),
        ("sanitize=gsan", "check --sanitize", "perfci check softmax --seed 420 --sanitize"),
        ("rows=7, rows 2^30 elements apart", "check --thorough", "perfci check softmax --seed 420 --thorough"),
    ],
)
def test_what_is_wrong_is_repeated_with_what_found_it(slow, case, asked, again):
    run, judgements = slow
    wrong = replace(judgements.rows[0], verdict=Verdict.WRONG, suite=Suite.ACCURACY, case=case, reasons=())
    asked = replace(run, command=f"perfci {asked}", plan=replace(run.plan, seed=420))

    (said,) = first(asked, Judgements((wrong,)))

    assert said == again
    parse(said)
