"""The profiler's files, of the documented columns: what becomes of them, and that nothing is made up."""

import csv
import io
import os
import re

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")


from perfci.core.errors import DeviceError, RecordsLostError
from perfci.device.timers import NAME
from perfci.extensions.npu import profiler as ascend_profiler
from perfci.extensions.npu.profiler import npu_profiler_session, read_copies, read_details
from tests.extensions.npu.scripted_npu import COLUMNS, Chip, Flush, Profiler, details

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """No test waits for a parser."""
    monkeypatch.setattr(ascend_profiler, "WAIT_S", 0.0)
    monkeypatch.setattr(ascend_profiler, "_POLL_S", 0.0)


@pytest.fixture
def chip():
    return Chip()


def session(chip, work, profiler=None, ready=lambda: None):
    with npu_profiler_session(profiler or Profiler(chip), Flush(chip), chip.synchronize, ready) as opened:
        work(opened)
    return opened


def text(lines):
    out = io.StringIO()
    csv.writer(out).writerows(lines)
    return out.getvalue()


# --- the file ---------------------------------------------------------------------------------------------------------


def test_start_times_keep_their_nanoseconds_though_a_float_would_not():
    rows = read_details(text(details([("kernel", "AI_CORE", 123, 4567)])))

    assert (rows[0].start_ns, rows[0].duration_ns) == (1774670741777000_123, 4567)
    assert float("1774670741777000.123") * 1000 != rows[0].start_ns


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "empty"),
        ([["Name", "Start Time(us)"]], "no column Duration"),
        ([["Nothing", "Known"], ["1", "2"]], "no column Name"),
        ([*details([("kernel", "AI_CORE", 0, 1)]), ["0", "cut"]], "line 3 has 2 of 8"),
        ([list(COLUMNS), ["0", "k", "k", "", "N/A", "1", "0", "1"]], "line 2 has the time 'N/A'"),
        ([list(COLUMNS), ["0", "k", "k", "", "1.77467E+15", "1", "0", "1"]], "'1.77467E+15'"),
        ([list(COLUMNS), ["0", "k", "k", "", "1", "-3", "0", "1"]], "'-3'"),
        ([list(COLUMNS), ["0", "k", "k", "", "1", "inf", "0", "1"]], "'inf'"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_its_line(lines, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read_details(text(lines))


def test_the_use_of_cores_is_how_long_they_worked_of_the_kernels_time():
    head = "Name,Type,Start Time(us),Duration(us),aicore_time(us),aic_mac_ratio,aiv_time(us),aiv_mte2_ratio"
    (mixed, vector) = read_details(f"{head}\nk,k,1.000,10.000,7.5,0.6,2.5,0.4\nv,v,9.000,4.000,N/A,N/A,4.5,0.9\n")

    assert mixed.counters == {"ai_core": 0.75, "cube": 0.6, "mte": 0.4}
    assert vector.counters == {"ai_core": 1.0, "mte": 0.9}


def test_copies_come_from_canns_own_table_of_tasks_and_nothing_else_does():
    lines = [
        [
            "Device_id",
            "kernel_name",
            "kernel_type",
            "stream_id",
            "task_id",
            "task_time(us)",
            "task_start(us)",
            "task_stop(us)",
        ],
        ["0", "add", "AI_VECTOR_CORE", "3", "1", "5", "100", "105"],
        ["0", "N/A", "MEMCPY_ASYNC", "3", "2", "7.5", "110.5\t", "118"],
        ["0", "N/A", "SDMA_SQE", "3", "3", "1", "120", "121"],
        ["0", "N/A", "EVENT_RECORD", "3", "4", "0.1", "122", "122"],
    ]

    assert [(row.name, row.start_ns, row.duration_ns, row.stream) for row in read_copies(text(lines))] == [
        ("MEMCPY_ASYNC", 110_500, 7500, 3),
        ("SDMA_SQE", 120_000, 1000, 3),
    ]
    assert read_copies("something else\n1\n") == read_copies("") == []
    assert read_copies(text([lines[0], [*lines[2][:5], "N/A", "1", "2"]])) == []


# --- a session --------------------------------------------------------------------------------------------------------


def test_a_launch_is_the_sum_of_what_stands_between_two_flushes(chip):
    def work(opened):
        opened.launch(lambda: (chip.run("first", 5.0, gap_us=2.0), chip.run("second", 7.5, gap_us=3.0)))
        opened.launch(lambda: chip.run("third", 40.25))

    launches = session(chip, work).launches()

    assert [launch.time_us for launch in launches] == [12.5, 40.25]
    assert [launch.span_us for launch in launches] == [15.5, 40.25]
    assert [launch.activities for launch in launches] == [2, 1]


def test_work_of_the_ai_cpu_is_said_to_have_fallen_back(chip):
    def work(opened):
        opened.launch(lambda: chip.run("kernel", 5.0))
        opened.launch(lambda: (chip.run("kernel", 5.0), chip.run("IndexPut", 800.0, core="AI_CPU")))

    assert [launch.fell_back for launch in session(chip, work).launches()] == [None, "IndexPut"]


def test_copies_of_the_copy_engine_count_as_well(chip):
    class WithTasks(Profiler):
        def _write(self):
            super()._write()
            flush = next(line for line in self._kept if line[1] == NAME)
            at = float(flush[4].strip()) + 241
            output = self._folder / "host_ascend_pt" / "PROF_000001_2026_ABC" / "mindstudio_profiler_output"
            output.mkdir(parents=True, exist_ok=True)
            header = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
            (output / "task_time_2026.csv").write_text(f"{header}\n0,N/A,MEMCPY_ASYNC,0,1,2.5,{at:.3f},0\n")

    def work(opened):
        opened.launch(lambda: chip.run("kernel", 5.0, gap_us=20.0))

    assert [launch.time_us for launch in session(chip, work, WithTasks(chip)).launches()] == [7.5]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def failed(chip, spoil):
    profiler = Profiler(chip, spoil)
    with pytest.raises(DeviceError) as caught:
        session(chip, lambda opened: opened.launch(lambda: chip.run("kernel")), profiler)
    return caught.value, profiler


def test_no_file_is_a_failure_after_the_parser_was_asked_twice_more(chip):
    error, profiler = failed(chip, lambda lines: None)

    assert error.reason.kind == "npu_details_missing"
    assert profiler.parsed == ascend_profiler.RETRIES == 2
    assert "--timer event" in str(error)


def test_a_file_that_comes_late_is_waited_for(chip, monkeypatch):
    monkeypatch.setattr(ascend_profiler, "WAIT_S", 60.0)
    waits = []
    profiler = Profiler(chip, lambda lines: lines if waits else None)

    def sleep(_seconds):
        waits.append(1)
        profiler._write()

    monkeypatch.setattr(ascend_profiler.time, "sleep", sleep)
    opened = session(chip, lambda on: on.launch(lambda: chip.run("kernel", 5.0)), profiler)

    assert [launch.time_us for launch in opened.launches()] == [5.0]
    assert (len(waits), profiler.parsed) == (1, 0)


def test_the_offline_parser_may_succeed_where_the_session_left_nothing(chip):
    profiler = Profiler(chip)
    profiler.spoil = lambda lines: lines if profiler.parsed else None

    opened = session(chip, lambda on: on.launch(lambda: chip.run("kernel", 5.0)), profiler)

    assert [launch.time_us for launch in opened.launches()] == [5.0]


def test_a_missing_flush_is_a_failure_and_never_a_time(chip):
    error, _ = failed(chip, lambda lines: [line for at, line in enumerate(lines) if at != 1])

    assert error.reason.kind == "npu_details_short"
    assert isinstance(error, RecordsLostError)
    assert (error.reason.facts["seen"], error.reason.facts["expected"]) == (1, 2)
