import dataclasses
import errno
import gzip
import os
from importlib import resources
from io import FileIO

import pytest

from perfci import store
from perfci.core.errors import StoredFileError
from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.model.basics import ErrorStats, Reason, Suite
from perfci.core.model.measured import AccuracyCase, ArmBlock, Block, CompiledKernel, OpRun, PerformanceCase, Summary
from perfci.core.model.place import Device, DeviceState, Environment, Limits
from perfci.core.model.run import Plan, PlannedOp, Run
from perfci.store import launches as store_launches
from perfci.store import signature
from perfci.store.launches import append_launches, read_launches
from tests.schemas import WRITTEN, write_for_editors
from tests.stored_examples import write_baseline

DEVICE = Device("cuda", "NVIDIA H200", "nvidia-h200", uuid="GPU-1", driver="580.1", processors=132)
ENVIRONMENT = Environment(DEVICE, "activity", "3.11.7", {"torch": "2.11.0"}, "host", "Linux", commit="abc", dirty=False)
CASES = ("rows=1,dtype=float16", "rows=2,dtype=float16")


def arm(us: float) -> ArmBlock:
    return ArmBlock(Summary(30, us, us, us, us, us, us, us, us, 0.01, 0), span_us=us + 1, activities=1)


def performance(case: str) -> PerformanceCase:
    block = Block(
        0, 0, 1.5, {"kernel": arm(10.0), "reference": arm(12.0)}, {"kernel/reference": -0.1823215567939546},
        DeviceState(sm_clock_mhz=1980, throttle=("power_cap",)),
    )  # fmt: skip
    return PerformanceCase(case, bytes_moved=4096, compiled=(CompiledKernel("k", registers=32),), blocks=(block,))


def a_run() -> Run:
    accuracy = AccuracyCase("rows=1", "normal", "contiguous", 7, fresh=True, errors=ErrorStats(3, worst_index=(0, 2)))
    failure = Reason("kernel_raised", {"error": "Zürich, 数", "line": None})
    wrong = AccuracyCase("rows=2", "nan", "strided", 8, failure=failure)
    op = OpRun("softmax", (accuracy, wrong), tuple(performance(case) for case in CASES))
    plan = Plan((PlannedOp("softmax", ("rows=1",), CASES),), 7, 1.0, "cuda", suites=(Suite.ACCURACY, Suite.PERFORMANCE))
    return Run(
        "r1", "2026-01-01T00:00:00Z", "0.1.0", "perfci check", ENVIRONMENT, plan, (op,), Limits(4000.0, {"bf16": 700.0})
    )


def a_baseline() -> Baseline:
    cases = tuple(BaselineCase(case, (BaselineBlock("r1", 10.0, 12.0, -0.182322, span_us=11.0),)) for case in CASES)
    run = BaselineRun("r1", "2026-01-01T00:00:00Z", ENVIRONMENT)
    return Baseline("softmax", "nvidia-h200", "activity", (run,), cases)


def reason(caught: pytest.ExceptionInfo[StoredFileError]) -> Reason:
    return caught.value.reason


def test_a_run_reads_back_as_it_was_but_for_the_seventh_digit(tmp_path):
    run = a_run()

    read = store.read_run(store.write_run(run, tmp_path))

    block = run.ops[0].performance[0].blocks[0]
    rounded = dataclasses.replace(block, shifts={"kernel/reference": -0.182322})
    cases = tuple(dataclasses.replace(case, blocks=(rounded,)) for case in run.ops[0].performance)
    assert read == dataclasses.replace(run, ops=(dataclasses.replace(run.ops[0], performance=cases),))


