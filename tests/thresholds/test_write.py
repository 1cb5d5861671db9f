"""Threshold files with other values: earned ones are written anew, and relaxed entries beside what people wrote."""

from __future__ import annotations

import difflib
import random

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.read import NUMBERS, load
from perfci.thresholds.write import read_value, write_earned, write_relaxed, write_value
from tests.thresholds.earned_examples import (
    CASE,
    HERE,
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


def refused(call, *arguments, **named):
    with pytest.raises(StoredFileError) as caught:
        call(*arguments, **named)
    assert caught.value.reason.kind in catalogue()
    assert sentence(caught.value.reason)
    return caught.value.reason.kind


def changed(before: bytes, after: bytes) -> list[str]:
    lines = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
    return [line for line in lines if line[0] in "+-"]


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", NUMBERS)
def test_every_key_has_a_way_to_write_a_value_that_is_read_back(key):
    for value in (0.0003, 0.0125, 0.3):
        text = write_value(key, value)
        assert text is not None
        assert read_value(key, text, "-") == pytest.approx(value, rel=1e-9)


# --- earned values ----------------------------------------------------------------------------------------------------


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

    step = earned(value=0.006, before=0.0075, last="run025")
    after = write_earned(file, HERE, [step, *file.values[1:]])

    assert sorted(changed(file.content, after)) == sorted([
        "-       value: 0.75 %", "+       value: 0.6 %", "-       from: 1 %", "-       to: 0.75 %",
        "+       from: 0.75 %", "+       to: 0.6 %", '-       last: "run024"', '+       last: "run025"',
    ])  # fmt: skip


HAND_MADE = """\
# Read me first.
environment:   # of the big runner
  device.driver: '580.65'
  device.kind: "cuda"
  device.name: NVIDIA H200
  device.runtime: CUDA 13.0
  device.processors: 132
  device.power_limit_w: 700.0
  timer: activity
  python: "3.11.9"
  packages.torch: "2.11"
  packages.triton: "3.6"
  variables.CUBLAS_WORKSPACE_CONFIG: ":4096:8"

cases:

  rows=7,dtype=float16:   # the odd one
    # keep an eye on it
    tau: {value: 2 %, why: by hand}   # Ann

  'rows=4096,dtype=float16':
    rsd:
      why: >
        folded
        text
      value: 4 %    # not less
      # between
      to: 4 %
    # the end
"""


def hand_made(tmp_path, text=HAND_MADE):
    written(tmp_path, text)
    return read(tmp_path)


def test_values_and_words_that_people_wrote_stay_with_new_ones_beside_them(tmp_path):
    file = hand_made(tmp_path)

    after = understood(file, write_earned(file, HERE, [*file.values, earned(case="rows=8: #1")]))

    assert values(after) == {(OTHER, "tau"): 0.02, (CASE, "rsd"): 0.04, ("rows=8: #1", "tau"): 0.0075}
    assert [each.why for each in after.values[:2]] == ["by hand", "folded text"]
    assert (after.environment, after.values[1].after) == (file.environment, 0.04)


def test_a_value_that_somebody_edited_is_still_told_from_the_one_that_perfci_wrote(tmp_path):
    file = kept(tmp_path, earned(value=0.005, after=0.0075))

    (again,) = understood(file, write_earned(file, HERE, file.values)).values

    assert (again.edited, again.value, again.after) == (True, 0.005, 0.0075)


def test_another_environment_takes_the_place_of_the_one_before(tmp_path):
    file = kept(tmp_path, earned())

    after = write_earned(file, THERE, file.values)

    assert changed(file.content, after) == [
        '-   packages.torch: "2.11"', '+   packages.torch: "2.12"',
    ]  # fmt: skip
    assert understood(file, after).environment.packages["torch"] == "2.12"


@pytest.mark.parametrize("seed", range(6))
def test_any_values_are_read_back_as_they_were_written(tmp_path, seed):
    rng = random.Random(seed)
    cases, keys = [f'rows={n},name="x: {n}#"' for n in range(4)], ["tau", "rsd", "speedup", "max_abs"]
    fresh = [
        earned(key, round(rng.uniform(0.001, 0.9), 4), case, why=f'step: "{rng.random()}" #')
        for case in cases
        for key in keys
        if rng.random() < 0.6
    ]

    after = understood(empty(tmp_path), write_earned(empty(tmp_path), HERE, fresh))

    assert values(after) == pytest.approx({(each.case, each.key): each.value for each in fresh})
    assert [each.why for each in after.values] == [each.why for each in fresh]


# --- relaxed entries --------------------------------------------------------------------------------------------------

ENTRY = Relaxed("softmax", "tau", 'noisy: "new" driver', "2027-01-31", case="rows=7,*", to=0.03)


def relaxed(tmp_path, content, entry=ENTRY):
    path = tmp_path / "softmax.yaml"
    after = write_relaxed(path, content, entry)
    path.write_bytes(after)
    return after, load(tmp_path).ops["softmax"].relaxed


@pytest.mark.parametrize(
    "before",
    [
        None,
        b"",
        b"# nothing yet\n",
        b"speedup: 1.2  # agreed",
        b"speedup: 1.2\r\ncases:\r\n  rows=7:\r\n    rsd: 4 %\r\n",
        b"relaxed:\n# later\nspeedup: 1.2\n",
        b'relaxed:\n    - {key: rsd, why: "x", until: 2027-01-01}  # mine\n\nspeedup: 1.2\n',
        b"\xef\xbb\xbfspeedup: 1.2\n",
    ],
)
def test_an_entry_is_put_in_and_every_other_line_stays(tmp_path, before):
    after, entries = relaxed(tmp_path, before)

    assert [line for line in changed(before or b"", after) if line[0] == "-"] == []
    mine = next(each for each in entries if each.key == "tau")
    assert (mine.to, mine.case, mine.why, mine.until) == (0.03, "rows=7,*", 'noisy: "new" driver', "2027-01-31")


def test_an_entry_of_the_same_key_case_and_device_gives_way(tmp_path):
    first, _ = relaxed(tmp_path, b"speedup: 1.2\n")
    after, entries = relaxed(
        tmp_path, first, Relaxed("softmax", "tau", "still", "2027-02-28", case="rows=7,*", to=0.04)
    )

    assert [(each.to, each.until) for each in entries] == [(0.04, "2027-02-28")]
    assert len(changed(first, after)) == 2


@pytest.mark.parametrize("before", [b"{speedup: 1.2}\n", b"speedup: 1.2\n...\n"])
def test_a_file_of_another_layout_gets_the_line_named_instead(tmp_path, before):
    assert refused(write_relaxed, tmp_path / "softmax.yaml", before, ENTRY) == "relaxed_by_hand"
