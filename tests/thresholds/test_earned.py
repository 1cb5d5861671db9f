"""Files of earned values: what is wrong in one is named with its place, and none is half read."""

import difflib
import random

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.earned import read_earned, write_earned
from tests.thresholds.earned_examples import (
    CASE,
    HERE,
    KEY,
    OTHER,
    THERE,
    earned,
    empty,
    kept,
    read,
    understood,
    values,
    written,
)


def changed(before: bytes, after: bytes) -> list[str]:
    lines = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
    return [line for line in lines if line[0] in "+-"]


def refused(call, *arguments):
    with pytest.raises(StoredFileError) as caught:
        call(*arguments)
    assert caught.value.reason.kind in catalogue()
    return caught.value.reason.kind, sentence(caught.value.reason)


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"key": "tau"', '"key": "tua"', "tua 0.0075"),
        ('"key": "tau"', '"key": "alpha"', "alpha 0.0075"),
        ('"value": 0.0075', '"value": -1', "tau -1"),
        ('"value": 0.0075', '"value": 1.5', "tau 1.5"),
        ('"value": 0.0075', '"value": "0.75 %"', "$.earned[0].value"),
        ('"value": 0.0075', '"vlaue": 0.0075', "value"),
        ('"runs": 24', '"runs": "many"', "$.earned[0].runs"),
        ('"environment"', '"enviroment"', "environment"),
        ('"processors": 132', '"processors": "many"', "$.environment.device.processors"),
        ('"format": 1', '"format": 9', "9"),
        ('"earned"', "<<<<<<< HEAD", "line"),
    ],
)
def test_a_mistake_is_named_with_file_and_place(tmp_path, before, after, words):
    text = kept(tmp_path, earned()).path.read_text()
    assert before in text
    written(tmp_path, text.replace(before, after))

    _, told = refused(read, tmp_path)

    assert str(tmp_path / KEY / "softmax.json") in told
    assert words in told


def test_two_values_of_one_thing_are_a_mistake(tmp_path):
    written(tmp_path, write_earned(empty(tmp_path), HERE, [earned(), earned(value=0.006)]))

    assert "twice" in refused(read, tmp_path)[1]


def test_a_value_that_somebody_edited_is_known_as_such(tmp_path):
    file = kept(tmp_path, earned())
    file.path.write_text(file.path.read_text().replace('"value": 0.0075', '"value": 0.009'))

    (value,) = read(tmp_path).values
    assert (value.value, value.after, value.edited) == (0.009, 0.0075, True)


def test_each_device_has_its_own_folder(tmp_path):
    kept(tmp_path, earned())

    assert [*read_earned(tmp_path, KEY)] == ["softmax"]
    assert read_earned(tmp_path, "nvidia-b200") == {}
    assert read_earned(tmp_path, "../elsewhere") == {}


@pytest.mark.parametrize("text", ["[" * 60_000, '{"a":' * 40_000, b"\xff", ""])
def test_what_is_no_record_is_an_error_and_no_crash(tmp_path, text):
    written(tmp_path, text)

    refused(read, tmp_path)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_new_file_says_what_it_was_given(tmp_path):
    file = kept(tmp_path, earned(), earned("speedup", 1.25, before=None, began=None, bound=1.4))

    tau, speedup = file.values
    assert (tau.value, tau.before, tau.after, tau.bound, tau.began) == (0.0075, 0.01, 0.0075, 0.0025, 0.01)
    assert (tau.runs, tau.first, tau.last, tau.date) == (24, "run001", "run024", "2026-11-21")
    assert (tau.why, tau.predicted) == ('A/A duels: 24; "quiet": yes # really', 0.0001)
    assert (speedup.value, speedup.before, speedup.began) == (1.25, None, None)
    assert not tau.edited


def test_a_step_changes_the_lines_of_its_entry_alone(tmp_path):
    file = kept(tmp_path, earned(), earned("rsd", 0.04), earned(case=OTHER))

    after = write_earned(file, HERE, [earned(value=0.006, before=0.0075, last="run025"), *file.values[1:]])

    assert changed(file.content, after) == [
        '-    "after": 0.0075,', '+    "after": 0.006,', '-    "before": 0.01,', '+    "before": 0.0075,',
        '-    "last": "run024",', '+    "last": "run025",', '-    "value": 0.0075,', '+    "value": 0.006,',
    ]  # fmt: skip


def test_neither_board_nor_host_nor_commit_are_kept(tmp_path):
    file = kept(tmp_path, earned())

    assert b"GPU-1" not in file.content
    assert b"runner" not in file.content
    assert file.environment.device.driver == "580.65"


def test_another_environment_takes_the_place_of_the_one_before(tmp_path):
    file = kept(tmp_path, earned())

    after = write_earned(file, THERE, file.values)

    assert understood(file, after).environment.packages["torch"] == "2.12"


def test_what_no_file_can_hold_is_an_error(tmp_path):
    assert refused(write_earned, empty(tmp_path), HERE, [earned(value=float("nan"))])[0] == "value_unstorable"


@pytest.mark.parametrize("seed", range(6))
def test_any_values_are_read_back_as_they_were_written(tmp_path, seed):
    rng = random.Random(seed)
    cases, keys = [f'rows={n},name="x: {n}#"' for n in range(4)], ["tau", "rsd", "speedup", "max_abs"]
    fresh = [
        earned(key, round(rng.uniform(0.001, 0.9), 4), case, why=f'step: "{rng.random()}" #')
        for case in (*cases, CASE)
        for key in keys
        if rng.random() < 0.6
    ]

    after = understood(empty(tmp_path), write_earned(empty(tmp_path), HERE, fresh))

    assert values(after) == pytest.approx({(entry.case, entry.key): entry.value for entry in fresh})