def test_changing_one_case_changes_one_line(tmp_path):
    baseline = a_baseline()
    slower = dataclasses.replace(baseline.cases[1], blocks=(BaselineBlock("r1", 11.0, 12.0, -0.09),))
    before = write_baseline(baseline, tmp_path).read_text().splitlines()

    changed = dataclasses.replace(baseline, cases=(baseline.cases[0], slower))
    after = write_baseline(changed, tmp_path).read_text().splitlines()

    assert len(before) == len(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_a_baseline_lies_under_its_device_and_op(tmp_path):
    path = write_baseline(a_baseline(), tmp_path)

    assert path == tmp_path / "nvidia-h200" / "softmax.json"
    assert store.read_baseline(path) == a_baseline()
    assert store.read_baselines(tmp_path, "nvidia-h200") == {"softmax": a_baseline()}


def test_a_baseline_under_another_ops_name_is_refused(tmp_path):
    path = write_baseline(a_baseline(), tmp_path)
    path.rename(path.with_name("matmul.json"))

    with pytest.raises(StoredFileError) as caught:
        store.read_baselines(tmp_path, "nvidia-h200")

    assert reason(caught).kind == "baseline_misplaced"


def test_a_torn_file_is_named_with_the_place_where_it_ends(tmp_path):
    path = store.write_run(a_run(), tmp_path)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    lines = path.read_text().split("\n")
    assert reason(caught).kind == "file_damaged"
    assert reason(caught).facts == {"path": str(path), "line": len(lines), "column": len(lines[-1]) + 1}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [(b"", 1, 1), (b'{"format": 1,\n "id": ?}', 2, 8), (b'{"format": 1,\n "id": "\xff"}', 2, 9), (b"<html>", 1, 1)],
)
def test_what_is_no_json_is_named_with_line_and_column(tmp_path, text, line, column):
    path = tmp_path / "run.json"
    path.write_bytes(text)

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    assert reason(caught) == Reason("file_damaged", {"path": str(path), "line": line, "column": column})


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "one"}', '{"format": 0}', "null", '{"results": []}'])
def test_json_of_another_tool_is_foreign(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    assert reason(caught) == Reason("file_foreign", {"path": str(path)})


def test_a_wrong_value_is_named_by_its_json_path(tmp_path):
    path = store.write_run(a_run(), tmp_path)
    path.write_text(path.read_text().replace('"budget_s": 1.0', '"budget_s": "much"'))

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    assert reason(caught).kind == "file_unexpected"
    assert reason(caught).facts["place"] == "$.plan.budget_s"


def test_an_integer_that_no_float_holds_is_refused_with_its_place(tmp_path):
    path = store.write_run(a_run(), tmp_path)
    path.write_text(path.read_text().replace('"seed": ', '"seed": ' + "9" * 309, 1))

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    assert (reason(caught).kind, reason(caught).facts["place"]) == ("file_unexpected", "$.ops[0].accuracy[0].seed")


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9}'])
def test_an_unreadable_file_is_never_written_over(tmp_path, text):
    (tmp_path / "nvidia-h200").mkdir()
    for path in (tmp_path / "run.json", tmp_path / "nvidia-h200" / "softmax.json"):
        path.write_text(text)

    with pytest.raises(StoredFileError):
        store.write_run(a_run(), tmp_path)
    with pytest.raises(StoredFileError):
        write_baseline(a_baseline(), tmp_path)

    assert (tmp_path / "run.json").read_text() == text
    assert (tmp_path / "nvidia-h200" / "softmax.json").read_text() == text


def test_a_full_disk_leaves_the_old_file_whole_and_nothing_beside_it(tmp_path, monkeypatch):
    path = store.write_run(a_run(), tmp_path)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoredFileError) as caught:
        store.write_run(dataclasses.replace(a_run(), id="r2"), tmp_path)

    assert reason(caught) == Reason("file_unwritable", {"path": str(path), "why": "No space left on device"})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_needed_number_that_is_none_is_refused_and_the_old_file_stays(tmp_path):
    path = write_baseline(a_baseline(), tmp_path)
    before = path.read_bytes()
    case = BaselineCase("rows=1", (BaselineBlock("r1", float("nan"), 12.0, 0.0),))

    with pytest.raises(StoredFileError) as caught:
        write_baseline(dataclasses.replace(a_baseline(), cases=(case,)), tmp_path)

    assert reason(caught).kind == "value_unstorable"
    assert path.read_bytes() == before


def test_launches_come_back_in_order(tmp_path):
    append_launches(tmp_path, "softmax", "rows=1", 0, 0, {"kernel": [1.0, 2.0004], "reference": [3.0]})
    append_launches(tmp_path, "softmax", "rows=1", 0, 1, {"kernel": [4.0]})

    launches = read_launches(tmp_path)

    assert launches.note is None
    assert [(row.block, row.arm, row.us) for row in launches.rows] == [
        (0, "kernel", (1.0, 2.0)),
        (0, "reference", (3.0,)),
        (1, "kernel", (4.0,)),
    ]


