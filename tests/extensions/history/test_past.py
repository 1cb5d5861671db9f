"""The numbers and marks behind the History section, and their text in a report."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from perfci import report
from perfci.core.model import HistoryAccuracy
from perfci.extensions.history import past
from perfci.extensions.history.histories import PastSections
from perfci.extensions.history.past import ENVIRONMENT, STEP
from perfci.extensions.history.past import LOSS as ACCEPTED
from perfci.report.text import spell
from tests import example_runs
from tests import past_examples as examples
from tests.past_examples import CASES, CREPT, DRIVER, LOSS, STEPPED, TAKEN


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """The run, its judgements, and what was accepted of softmax before it."""
    run, judgements = examples.softmax()
    return run, judgements, examples.make_histories(run, tmp_path_factory.mktemp("nights"))["softmax"]


def trail(nights, case):
    run, _, histories = nights
    return next(trail for trail in past.list_trails(run.ops[0], run, histories) if trail.case == case)


def told(nights, tmp_path, **changes):
    """The op's section of the report."""
    run, judgements, histories = nights
    text = report.write(
        run, judgements, tmp_path, extras=[PastSections(run, {"softmax": replace(histories, **changes)})]
    ).read_text("utf-8")
    return text.partition("\n## softmax\n")[2].partition("\n## ")[0]


def test_the_section_reads_as_the_golden_file(nights, tmp_path, golden):
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
    assert case_trail.runs == 60
    assert trail(nights, CASES[0]).runs == 57


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
