"""A search's file: kept line by line, and never trusted if it is damaged."""

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.model import Reason
from perfci.extensions.lab.tune.records import Attempt, open_search

ASKED = {"op": "blur", "device": "fake-one"}
FIRST = Attempt("*", {"block": 16, "tma": True}, shifts={"a": (0.25, -0.5)}, us={"a": 12.5})
SECOND = Attempt("*", {"block": 32}, failure=Reason("tune_raised", {"case": "a", "line": 3}))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tune" / "blur.jsonl"


def kept(path, *records, seed=7):
    state = open_search(path, ASKED, seed, 1)
    for record in records:
        state.add(record)
    return state


def test_what_was_kept_is_read_again(path):
    kept(path, FIRST, SECOND)

    again = open_search(path, ASKED, None, 99)

    assert (again.tried, again.head.seed, again.resumed, again.anew) == ([FIRST, SECOND], 7, True, False)


def test_a_line_that_was_cut_off_is_dropped_and_written_over(path):
    kept(path, FIRST, SECOND)
    path.write_bytes(path.read_bytes()[:-9])

    state = open_search(path, ASKED, None, 99)
    assert state.tried == [FIRST]
    state.add(SECOND)

    assert open_search(path, ASKED, None, 99).tried == [FIRST, SECOND]


@pytest.mark.parametrize(("asked", "seed"), [({**ASKED, "files": "other"}, None), (ASKED, 8)])
def test_another_question_or_seed_starts_anew_and_says_so(path, asked, seed):
    kept(path, FIRST)

    state = open_search(path, asked, seed, 99)

    assert (state.tried, state.anew, state.resumed) == ([], True, False)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: b"", 1),
        (lambda data: b"\n" + data, 1),
        (lambda data: data.replace(b'"format":1', b'"format":2'), 1),
        (lambda data: data.replace(b'"stage":"search"', b'"stage":5', 1), 2),
        (lambda data: data + b"<<<<<<< HEAD\n", 4),
        (lambda data: b"\xff\xfe" + data, 1),
    ],
)
def test_a_damaged_file_is_named_with_its_line_and_left_alone(path, change, line):
    kept(path, FIRST, SECOND)
    damaged = change(path.read_bytes())
    path.write_bytes(damaged)

    with pytest.raises(StoredFileError, match=rf"blur\.jsonl is damaged at line {line}: .+ Delete it to search again"):
        open_search(path, ASKED, None, 99)
    assert path.read_bytes() == damaged