def test_a_torn_tail_of_launches_is_a_note_and_the_rest_is_read(tmp_path):
    append_launches(tmp_path, "softmax", "rows=1", 0, 0, {"kernel": [1.0]})
    whole = (tmp_path / "launches.jsonl.gz").stat().st_size
    append_launches(tmp_path, "softmax", "rows=1", 0, 1, {"kernel": [2.0]})
    os.truncate(tmp_path / "launches.jsonl.gz", whole + 15)

    launches = read_launches(tmp_path)

    assert [row.block for row in launches.rows] == [0]
    assert launches.note is not None
    assert launches.note.kind == "launches_torn"
    assert launches.note.facts["rows"] == 1


def test_a_failed_append_leaves_earlier_launches_readable(tmp_path, monkeypatch):
    append_launches(tmp_path, "softmax", "rows=1", 0, 0, {"kernel": [1.0]})

    class Full(FileIO):
        def write(self, data: bytes) -> None:
            super().write(data[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("perfci.store.launches.append_regular", lambda path: Full(path, "ab"))
    with pytest.raises(StoredFileError) as caught:
        append_launches(tmp_path, "softmax", "rows=1", 0, 1, {"kernel": [2.0]})
    monkeypatch.undo()

    assert reason(caught).kind == "file_unwritable"
    assert [row.block for row in read_launches(tmp_path).rows] == [0]
    assert read_launches(tmp_path).note is None


@pytest.mark.parametrize("name", WRITTEN)
def test_the_schema_that_editors_read_is_the_generated_one(name, tmp_path):
    write_for_editors(tmp_path)
    published = resources.files("perfci").joinpath("schemas", name).read_text()

    assert published == (tmp_path / name).read_text(), "run: python -m tests.schemas"


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_run_that_is_no_plain_file_is_refused_by_name(tmp_path, what):
    (tmp_path / "secret").write_text("{}")
    path = tmp_path / "run.json"
    path.symlink_to(tmp_path / "secret") if what == "link" else os.mkfifo(path)

    for work in (lambda: store.read_run(tmp_path), lambda: store.claim_reports(tmp_path).__enter__()):
        with pytest.raises(StoredFileError) as caught:
            work()
        assert caught.value.reason.kind == "file_unreadable"
        assert str(path) in str(caught.value)


def test_launches_of_few_bytes_do_not_fill_the_memory(tmp_path, monkeypatch):
    """A time of two bytes in the file takes 32 in memory."""
    monkeypatch.setattr(store_launches, "_MOST_TIMES", 250_000)
    monkeypatch.setattr(store_launches, "_CHUNK", 1 << 16)
    row = b'{"op":"relu","case":"x","process":0,"block":0,"arm":"kernel","us":[' + b"1," * 99_999 + b"1]}\n"
    (tmp_path / "launches.jsonl.gz").write_bytes(gzip.compress(row * 50, mtime=0))

    launches = read_launches(tmp_path)

    assert launches.note is not None
    assert launches.note.kind == "launches_torn"
    assert [len(row.us) for row in launches.rows] == [100_000] * 2


def test_launches_are_never_appended_through_a_link(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "launches.jsonl.gz").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoredFileError) as caught:
        append_launches(tmp_path, "softmax", "rows=1", 0, 0, {"kernel": [1.0]})

    assert reason(caught).kind == "file_unwritable"
    assert (tmp_path / "elsewhere").read_bytes() == b""


@pytest.mark.parametrize("target", ["run.json", "run.json.sig"])
def test_a_signature_is_never_sought_in_a_file_without_end(tmp_path, monkeypatch, target):
    monkeypatch.setenv(signature.KEY, "k" * signature.SHORTEST)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "run.json.sig").write_text("0" * 64)
    (tmp_path / target).unlink()
    (tmp_path / target).symlink_to("/dev/zero")

    with pytest.raises(StoredFileError) as caught:
        signature.check(tmp_path)

    assert reason(caught).kind == "file_unreadable"
