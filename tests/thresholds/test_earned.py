"""Files of earned values: what is wrong in one is named with its line, and none is half read."""

from __future__ import annotations

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.earned import MOST_BYTES, read_earned
from tests.thresholds.earned_examples import KEY, earned, kept, read, written

TOP = "environment:\n  timer: activity\ncases:\n  rows=1:\n"


def error(path, content):
    written(path, content)
    with pytest.raises(StoredFileError) as caught:
        read(path)
    reason = caught.value.reason
    assert reason.kind in catalogue()
    return reason, sentence(reason)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (TOP + "    tua:\n      value: 1 %\n", 5, "did you mean tau?"),
        (TOP + "    alpha:\n      value: 1 %\n", 5, "not a threshold"),
        (TOP + "    tau:\n      vlaue: 1 %\n", 6, "did you mean value?"),
        (TOP + "    tau:\n      to: 1 %\n", 5, "has no value"),
        (TOP + "    tau: 1 %\n", 5, "a mapping"),
        (TOP + "    tau:\n      value: 1\n", 6, "has to be a percentage"),
        (TOP + "    tau:\n      value: -1 %\n", 6, "has to be a percentage"),
        (TOP + "    tau:\n      value: .nan\n", 6, "tau is .nan"),
        (TOP + "    tau:\n      value: none\n", 6, "tau is none"),
        (TOP + "    speedup:\n      value: 1.2 %\n", 6, "a number"),
        (TOP + "    speedup:\n      value: .inf\n", 6, "a number"),
        (TOP + "    tau:\n      value: 1 %\n      date: 2026-02-30\n", 7, "a date such as 2027-01-31"),
        (TOP + "    tau:\n      value: 1 %\n      runs: many\n", 7, "a number, zero or more"),
        (TOP + "    tau:\n      value: 1 %\n      predicted: 200 %\n", 7, "a percentage"),
        (TOP + "    tau:\n      value: 1 %\n    tau:\n      value: 2 %\n", 7, "a second time"),
        (TOP + "    <<: {tau: {value: 1 %}}\n", 5, "not a threshold"),
        ("cases:\n  rows=1:\n    tau: {value: 1 %}\n", 1, "environment in which"),
        ("environment:\n  divice.driver: '1'\n", 2, "not a field that describes"),
        ("environment:\n  device.colour: red\n", 2, "not a field that describes"),
        ("environment:\n  device.processors: many\n", 1, "numbers of the device"),
        ("enviroment:\n  timer: x\n", 1, "did you mean environment?"),
        (TOP + "\t  tau: 1 %\n", 5, "not valid YAML"),
        (TOP + "    tau: *gone\n", 5, "not valid YAML"),
        ("environment:\n  timer: activity\n---\ncases:\n", 3, "not valid YAML"),
        (b"environment:\n  timer: \xff\n", 2, "not UTF-8"),
        ("- environment\n", 1, "a mapping"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_remedy(tmp_path, text, line, words):
    reason, found = error(tmp_path, text)

    assert reason.facts["line"] == line
    assert str(tmp_path / KEY / "softmax.yaml") in found
    assert words in found


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    written(tmp_path, b"#" * (MOST_BYTES + 1))

    with pytest.raises(StoredFileError) as caught:
        read(tmp_path)
    assert caught.value.reason.kind == "thresholds_too_large"


def test_a_value_that_somebody_edited_is_known_as_such(tmp_path):
    file = kept(tmp_path, earned())
    file.path.write_text(file.path.read_text().replace("value: 0.75 %", "value: 0.9 %"))

    (value,) = read(tmp_path).values
    assert (value.value, value.after, value.edited) == (pytest.approx(0.009), 0.0075, True)


def test_each_device_has_its_own_folder(tmp_path):
    kept(tmp_path, earned())

    assert [*read_earned(tmp_path, KEY)] == ["softmax"]
    assert read_earned(tmp_path, "nvidia-b200") == {}
    assert read_earned(tmp_path, "../elsewhere") == {}


@pytest.mark.parametrize("text", ["[" * 60_000, "- " * 60_000, "{a: " * 40_000, "a: *b\n" * 20_000])
def test_what_nests_without_end_is_an_error_and_no_crash(tmp_path, text):
    reason, _ = error(tmp_path, text)

    assert reason.kind == "thresholds_unreadable"
