"""Runs, baselines and launches: any content is read or is one clear sentence, and the file stays as it was."""

import dataclasses
import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfci import store
from perfci.core.errors import StoredFileError
from perfci.core.model import Baseline, Reason, Run
from perfci.core.wording import sentence
from perfci.store.launches import DECIMALS, LAUNCHES_FILE, Launches, LaunchRow, append_launches, read_launches
from tests.fuzz import mutations, values
from tests.stored_examples import write_baseline

READERS = {"run.json": store.read_run, "softmax.json": store.read_baseline}
KINDS = {"run.json": Run, "softmax.json": Baseline}


def read(name: str, data: bytes) -> object | None:
    """Reads a file of these bytes; None if it is refused, which names the place and changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nvidia-h200", name)
        path.parent.mkdir()
        path.write_bytes(data)
        record = _read(name, path)
        assert path.read_bytes() == data
        assert not isinstance(record, Reason) or str(path) in sentence(record)
        return None if isinstance(record, Reason) else record


def _read(name: str, path: Path) -> object:
    try:
        return READERS[name](path)
    except StoredFileError as error:
        return error.reason


@pytest.mark.parametrize("name", READERS)
@given(data=st.one_of(st.binary(max_size=200), mutations.json_texts()))
@example(data=b'{"format": 1, "id": ' + b"[" * 100_000)
@example(data=b'{"format": ' + b"1" * 5_000 + b"}")
@example(data=b'{"format": 1, "id": "\\ud800"}')
@example(data=b'{"format": 1, "wall_s": 1e999}')
@example(data=b"\xef\xbb\xbf{}")
@example(data=b'{"format": 1.0}')
def test_arbitrary_bytes_read_or_are_refused_by_name(name, data):
    read(name, data)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_mutated_file_reads_or_is_refused_by_name(name, data):
    whole = mutations.file_of(data.draw(values.records(KINDS[name])))
    read(name, data.draw(mutations.mutated(whole)))


@given(run=values.records(Run))
def test_a_run_comes_back_as_it_was(run):
    with tempfile.TemporaryDirectory() as folder:
        assert store.read_run(store.write_run(run, Path(folder))) == run


@given(baseline=values.records(Baseline, op=st.just("softmax"), device=st.just("nvidia-h200")))
def test_a_baseline_comes_back_as_it_was(baseline):
    with tempfile.TemporaryDirectory() as folder:
        assert store.read_baseline(write_baseline(baseline, Path(folder))) == baseline


@given(run=values.records(Run), at=st.integers(0))
def test_a_run_cut_off_anywhere_is_refused_with_its_line(run, at):
    whole = mutations.file_of(run)
    assert read("run.json", whole[: at % (len(whole) - 1)]) is None


@given(text=st.text(), run=values.records(Run, ops=st.just(())))
def test_text_that_utf8_cannot_hold_is_spelt_out(text, run):
    """Such as a file's name that is no text, in the message of an exception."""
    named = dataclasses.replace(run, command=f"{text}\udcff")

    with tempfile.TemporaryDirectory() as folder:
        assert store.read_run(store.write_run(named, Path(folder))).command.endswith("\\udcff")


rows = st.lists(values.records(LaunchRow, format=st.just(1)), max_size=3)


@given(rows=rows, cut=st.integers(0), flip=st.integers(1, 255))
def test_a_spoilt_launches_file_gives_whole_rows_and_a_note(rows, cut, flip):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in rows:
            append_launches(folder, row.op, row.case, row.process, row.block, {row.arm: row.us})
        assert [row.us for row in read_launches(folder).rows] == [
            tuple(round(us, DECIMALS) for us in row.us) for row in rows
        ]
        path = folder / LAUNCHES_FILE
        for data in _spoilt(path.read_bytes() if rows else b"", cut, flip):
            path.write_bytes(data)
            launch_rows = launches(folder)
            assert len(launch_rows.rows) <= len(rows) and path.read_bytes() == data
            assert launch_rows.note is None or str(path) in sentence(launch_rows.note)


def _spoilt(data: bytes, cut: int, flip: int) -> Iterator[bytes]:
    at = cut % (len(data) + 1)
    yield data[:at]
    yield data[:at] + bytes([flip]) + data[at + 1 :]


@given(data=st.one_of(st.binary(max_size=100), mutations.ANYTHING.map(lambda tree: json.dumps(tree).encode())))
@example(data=b"[" * 100_000)
@example(data=b'{"op": "a", "case": "b", "process": 1e400, "block": 0, "arm": "", "us": []}')
def test_launches_of_any_bytes_are_a_note(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, LAUNCHES_FILE)
        for written in (data, gzip.compress(data)):
            path.write_bytes(written)
            assert launches(Path(folder)).rows == ()


def launches(folder: Path) -> Launches:
    """What is read; for a later version, the refusal's text."""
    try:
        return read_launches(folder)
    except StoredFileError as error:
        return Launches((), error.reason)


def test_a_line_without_end_is_a_torn_file_and_no_hang(tmp_path):
    path = tmp_path / LAUNCHES_FILE
    path.write_bytes(gzip.compress(b"[" * (1 << 27), 1))

    assert read_launches(tmp_path).note.kind == "launches_torn"
