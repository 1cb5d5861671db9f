"""The History section of the page."""

from dataclasses import replace

import pytest

from perfci.core.model import Reason
from perfci.report import html
from perfci.report.html import sparks
from perfci.report.past import Past
from tests import past_examples as examples


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    run, judgements = examples.softmax()
    return run, judgements, examples.pasts(run, tmp_path_factory.mktemp("nights"))


@pytest.fixture(scope="module")
def past(nights, tmp_path_factory, read_page):
    """What the page folds away of softmax's history."""
    run, judgements, pasts = nights
    page = read_page(html.write(run, judgements, tmp_path_factory.mktemp("page"), pasts=pasts))
    return page.root.one("details", **{"class": "fold past"})


def firsts(table):
    """The first cell of each line."""
    return [next(iter(row.all("td"))).text for row in list(table.all("tr"))[1:]]


def test_each_case_has_a_line_with_a_small_trend(past):
    assert firsts(next(iter(past.all("table")))) == examples.CASES
    assert len(list(past.all("svg", **{"class": "spark"}))) == 6
    assert len(list(past.all("path", **{"class": "now"}))) == 6


def test_charts_name_their_case_and_tell_their_ends_in_words(past):
    titles = [figure.one("figcaption").text for figure in past.all("figure")]

    assert titles == examples.CASES
    told = [svg.one("desc").text for svg in past.all("svg", **{"class": "chart narrow"})]
    assert "57 accepted runs, first 4.92 us" in told[0]
    assert all("this run: " in each for each in told)


def test_it_is_folded_at_the_end_of_its_op(past):
    assert "open" not in past.attributes
    assert past.one("summary").text.startswith("History: 60 accepted runs, the last one 2 days before this run")


def test_the_marks_stand_in_a_table_of_their_own(past):
    _, marks = past.all("table")

    assert firsts(marks) == ["A", "B", "C", "D", "E"]


def test_a_damaged_history_is_a_small_sentence(nights, tmp_path, read_page):
    run, judgements, _ = nights
    damage = Reason("history_torn", {"file": "x.history.jsonl", "line": 61, "length": 9})
    page = read_page(html.write(run, judgements, tmp_path, pasts={"softmax": Past(damage=damage)}))

    assert "The history of softmax is not shown" in page.root.text
    assert not list(page.root.all("details", **{"class": "fold past"}))


def test_without_a_history_there_is_none(nights, tmp_path, read_page):
    run, judgements, _ = nights

    assert not list(read_page(html.write(run, judgements, tmp_path)).root.all("details", **{"class": "fold past"}))


def test_a_run_that_cannot_be_compared_is_no_point_of_the_trend(nights, tmp_path, read_page):
    run, judgements, pasts = nights
    run = replace(run, environment=replace(run.environment, timer="event"))

    assert not list(read_page(html.write(run, judgements, tmp_path, pasts=pasts)).root.all("path", **{"class": "now"}))


def test_a_trend_shows_the_run_behind_its_values():
    found = sparks.spark((0.0, 0.01), (1,), 0.02).source

    assert 'class="now" d="M117.0 2.0h0"' in found
    assert 'class="up" d="M31.5 0V28"' in found
    assert found.split('class="way" d="')[1].startswith("M3.0 14.0L60.0")
    assert sparks.spark((None,)).source == ""
