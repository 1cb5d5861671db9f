import importlib.util
import sys
from pathlib import Path

import pytest
from rich.console import Console

from perfci import wording
from perfci.accept import Acceptance
from perfci.cli import tables
from perfci.doctor import Finding, Level
from perfci.model import Judgements, Plan, PlannedOp, Suite, Verdict

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def examples():
    name = "perfci_example_runs"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / "example_runs.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(autouse=True)
def sentences(examples, monkeypatch):
    monkeypatch.setattr(wording, "catalogue", lambda language="en": examples.SENTENCES)


def printed(*parts, width=80, terminal=True, color=None):
    console = Console(
        width=width, force_terminal=terminal, color_system=color, record=True, highlight=False, soft_wrap=not terminal,
        file=open("/dev/null", "w"),  # noqa: SIM115, PTH123
    )  # fmt: skip
    with console.file:
        for part in parts:
            console.print(part)
    return console.export_text(styles=color is not None)


@pytest.mark.parametrize("width", [80, 150])
def test_no_line_is_wider_than_the_terminal(examples, width):
    run, judgements = examples.full()

    lines = printed(tables.verdicts(judgements, run), tables.summary(judgements), width=width).splitlines()

    assert max(map(len, lines)) <= width


def test_a_log_gets_plain_lines_of_at_most_160_columns(examples):
    run, judgements = examples.full()

    text = printed(tables.verdicts(judgements, run), tables.summary(judgements), terminal=False)

    assert max(map(len, text.splitlines())) <= tables.PLAIN
    assert text.isascii()
    assert "\x1b" not in text


def test_each_failing_row_is_followed_by_its_reason(examples):
    run, judgements = examples.full()

    lines = printed(tables.verdicts(judgements, run), terminal=False).splitlines()

    assert lines[0].split()[:4] == ["verdict", "op", "and", "case"]
    assert lines[1].split()[:3] == ["REGRESSED", "softmax", "rows=4096,cols=1024,dtype=float16"]
    assert lines[2].strip().startswith("It is 4.1 % slower than its baseline, beyond the allowed 2.0 %")


def test_at_80_columns_the_whole_case_and_sentence_can_be_read(examples):
    run, judgements = examples.small()

    words = printed(tables.verdicts(judgements, run), width=80).split()

    assert {"rows=4096,cols=32768,", "dtype=float16", "212"} <= set(words)
    assert "It is 4.1 % slower than its baseline, beyond the allowed 2.0 %, both times anew." in " ".join(words)


def test_verdicts_are_words_in_colour_not_colour_alone(examples):
    run, judgements = examples.small()

    assert "\x1b[1;31mREGRESSED" in printed(tables.verdicts(judgements, run), color="standard")
    assert "REGRESSED" in printed(tables.verdicts(judgements, run))


def test_of_many_rows_that_are_fine_some_are_only_counted(examples):
    run, judgements = examples.large(ops=2, cases=50)

    text = printed(tables.verdicts(judgements, run), terminal=False)

    assert f"... and {98 - tables.FINE_ROWS} PASS more; the report lists them all." in text


def test_the_summary_says_the_exit_code_and_what_strict_does(examples):
    warned = Judgements((examples.judgement("softmax", "n=1", Verdict.STALE, examples.reason("example_new")),))

    assert tables.summary(warned).plain == "1 op, 1 verdict: 1 STALE -> warns (exit 3)"
    assert tables.summary(warned, strict=True).plain == "1 op, 1 verdict: 1 STALE -> warns (exit 2), as --strict asks"


@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_text_cannot_command_the_terminal(examples, terminal):
    run, judgements = examples.hostile()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    plan = Plan((PlannedOp(examples.HOSTILE, (), (examples.HOSTILE,)),), 1, 1.0, "cuda")

    text = printed(
        tables.verdicts(judgements, run),
        *tables.show(run.ops[0], run.ops[0].performance, rows, run),
        tables.ops(plan),
        terminal=terminal,
    )

    assert not any(mark in text for mark in "\x1b\x00\u202e\x07")


def test_show_tells_verdict_looks_blocks_and_compiled_kernels(examples):
    run, judgements = examples.small()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}

    text = printed(*tables.show(run.ops[0], run.ops[0].performance[1:], rows, run), terminal=False)

    assert "softmax on NVIDIA H200, timed by the device's activity records" in text
    assert "REGRESSED  It is 4.1 % slower" in text
    assert "fresh process 1" in text
    assert text.count("  kernel  ") >= 16
    assert "BLOCK=1024" in text


def test_show_of_a_case_that_was_not_timed_says_so(examples):
    run, judgements = examples.full()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    matmul = run.ops[1]

    text = printed(*tables.show(matmul, matmul.performance[4:], rows, run), terminal=False)

    assert "WRONG  An output of the timed launches is off by 3.20, beyond 0.0100." in text
    assert "not timed" in text


@pytest.mark.parametrize("width", [80, 120])
def test_show_fits_the_terminal(examples, width):
    run, judgements = examples.full()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}

    lines = printed(*tables.show(run.ops[0], run.ops[0].performance, rows, run), width=width).splitlines()

    assert max(map(len, lines)) <= width
    assert all(len(line.split()) > 8 for line in lines if line.startswith("  kernel  ") and " us " in line)


def test_list_names_every_case_and_what_is_broken(examples):
    broken = PlannedOp("bias_relu", failure=examples.reason("example_raised", error="ImportError", message="no torch"))
    plan = Plan((PlannedOp("softmax", ("n=1", "n=2"), ("n=4096",)), broken), 1, 1.0, "cuda")

    assert printed(tables.ops(plan)).splitlines() == [
        "softmax  1 performance case, 2 accuracy cases",
        "  n=4096",
        "bias_relu  cannot run",
        "  It raised ImportError: no torch",
    ]


def test_a_long_case_id_goes_on_below_after_a_comma(examples):
    run, judgements = examples.long_names()

    lines = printed(tables.verdicts(judgements, run), width=80).splitlines()

    row = next(place for place, line in enumerate(lines) if "batch=16" in line)
    assert lines[row].split()[2] == "batch=16,heads=32,"
    assert "".join(line.strip() for line in lines[row + 1 : row + 3]) == (
        "sequence=4096,head_dim=128,causal=True,dtype=bfloat16"
    )


def test_an_empty_project_has_no_ops():
    assert printed(tables.ops(Plan((), 1, 1.0, "cuda"))) == "There are no ops here.\n"


def test_acceptances_name_what_was_refused_and_why(examples):
    refused = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(1, 2)")

    text = printed(*tables.acceptances([Acceptance("softmax", None, ("n=1", "n=2"), (refused,))]), terminal=False)

    assert text.splitlines() == [
        "softmax: 2 cases accepted, 1 refused",
        "  The largest error is 3.20 at (1, 2), beyond the tolerance of 0.0100.",
    ]


def test_findings_put_problems_first(examples):
    found = [
        Finding(Level.OK, examples.reason("example_new")),
        Finding(Level.PROBLEM, examples.reason("example_no_accelerator")),
    ]

    lines = printed(*tables.findings(found), terminal=False).splitlines()

    assert lines[0] == "problem   Speed was not measured: there is no accelerator here."
    assert lines[1].startswith("ok        Nothing is stored")
