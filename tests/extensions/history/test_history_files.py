"""Histories on disk: what can be read is read, what cannot is not lost, and each fault is one sentence."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.model import ErrorStats, HistoryAccuracy
from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import BoardCounts, Epoch, HistoryStored
from perfci.extensions.common.history import KEPT, History, history_devices, read_history, with_names_of_now
from perfci.store import layout
from perfci.store.files import held
from tests.closed_schemas import faults
from tests.history_examples import CASE, OTHER, accepted, figures
from tests.stored_examples import append_history

KEY, OP = "nvidia-h200", "softmax"


@pytest.fixture
def path(tmp_path) -> Path:
    """Three runs, as accept wrote them."""
    for number in range(3):
        append_history(tmp_path, KEY, OP, accepted(number))
    return tmp_path / KEY / f"{OP}.history.jsonl"


def read(path, **wishes):
    return read_history(path.parent.parent, KEY, OP, **wishes)


def names(history):
    return [run.run for run in history.runs]


def problem(history):
    (only,) = history.problems
    return only


def append(path, number=9, **fields):
    return append_history(path.parent.parent, KEY, OP, accepted(number, **fields))


def refused(path, number=9):
    """The reason why nothing more is written; the file is unchanged."""
    before = path.read_bytes()
    with pytest.raises(StoredFileError) as caught:
        append(path, number)
    assert path.read_bytes() == before
    assert sentence(caught.value.reason)
    return caught.value.reason


def with_lines(path, *lines):
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))


def line(number, **fields):
    return layout.line(accepted(number, **fields))


# --- as it should be --------------------------------------------------------------------------------------------------


def test_an_op_without_a_history_has_an_empty_one(tmp_path):
    assert read_history(tmp_path, KEY, OP) == History(OP, KEY)
    assert history_devices(tmp_path) == []


def test_what_was_appended_is_read_in_that_order(path):
    history = read(path)

    assert names(history) == ["run0", "run1", "run2"]
    assert history.runs[1] == accepted(1)
    assert history.problems == ()
    assert history_devices(path.parent.parent) == [KEY]


def test_every_line_stands_alone_and_fits_the_published_schema(path):
    lines = path.read_text().splitlines()

    assert len(lines) == 3
    assert [fault for line in lines for fault in faults(json.loads(line), "history.schema.json")] == []


def test_the_last_hundred_runs_are_kept(path):
    for number in range(3, KEPT + 5):
        append(path, number, created="2026-02-01T00:00:00Z")

    assert names(read(path)) == [f"run{number}" for number in range(5, KEPT + 5)]


def test_the_same_run_is_not_written_twice(path):
    before = path.read_bytes()

    append(path, 1)

    assert path.read_bytes() == before


def test_what_is_accepted_later_of_a_run_joins_its_line(path):
    later = accepted(1, figures(OTHER, 20.0), why="float32 sums")
    accuracy = (HistoryAccuracy("n=1", 3, ErrorStats(9, max_abs=0.5)),)
    append_history(path.parent.parent, KEY, OP, dataclasses.replace(later, accuracy=accuracy))

    history = read(path).runs[1]
    assert names(read(path)) == ["run0", "run1", "run2"]
    assert [case.case for case in history.cases] == [CASE, OTHER]
    assert history.epoch == Epoch("float32 sums", (OTHER,))
    assert history.accuracy == accuracy


def test_what_a_run_stores_in_low_precision_stays_when_a_case_is_accepted_later(path):
    first, second = (HistoryStored(f"stored={name},n=4", ErrorStats(4, p99_abs=0.01), 0.0) for name in "ab")
    boards = (BoardCounts("GPU-1", judged=2),)
    append_history(path.parent.parent, KEY, OP, dataclasses.replace(accepted(6), stored=(first, second), boards=boards))
    changed = dataclasses.replace(second, clip_ratio=0.5)

    append_history(path.parent.parent, KEY, OP, dataclasses.replace(accepted(6, figures(OTHER)), stored=(changed,)))

    assert read(path).runs[-1].stored == (first, changed)
    assert read(path).runs[-1].boards == boards


def test_two_epochs_of_a_run_keep_both_reasons(path):
    append(path, 2, why="one")
    append_history(path.parent.parent, KEY, OP, accepted(2, figures(OTHER), why="two"))

    assert read(path).runs[-1].epoch == Epoch("one; two", (CASE, OTHER))


def test_a_number_that_is_none_is_never_written(path):
    broken = accepted(4, figures(kernel_us=float("nan")))
    before = path.read_bytes()

    with pytest.raises(StoredFileError) as caught:
        append_history(path.parent.parent, KEY, OP, broken)

    assert caught.value.reason.kind == "value_unstorable"
    assert path.read_bytes() == before


@pytest.mark.parametrize("op", ["../x", "", "a/b", ".hidden"])
def test_a_name_that_is_no_files_is_refused(tmp_path, op):
    with pytest.raises(StoredFileError) as caught:
        append_history(tmp_path, KEY, op, accepted(0))

    assert caught.value.reason.kind == "baseline_name"


# --- torn, damaged, newer, conflicted ---------------------------------------------------------------------------------


def test_a_last_line_that_only_lacks_its_end_is_whole(path):
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    assert read(path).problems == ()
    append(path)

    assert names(read(path)) == ["run0", "run1", "run2", "run9"]


@pytest.mark.parametrize(
    "text", ['{"run": 3}', "no JSON", "[]", "null", '{"format": 1}', "[" * 100_000, b"\xff\xfe", '{"format": 0}']
)
def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_written(path, text):
    with_lines(path, line(0), text, "\n", line(2))

    history = read(path)

    assert names(history) == ["run0", "run2"]
    assert (problem(history).kind, problem(history).facts["line"]) == ("history_damaged", 2)
    assert str(path) in sentence(problem(history))
    assert refused(path).kind == "history_damaged"


def test_a_line_of_a_newer_format_is_left_alone(path):
    newer = line(1).replace('"format": 1', '"format": 7').replace("kernel_us", "kernel_ns")
    with_lines(path, line(0), newer, line(2))

    history = read(path)

    assert names(history) == ["run0", "run2"]
    assert (problem(history).kind, problem(history).facts["found"]) == ("history_too_new", 7)
    assert refused(path).kind == "history_too_new"


def test_both_sides_of_a_merge_conflict_are_read_and_nothing_is_written(path):
    with_lines(path, line(0), "<<<<<<< HEAD\n", line(1), "=======\n", line(2), ">>>>>>> topic\n")

    history = read(path)

    assert names(history) == ["run0", "run1", "run2"]
    assert (problem(history).kind, problem(history).facts["line"]) == ("history_conflicted", 2)
    assert refused(path).kind == "history_conflicted"


def test_a_line_of_another_device_is_left_out_and_nothing_is_written(path):
    with_lines(path, line(0), line(1, key="nvidia-a100"))

    history = read(path)

    assert names(history) == ["run0"]
    assert problem(history).facts["device"] == "nvidia-a100"
    assert refused(path).kind == "history_other_device"


def test_a_history_that_cannot_be_read_is_an_error_that_names_it(path):
    path.unlink()
    path.mkdir()

    with pytest.raises(StoredFileError) as caught:
        read(path)

    assert caught.value.reason.kind == "file_unreadable"


# --- branches that were joined, and clocks ----------------------------------------------------------------------------


def test_lines_that_a_union_merge_doubled_count_once(path):
    with_lines(path, line(0), line(1), line(2), line(1), line(0))

    assert names(read(path)) == ["run0", "run1", "run2"]
    assert read(path).problems == ()
    append(path)

    assert len(path.read_text().splitlines()) == 4


# --- two jobs at once -------------------------------------------------------------------------------------------------


WRITES = """
import sys
from pathlib import Path

