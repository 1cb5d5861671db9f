"""The numbers and marks behind the History section, and their text in a report."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from perfci import report
from perfci.core import settings
from perfci.core.model import HistoryAccuracy, OpRun, PlannedOp
from perfci.core.wording import sentence
from perfci.extensions.history import past
from perfci.extensions.history.histories import PastSections, read_histories
from perfci.extensions.history.past import ENVIRONMENT, STEP
from perfci.extensions.history.past import LOSS as ACCEPTED
from perfci.extensions.lowprec.checks import add_accepted
from perfci.report.text import spell
from perfci.runs.decide import read_context
from perfci.store import layout
from tests import example_runs
from tests import git_repositories as git
from tests import past_examples as examples
from tests.extensions.lowprec.storage_examples import line, sound
from tests.history_examples import accepted, environment, figures
from tests.past_examples import CASES, CREPT, DRIVER, LOSS, STEPPED, TAKEN
from tests.runs.stand_ins import CASES as STOOD_IN
from tests.runs.stand_ins import DEVICE
from tests.stored_examples import append_history


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """The run, its judgements, and what was accepted of softmax before it."""
    run, judgements = examples.softmax()
    return run, judgements, examples.make_histories(run, tmp_path_factory.mktemp("nights"))["softmax"]


def trail(nights, case):
    run, _, histories = nights
    return next(trail for trail in past.compare_trails(run.ops[0], run, histories) if trail.case == case)


def told(nights, tmp_path, **changes):
    """The op's section of the report."""
    run, judgements, histories = nights
    text = report.write(
        run, judgements, tmp_path, extras=[PastSections(run, {"softmax": replace(histories, **changes)})]
    ).read_text("utf-8")
    return text.partition("\n## softmax\n")[2].partition("\n## ")[0]


def test_the_section_reads_as_the_golden_file(pictures, nights, tmp_path, golden):
    golden("report-history.md", "<details>" + told(nights, tmp_path).rpartition("<details>")[2])


def test_an_op_without_a_history_has_no_section(nights, tmp_path):
    run, judgements, histories = nights

    assert "History" not in report.write(run, judgements, tmp_path).read_text("utf-8")
    assert "History" not in report.write(
        run, judgements, tmp_path, extras=[PastSections(run, {"other": histories})]
    ).read_text("utf-8")
    other = replace(run.ops[0], performance=())
    assert past.make_section(other, run, histories) is None


def test_this_run_stands_against_the_newest_accepted_run_that_has_the_case(nights):
    case_trail = trail(nights, CASES[1])

    assert case_trail.last_us == nights[2].runs[-1].cases[1].kernel_us.median_us
    assert case_trail.change == pytest.approx(0.04, abs=0.01)
    assert len(case_trail.medians) == 60
    assert len(trail(nights, CASES[0]).medians) == 57


def test_events_of_a_case_are_a_new_driver_an_accepted_loss_and_its_steps(nights):
    events = {case: past.list_events(nights[2], case) for case in (TAKEN, STEPPED)}

    assert (DRIVER, ENVIRONMENT) in events[TAKEN] and (LOSS, ACCEPTED) in events[TAKEN]
    assert {(DRIVER, ENVIRONMENT), (examples.STEP, STEP)} <= {*events[STEPPED]}
    assert LOSS not in dict(events[STEPPED])


def test_of_a_case_that_crept_and_of_one_that_stepped_there_is_a_sentence_each(nights, tmp_path):
    lines = [line for line in told(nights, tmp_path).partition("<summary>History")[2].split("\n") if line[:2] == "- "]

    assert len(lines) == 2
    assert sorted(case for case in (STEPPED, CREPT) for line in lines if case in line) == sorted((STEPPED, CREPT))
    assert all("the kernel became" in line for line in lines)


def test_foreign_text_of_a_history_is_harmless(nights, tmp_path):
    histories = nights[2]
    last = histories.runs[-1]
    last = replace(last, environment=replace(last.environment, commit="<script>|@all # x"))
    text = told(nights, tmp_path, runs=(*histories.runs[:-1], last))

    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)

    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "<h1>" not in shown


def test_without_a_base_beside_it_what_passes_is_held_against_the_errors_of_the_last_accepted_run(nights):
    run, _, histories = nights
    check = next(iter(example_runs.small()[0].ops)).accuracy[0]
    timed, checked = run.ops[0].performance[0], replace(check, errors=replace(check.errors, l2=3e-4, of_allowed=0.3))
    errors = {timed.case: timed.errors, check.case: replace(check.errors, l2=1e-4)}
    last = histories.runs[-1]
    cases = tuple(replace(case, errors=errors.get(case.case)) for case in last.cases)
    last = replace(last, cases=cases, accuracy=(HistoryAccuracy(check.case, 1, errors[check.case]),))
    op = replace(run.ops[0], accuracy=(checked,))
    kept = replace(histories, runs=(*histories.runs[:-1], last))

    def lines(op):
        section = past.make_section(op, replace(run, ops=(op,)), kept)
        return [spell(line) for line in section.lines if "less exact" in line]

    assert lines(op) == [
        f"`{check.case}` passes, less exact than in the accepted run of {past.write_day(last)}: L2 error 3.00e-04, was "
        "1.00e-04; 30.0 % of what is allowed."
    ]
    assert lines(replace(op, accuracy=(replace(checked, base_errors=check.errors),))) == []


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
