"""Messages about a search, above all one that measured nothing."""

import json
from pathlib import Path

import pytest

from perfci.core.codec import encode
from perfci.extensions.lab.commands.tune import find_recovery, show_tuning, to_json
from perfci.extensions.lab.tune.flow import Tuning
from perfci.extensions.lab.tune.records import FINAL, Attempt, Regime, SearchFile, SearchHead
from perfci.extensions.lab.tune.search import Choice
from perfci.extensions.lab.tune.task import Modelled
from perfci.report.data import write_plain
from tests.cli.rendering import lines_of

BEST = {"block": 64}
REGIME = Regime("*", {}, {"block": (16, 64)}, {"block": 16}, ("a", "b"))


def tuning(today, best, floors=(50.0, 50.0), **fields):
    """A search by the model: times of today's choice and of the best, and the least by the two rooflines."""
    tried = (
        Attempt("*", None, us={"a": today, "b": today} if today else {}),
        Attempt("*", BEST, FINAL, {"a": (-0.1,), "b": (-0.1,)}, {"a": best, "b": best}),
    )
    modelled = {case: Modelled(case, 100.0, *floors) for case in "ab"}
    values = {"spec": "low-bw", "like": "nvidia-h200", "modelled": modelled} | fields
    search = SearchFile(Path("x.jsonl"), SearchHead({}, 7), list(tried))
    return Tuning("op", "low-bw", Path("x.json"), search, (Choice(REGIME, BEST),), **values)


def text(tuned):
    return "\n".join(lines_of(show_tuning(tuned, Path("x.md"))))


def test_the_share_of_the_original_speed_is_told_untuned_tuned_and_by_the_roofline():
    tuned = tuning(200.0, 110.0)

    assert find_recovery(tuned) == pytest.approx({"untuned": 0.5, "tuned": 100 / 110, "roofline": 1.0})
    assert "The goal of 80.0 % is reached." in text(tuned)


def test_a_goal_that_was_missed_stands_beside_what_the_roofline_allows():
    told = text(tuning(200.0, 143.0, (50.0, 50.0 / 0.7)))
    assert "The roofline alone allows 70.0 %." in told
    assert "is not reached." in told


def test_the_answer_for_programs_is_json_and_says_whether_it_was_measured():
    answer = json.loads(encode(write_plain(to_json(tuning(200.0, 110.0)))))

    assert answer["measured"] is False
    assert answer["entries"][0]["config"] == BEST
