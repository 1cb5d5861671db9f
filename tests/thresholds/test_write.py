"""Threshold files with other values: what people chose of layout, comments and order stays, byte for byte."""

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

    after = write_earned(file, HERE, [earned(value=0.006, before=0.0075, last="run025")])

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


def test_comments_order_quotes_and_layout_of_a_hand_made_file_survive(tmp_path):
    file = hand_made(tmp_path)

    after = write_earned(
        file, HERE, [earned(value=0.01, case=OTHER, why="new"), earned("rsd", 0.03, why="n"), earned()]
    )

    text = after.decode()
    assert [part for part in HAND_MADE.splitlines() if "#" in part and "value" not in part and part not in text] == []
    assert 'tau: {value: 1 %, why: "new", from: 1 %' in text
    assert "value: 3 %    # not less" in text
    assert text.index("rows=7") < text.index("rows=4096")
    assert values(understood(file, after)) == {(OTHER, "tau"): 0.01, (CASE, "rsd"): 0.03, (CASE, "tau"): 0.0075}


def test_carriage_returns_and_a_mark_of_order_survive(tmp_path):
    file = hand_made(tmp_path, "\ufeff" + HAND_MADE.replace("\n", "\r\n"))

    after = write_earned(file, HERE, [earned(), earned("rsd", 0.03)])

    assert after.startswith(b"\xef\xbb\xbf# Read me")
    assert after.count(b"\n") == after.count(b"\r\n")
    assert values(understood(file, after))[CASE, "tau"] == 0.0075


def test_an_entry_that_goes_leaves_its_comments(tmp_path):
    file = hand_made(tmp_path)

    after = write_earned(file, HERE, dropped={(OTHER, "tau"), (CASE, "rsd")})

    assert understood(file, after).values == ()
    for comment in ("# keep an eye on it", "# between", "# the end", "# Read me first."):
        assert comment in after.decode()
    assert values(understood(file, write_earned(understood(file, after), HERE, [earned()]))) == {(CASE, "tau"): 0.0075}


def test_another_environment_changes_its_lines_alone(tmp_path):
    file = hand_made(tmp_path)

    after = write_earned(file, THERE, [], {(OTHER, "tau")})

    assert '-   packages.torch: "2.11"' in changed(file.content, after)
    assert "environment:   # of the big runner" in after.decode()
    assert understood(file, after).environment.packages["torch"] == "2.12"


def test_a_renamed_case_keeps_its_values(tmp_path):
    file = hand_made(tmp_path)

    after = write_earned(file, HERE, [], (), {OTHER: "rows=8"})

    assert values(understood(file, after)) == {("rows=8", "tau"): 0.02, (CASE, "rsd"): 0.04}
    assert len(changed(file.content, after)) == 2 and "# the odd one" in after.decode()


@pytest.mark.parametrize(
    "text",
    [
        "environment: {timer: activity}\ncases:\n  a=1:\n    rsd: {value: 4 %}\n",
        "environment:\n  timer: activity\ncases: {a=1: {rsd: {value: 4 %}}}\n",
        "{environment: {timer: activity}, cases: {a=1: {rsd: {value: 4 %}}}}\n",
    ],
)
def test_braces_are_kept(tmp_path, text):
    file = hand_made(tmp_path, text)

    after = write_earned(file, HERE, [earned("rsd", 0.03, "a=1"), earned("tau", 0.01, "a=9")])

    assert values(understood(file, after)) == {("a=1", "rsd"): 0.03, ("a=9", "tau"): 0.01}
    assert "rsd: {value: 3 %" in after.decode()


@pytest.mark.parametrize(
    "text",
    [
        "environment:\n  timer: activity\ncases:\n  a=1:\n    rsd: &r {value: 4 %}\n  a=2:\n    rsd: *r\n",
        "environment:\n    timer:   activity\ncases:\n  a=1:\n    rsd: {value: 4 %}\n",
    ],
)
def test_a_layout_that_cannot_be_kept_is_left_alone(tmp_path, text):
    file = hand_made(tmp_path, text)

    assert refused(write_earned, file, HERE, [earned("rsd", 0.03, "a=1")]) == "earned_by_hand"


@pytest.mark.parametrize("seed", range(6))
def test_any_steps_leave_exactly_what_they_say(tmp_path, seed):
    rng = random.Random(seed)
    file, expected = empty(tmp_path), {}
    cases, keys = [f'rows={n},name="x: {n}#"' for n in range(4)], ["tau", "rsd", "speedup", "max_abs"]
    for step in range(8):
        dropped = {which for which in expected if rng.random() < 0.3}
        fresh = [
            earned(key, round(rng.uniform(0.001, 0.9), 4), case, why=f"step {step}")
            for case in cases
            for key in keys
            if (case, key) not in dropped and rng.random() < 0.4
        ]
        content = write_earned(file, HERE, fresh, dropped)
        expected = {which: expected[which] for which in expected if which not in dropped}
        expected |= {(each.case, each.key): each.value for each in fresh}
        lines = content.decode().splitlines(keepends=True)
        lines.insert(rng.randrange(len(lines) + 1), f"# note {step}\n")
        file = understood(file, "".join(lines).encode())
        assert values(file) == pytest.approx(expected)
    assert [f"# note {step}" in file.content.decode() for step in range(8)] == [True] * 8


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