from tests.history_examples import accepted
from tests.stored_examples import append_history

for number in range(int(sys.argv[2]), int(sys.argv[2]) + 10):
    append_history(Path(sys.argv[1]), sys.argv[3], sys.argv[4], accepted(number, created="2026-01-01T00:00:00Z"))
"""


def test_two_jobs_that_write_at_once_lose_no_line(tmp_path):
    root = Path(__file__).resolve().parents[3]
    jobs = [
        subprocess.Popen([sys.executable, "-c", WRITES, tmp_path, first, KEY, OP], cwd=root) for first in ("0", "50")
    ]

    assert [job.wait() for job in jobs] == [0, 0]
    assert sorted(names(read_history(tmp_path, KEY, OP))) == sorted(
        f"run{number}" for first in (0, 50) for number in range(first, first + 10)
    )
    assert sorted(path.name for path in (tmp_path / KEY).iterdir()) == [f"{OP}.history.jsonl"]


def test_one_who_waits_too_long_is_told_and_changes_nothing(path):
    with held(path.parent), pytest.raises(StoredFileError) as caught, held(path.parent, wait_s=0.05):
        pass

    assert caught.value.reason.kind == "baselines_taken"


@pytest.mark.skipif(os.name == "nt", reason="modes of folders are another matter there")
def test_a_full_disk_leaves_the_history_as_it_was(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(StoredFileError) as caught:
        append(path)

    assert caught.value.reason.kind == "file_unwritable"
    assert path.read_bytes() == before


# --- names of now -----------------------------------------------------------------------------------------------------


def test_a_renamed_case_goes_on_under_its_new_name(path):
    append(path, 3, renamed={"m=1": CASE})
    renamed = accepted(4, figures("m=1"), renamed={"m=1": CASE})
    append_history(path.parent.parent, KEY, OP, renamed)

    history = read(path)

    assert [[case.case for case in run.cases] for run in history.runs[:3]] == [["m=1"]] * 3
    assert [case.case for case in history.runs[-1].cases] == ["m=1"]
    assert [case.case for case in read(path, follow=False).runs[0].cases] == [CASE]


def test_a_case_renamed_twice_is_followed_through_both(tmp_path):
    runs = [
        accepted(0, figures("a"), why="slower"),
        accepted(1, figures("b"), renamed={"b": "a"}),
        accepted(2, figures("c"), renamed={"c": "b"}),
    ]

    renamed = with_names_of_now(runs)

    assert [run.cases[0].case for run in renamed] == ["c", "c", "c"]
    assert renamed[0].epoch == Epoch("slower", ("c",))


def test_a_case_that_had_the_new_name_beside_the_old_one_was_another(tmp_path):
    runs = [accepted(0, figures("a", 1.0), figures("b", 2.0)), accepted(1, figures("b"), renamed={"b": "a"})]

    (case,) = with_names_of_now(runs)[0].cases

    assert (case.case, case.kernel_us.median_us) == ("b", 1.0)


def test_a_renamed_op_goes_on_with_its_old_history(path):
    folder = path.parent.parent
    append_history(folder, KEY, "row_softmax", accepted(3, renamed_from=OP))

    history = read_history(folder, KEY, "row_softmax")

    assert names(history) == ["run0", "run1", "run2", "run3"]
    assert names(read_history(folder, KEY, "row_softmax", follow=False)) == ["run3"]


def test_ops_that_claim_to_come_from_each_other_are_read_once(tmp_path):
    append_history(tmp_path, KEY, "a", accepted(0, renamed_from="b"))
    append_history(tmp_path, KEY, "b", accepted(1, renamed_from="a"))

    assert names(read_history(tmp_path, KEY, "a")) == ["run1", "run0"]


def _spoiled(data, rng):
    """Some bytes cut out, overwritten or put in."""
    at, length = rng.randrange(len(data)), rng.randrange(1, 40)
    put = rng.choice(
        [b"", b"\n", b"\0" * 5, b'"', b"}\n{", b"<<<<<<< HEAD\n", bytes(rng.randrange(256) for _ in range(6))]
    )
    return data[:at] + put + data[at + rng.choice([0, length]) :]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_file_holds_reading_never_fails_and_writing_loses_no_run(path, seed):
    path.write_bytes(_spoiled(path.read_bytes(), random.Random(seed)))
    before, read_before = path.read_bytes(), names(read(path))
    assert all(sentence(problem) for problem in read(path).problems)

    refusal = None
    try:
        append(path)
    except StoredFileError as error:
        refusal = error.reason

    if refusal:
        assert sentence(refusal)
        assert path.read_bytes() == before
    else:
        assert names(read(path)) == [*read_before, "run9"]
        assert {line for line in before.split(b"\n") if line.strip()} <= set(path.read_bytes().split(b"\n"))
