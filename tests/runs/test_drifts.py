"""Creep and steps in kept histories, and the note of it in a run of the default branch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci import store
from perfci.core.model import Base, Gate, Judgements, Need
from perfci.core.settings import at
from perfci.core.wording import sentence
from perfci.git.tags import Release
from perfci.runs import drifts
from perfci.store.history import append_history
from tests.decision_examples import run as run_of
from tests.history_examples import CASE, accepted, environment, figures
from tests.judge.test_quarantine import SLOW


def history(count=40, creep=0.0, stop=99):
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        us = 100 * math.exp(rng.normal(0, 0.002) + creep * min(number, stop))
        one = accepted(number % 27, figures(kernel_us=us, shift=math.log(us / 150)), commit=f"{number:040x}")
        found.append(replace(one, run=f"run{number}", created=f"2026-01-{1 + number % 28:02}T00:00:00Z"))
    return tuple(found)


def release(name, last):
    return Release(name, frozenset(f"{number:040x}" for number in range(last + 1)))


def test_the_anchor_is_the_newest_release_that_has_runs_enough():
    runs = history(creep=0.001, stop=18)

    found, name = drifts.find_creep(runs, CASE, [release("v3", 39), release("v2", 20), release("v1", 6)])
    assert (name, found.found, found.anchor[0]) == ("v2", False, "run15")
    found, name = drifts.find_creep(runs, CASE, [release("v1", 6)])
    assert (name, found.found) == ("v1", True)


def test_without_a_release_the_first_runs_are_the_anchor():
    found, name = drifts.find_creep(history(creep=0.001), CASE, [release("v9", 39)])

    assert (name, found.anchor[0]) == (None, "run0")


def test_a_creep_is_a_sentence_with_a_bisection_or_without_commits_a_look_at_the_runs():
    runs = history(creep=0.001)
    found, _ = drifts.find_creep(runs, CASE, ())
    bare = [replace(each, environment=replace(each.environment, commit=None)) for each in runs]

    told = drifts.describe_creep("softmax", found, runs, None)
    assert told.facts["command"] == f"perfci bisect --op softmax --case {CASE} {9:012x} {35:012x}".replace(
        f"{9:012x}", f"{9:040x}"[:12]
    ).replace(f"{35:012x}", f"{35:040x}"[:12])
    assert "perfci history --op softmax" in sentence(drifts.describe_creep("softmax", found, bare, None))
    assert "since v2" in sentence(drifts.describe_creep("softmax", found, runs, "v2"))


# --- the note ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    return at(tmp_path)


def noted(settings, runs, base=None, needs=()):
    made = run_of(SLOW)
    for each in runs:
        append_history(settings.baselines, "nvidia-h200", made.ops[0].op, each)
    made = replace(made, environment=environment(), plan=replace(made.plan, base=base))
    return drifts.note_creep(made, Judgements((), needs), settings)


def test_a_run_of_the_default_branch_is_told_of_the_creep_and_fails_nothing(settings):
    found = noted(settings, history(creep=0.001))

    (note,) = found.notes
    assert (note.kind, note.facts["count"], note.facts["case"]) == ("history_crept", 1, CASE)
    assert "perfci history --drift" in sentence(note) and found.gate is Gate.OK


def test_a_steady_history_a_short_one_and_none_are_not_worth_a_note(settings, tmp_path):
    assert noted(settings, ()).notes == ()
    assert noted(settings, history(14, creep=0.01)).notes == ()
    assert noted(settings, history()[14:]).notes == ()


@pytest.mark.parametrize(("how", "told"), [("merge_base", 0), ("first_parent", 0), ("baseline", 1), ("asked", 1)])
def test_a_merge_request_is_not_told_of_what_others_did(settings, how, told):
    assert len(noted(settings, history(creep=0.001), base=Base("0" * 40, how, "main")).notes) == told


def test_a_run_that_needs_more_evidence_is_not_told_yet(settings):
    assert noted(settings, history(creep=0.001), needs=(Need("op", CASE, 2),)).notes == ()


def test_a_history_that_cannot_be_read_is_told_elsewhere(settings):
    path = store.baseline_path(settings.baselines, "nvidia-h200", run_of(SLOW).ops[0].op)
    path.with_name(f"{path.stem}.history.jsonl").mkdir(parents=True)

    assert noted(settings, ()).notes == ()
