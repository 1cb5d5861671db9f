"""What was accepted before a run, read for its report."""

from dataclasses import replace

import pytest

from perfci.core import settings
from perfci.core.model import OpRun, PlannedOp
from perfci.core.wording import sentence
from perfci.extensions.history.histories import PastSections, read_histories
from perfci.extensions.lowprec.checks import add_accepted
from perfci.runs.decide import read_context
from perfci.store import layout
from tests import git_repositories as git
from tests import past_examples as examples
from tests.extensions.lowprec.storage_examples import line, sound
from tests.history_examples import accepted, environment, figures
from tests.past_examples import CASES, CREPT
from tests.runs.stand_ins import CASES as STOOD_IN
from tests.runs.stand_ins import DEVICE
from tests.stored_examples import append_history

HISTORY = "baselines/nvidia-h200/softmax.history.jsonl"


@pytest.fixture
def project(tmp_path):
    """A project with sixty accepted runs of softmax."""
    examples.histories.project(tmp_path, {("nvidia-h200", "softmax"): examples.accepted()})
    return tmp_path


def read(run, folder):
    where = settings.load(folder)
    return dict(read_histories(run, where))


def test_a_run_gets_the_histories_of_its_ops_with_steps(project):
    trail = read(examples.softmax()[0], project)["softmax"]

    assert len(trail.runs) == 60
    assert set(trail.changes) == set(CASES)
    assert any(change.unexplained for change in trail.changes[CREPT])
    assert len(trail.changes[CASES[1]]) == 1
    assert (trail.damage, trail.accepted) == (None, False)


def test_a_run_that_was_accepted_is_held_against_what_came_before_it(project):
    run, _ = examples.softmax()
    trail = read(replace(run, id="run-0040"), project)["softmax"]

    assert (trail.runs[-1].run, len(trail.runs), trail.accepted) == ("run-0039", 40, True)
    assert read(replace(run, id="run-0000"), project) == {}


def test_a_torn_last_line_is_the_one_thing_that_is_told(project):
    path = project / HISTORY
    path.write_text(path.read_text()[:-40])
    trail = read(examples.softmax()[0], project)["softmax"]

    assert trail.damage.kind == "history_damaged"
    assert trail.runs == ()
    assert HISTORY in sentence(trail.damage)
    assert str(project) not in sentence(trail.damage)


def test_renamed_cases_and_ops_keep_their_history(project):
    run, _ = examples.softmax()
    old, now = CASES[3], CASES[3] + ",causal=False"
    case = replace(run.ops[0].performance[3], case=now)
    op = replace(run.ops[0], op="rows", performance=(case,))
    planned = PlannedOp("rows", (), (now,), renamed={now: old}, renamed_from="softmax")
    trail = read(replace(run, ops=(op,), plan=replace(run.plan, ops=(planned,))), project)["rows"]

    assert trail.changes[now]


def test_a_merge_request_reads_the_histories_of_its_base(forked, workers, measure):
    path = forked.baselines / DEVICE.key / "relu.history.jsonl"
    git.git(forked.root, "checkout", "-q", "main")
    path.parent.mkdir(parents=True)
    lines = (layout.line(accepted(number, figures(STOOD_IN[0]), key=DEVICE.key)) for number in range(3))
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines))
    git.commit_all(forked.root)
    git.git(forked.root, "checkout", "-q", "topic")
    git.git(forked.root, "rebase", "-q", "main")
    path.write_text("{}\n")
    git.commit_all(forked.root)
    run = measure(forked, duel="none")

    assert run.plan.base.rules
    extras = read_context(run, forked).extras
    trail = next(one.histories["relu"] for one in extras if isinstance(one, PastSections))
    assert (len(trail.runs), trail.damage) == (3, None)


# --- storage in low precision -----------------------------------------------------------------------------------------


def of_run(tmp_path):
    """An op that stores tensors, its run, and a project."""
    run = replace(examples.softmax()[0], id="run99", environment=environment())
    where = settings.Settings(
        tmp_path, *(tmp_path / name for name in ("kernels", "baselines", "thresholds", "reports"))
    )
    return OpRun("op", stored=sound()), run, where


def test_a_run_takes_the_figures_of_its_history_along(tmp_path):
    op, run, where = of_run(tmp_path)
    for number in range(3):
        append_history(where.baselines, "nvidia-h200", "op", line(number, [op.stored[0]]))

    accepted = add_accepted(op, run, where)

    assert [run.run for run in accepted.stored[0].before] == ["run0", "run1", "run2"]
    assert accepted.stored[1].before == ()
