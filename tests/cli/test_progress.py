import io

import pytest
from rich.console import Console

from perfci import report
from perfci.cli.progress import Imports, Progress, write_position
from perfci.core.model import AccuracyCase, Device, Reason, Suite
from perfci.worker.protocol import Doing, OpDone, Position, Ready, Timing, Waiting

READY = Ready(Device("fake", "Fake One", "fake-one"))


def shown(*messages, terminal=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=60, legacy_windows=False)
    with Progress(console) as progress:
        for message in messages:
            progress(message)
    return console.file.getvalue()


def failed(case, kind="kernel_raised"):
    facts = {"case": case, "error": "E", "message": "m", "file": "f.py", "line": 1}
    return AccuracyCase(case, "normal", "contiguous", 0, failure=Reason(kind, facts))


def test_in_a_log_each_stage_is_one_plain_line():
    text = shown(
        READY,
        Doing("import", "relu"),
        *(Doing("accuracy", "relu", f"rows={i}", i, 5) for i in range(5)),
        Doing("prepare", "relu", "rows=1"),
        Timing("virtual"),
        *(Doing("measure", "relu", f"rows={i}") for i in range(4)),
        OpDone(),
        READY,
        Doing("import", "scale"),
        Doing("accuracy", "scale", "rows=1", 0, 2),
    )

    assert text.splitlines() == [
        "device: Fake One",
        "relu: accuracy, 5 checks",
        "relu: preparing",
        "relu: measuring",
        "scale: accuracy, 2 checks",
    ]


def test_the_base_revisions_worker_has_lines_of_its_own():
    text = shown(
        Doing("import", "relu"),
        Doing("import of the base", "relu"),
        Doing("prepare", "relu", "rows=1"),
        Doing("prepare of the base", "relu", "rows=1"),
        *(Doing(f"measure{whose}", "relu", f"rows={i}") for i in range(3) for whose in ("", " of the base")),
    )

    assert text.splitlines() == [
        "relu: preparing",
        "relu: preparing the base",
        "relu: measuring",
        "relu: measuring the base",
    ]


def test_of_an_ops_failures_the_first_is_told():
    text = shown(
        Doing("import", "relu"),
        failed("rows=1"),
        failed("rows=2"),
        Doing("import", "scale"),
        failed("rows=3"),
    )

    assert [line.split(" for ")[1].split(":")[0] for line in text.splitlines()] == ["rows=1", "rows=3"]


def test_whoever_waits_for_the_device_says_so_once():
    text = shown(*(Waiting("process 7") for _ in range(20)))

    assert text == "Another perfci run (process 7) holds the device; waiting for it.\n"


@pytest.mark.parametrize("case", ["mode=[bold]", "path=[/red]", "rows=1"])
def test_on_a_terminal_one_line_moves_whatever_a_case_is_called(case):
    text = shown(Doing("accuracy", "relu", case, 3, 37), Waiting("process 7"), terminal=True)

    assert f"relu: accuracy 4/37 {case}" in text
    assert "waiting for it." in text


# --- how far ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "passed_s", "text"),
    [
        (Position(4, 1, 14, 37, 112, 72.4), 2.0, "op 5 of 14, 37 of 112 cases, about 1 min 10 s left"),
        (Position(4, 1, 14, 37, 112, 72.4), 80.0, "op 5 of 14, 37 of 112 cases"),
        (Position(0, 1, 3, 0, 33), 0.0, "op 1 of 3, 0 of 33 cases"),
        (Position(3, 2, 14, 37, 112, 9.0), 0.0, "3 of 14 ops, 37 of 112 cases, about 9 s left"),
        (Position(1, 1, 5, 2, 9, 16.2, later=True), 0.0, "later look 2 of 5, about 16 s left"),
    ],
)
def test_a_position_is_one_short_text(position, passed_s, text):
    assert write_position(position, passed_s) == text


def test_a_log_has_a_line_for_each_op_unless_there_is_only_one():
    several = [Position(0, 1, 2, 0, 6), Position(0, 1, 2, 1, 6), Position(1, 0, 2, 3, 6), Position(1, 1, 2, 3, 6)]

    assert shown(*several).splitlines() == ["op 1 of 2, 0 of 6 cases", "op 2 of 2, 3 of 6 cases"]
    assert shown(Position(0, 1, 1, 0, 3), Position(0, 1, 1, 1, 3)) == ""


def test_a_terminals_line_begins_with_how_far_the_run_is_until_all_ops_are_done():
    begun, last = Position(0, 1, 2, 0, 6), Doing("compile", "relu")

    assert "op 1 of 2, 0 of 6 cases: relu: accuracy" in shown(begun, Doing("accuracy", "relu"), terminal=True)
    assert " of 2" not in shown(begun, Position(2, 0, 2, 6, 6), last, terminal=True).splitlines()[-1]


@pytest.mark.parametrize(
    ("device", "suite", "stages", "count"),
    [
        ("cuda", Suite.PERFORMANCE, ["import", "accuracy", "measure"], 1),
        ("cuda", Suite.ACCURACY, ["accuracy"], 0),
        ("cuda", Suite.PERFORMANCE, ["import"], 0),
        ("cpu", Suite.PERFORMANCE, ["accuracy"], 0),
    ],
    ids=["an op that is timed", "no times are asked for", "no op is looked at", "nothing is timed there"],
)
def test_what_draws_is_imported_once_where_an_op_is_timed(monkeypatch, device, suite, stages, count):
    imported, heard = [], []
    monkeypatch.setattr(report, "import_libraries", lambda: imported.append(1))
    messages = [Ready(Device(device, "One", "one")), *(Doing(stage, "relu") for stage in stages)]

    imports = Imports(heard.append, (suite,))
    for message in messages:
        imports(message)
    imports.join()

    assert heard == messages
    assert len(imported) == count
