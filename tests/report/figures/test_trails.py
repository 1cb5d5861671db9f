"""Compact trends with the run at hand at their end."""

import pytest

from perfci.report import past, plots
from perfci.report.figures import save, style, trails
from perfci.report.figures.trails import ANCHOR, KINDS, QUARTILES, THIS_RUN
from tests import past_examples as examples


@pytest.fixture(scope="module")
def strips(tmp_path_factory):
    run, _ = examples.softmax()
    found = examples.pasts(run, tmp_path_factory.mktemp("nights"))["softmax"]
    return plots.strips(past.trails(run.ops[0], run, found), found, 8)


def test_every_case_has_a_panel_two_in_a_row(strips):
    sheet = trails(strips, "title")

    assert [panel.name for panel in sheet.panels] == examples.CASES
    assert sheet.panels[0].box[1] == sheet.panels[1].box[1] > sheet.panels[2].box[1]
    assert [panel.x_labels for panel in sheet.panels] == [False] * 4 + [True] * 2


def test_this_run_stands_behind_the_last_accepted_one(strips):
    for strip, panel in zip(strips, trails(strips, "").panels, strict=True):
        (now,) = panel.points(THIS_RUN)
        assert (now.xs, now.ys) == ((60.0,), (strip.trail.now_us,))
        assert len(panel.lines(QUARTILES)) == strip.trail.runs


def test_marks_stand_between_their_runs_with_their_letters(strips):
    panel = trails(strips, "").panels[4]

    assert [line.xs[0] for line in panel.lines(KINDS[1])] == [examples.DRIVER - 0.5]
    assert [line.xs[0] for line in panel.lines(KINDS[0])] == [examples.LOSS - 0.5]
    assert {"A", "B"} <= set(panel.notes())


def test_the_anchor_lies_over_its_own_runs(strips):
    (anchor,) = trails(strips, "").panels[3].lines(ANCHOR)

    assert anchor.xs == pytest.approx((examples.DRIVER - 0.4, examples.DRIVER + 9.4))


def test_the_gravest_cases_are_drawn_where_not_all_are(strips, tmp_path):
    run, _ = examples.softmax()
    found = examples.pasts(run, tmp_path)["softmax"]
    chosen = plots.strips(past.trails(run.ops[0], run, found), found, 2)

    assert [strip.trail.case for strip in chosen] == [examples.STEPPED, examples.CREPT]


def test_marks_that_crowd_have_lines_and_only_some_letters(strips):
    crowd = tuple(
        past.Mark(past.letters(at), at, strips[0].marks[0].before, strips[0].marks[0].after, fields="x")
        for at in range(1, 60)
    )
    (panel,) = trails([plots.Strip("x", strips[0].trail, crowd, strips[0].dates)], "").panels

    assert len(panel.lines(KINDS[1])) == 59
    assert len([note for note in panel.notes() if note.isupper()]) <= 20


def test_a_few_runs_can_be_drawn_and_fewer_are_not(tmp_path):
    run, _ = examples.softmax()
    few, fewer = (examples.pasts(run, tmp_path / str(count), examples.accepted(count))["softmax"] for count in (3, 2))
    with style():
        save(trails(plots.strips(past.trails(run.ops[0], run, few), few, 8), "x"), tmp_path / "few.png")

    assert (tmp_path / "few.png").read_bytes().startswith(b"\x89PNG")
    assert plots.strips(past.trails(run.ops[0], run, fewer), fewer, 8) == []
