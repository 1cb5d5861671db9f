"""Values as text, and relaxed entries beside what people wrote."""

from __future__ import annotations

import difflib

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.read import NUMBERS, load
from perfci.thresholds.write import read_value, write_relaxed, write_value


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
