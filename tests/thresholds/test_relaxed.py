"""The entries of `relaxed` in an op's file."""

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.read import load

WHOLE = 'key: tau, case: "rows=7,*", device: nvidia-h200, to: 3 %, why: "noisy", until: 2027-01-31'


def loaded(path, *lines, name="softmax"):
    (path / f"{name}.yaml").write_text("relaxed:\n" + "".join(f"  - {line}\n" for line in lines), encoding="utf-8")
    return load(path)


def test_an_entry_is_read_whole(tmp_path):
    (entry,) = loaded(tmp_path, f"{{{WHOLE}}}").ops["softmax"].relaxed

    assert (entry.op, entry.key, entry.case, entry.device) == ("softmax", "tau", "rows=7,*", "nvidia-h200")
    assert (entry.to, entry.why, entry.until, entry.line) == (0.03, "noisy", "2027-01-31", 2)
    assert entry.file.endswith("softmax.yaml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{key: tua, why: "x", until: 2027-01-31}', "did you mean tau?"),
        ('{key: alpha, why: "x", until: 2027-01-31}', "not a threshold"),
        ('{key: floor_us, to: 1, why: "x", until: 2027-01-31}', "not a threshold"),
        ('{kye: tau, why: "x", until: 2027-01-31}', "did you mean key?"),
        ("{key: tau, until: 2027-01-31}", "lacks why"),
        ('{key: tau, why: "x"}', "lacks until"),
        ('{why: "x", until: 2027-01-31}', "lacks key"),
        ('{key: tau, to: 3, why: "x", until: 2027-01-31}', "tau is 3, but has to be a percentage"),
        ('{key: speedup, to: 3 %, why: "x", until: 2027-01-31}', "speedup is 3 %"),
        ('{key: tau, why: "", until: 2027-01-31}', "a reason in quotes"),
        ('{key: tau, why: "x", until: soon}', "a date such as"),
        ('{key: tau, why: "x", until: 2027-02-30}', "a date such as 2027-01-31"),
        ('{key: tau, case: "rows 7", why: "x", until: 2027-01-31}', "a pattern for case ids"),
        ('{key: tau, device: "a/b", why: "x", until: 2027-01-31}', "the key of a device"),
        ("tau", "an entry such as {key: tau"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, line, words):
    with pytest.raises(StoredFileError) as caught:
        loaded(tmp_path, line)

    reason = caught.value.reason
    assert reason.kind in catalogue()
    assert reason.facts["line"] == 2
    assert words in sentence(reason)


def test_one_thing_is_not_relaxed_twice(tmp_path):
    with pytest.raises(StoredFileError) as caught:
        loaded(tmp_path, f"{{{WHOLE}}}", f"{{{WHOLE}}}")

    assert caught.value.reason.kind == "entry_twice"
    assert "in line 2" in sentence(caught.value.reason)
