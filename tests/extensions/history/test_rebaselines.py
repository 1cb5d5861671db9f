"""What `perfci accept --environment` shows of what moved."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from perfci.cli.output import print_parts
from perfci.core.codec import encode
from perfci.core.model import Bearing, Difference, Interval, Reason
from perfci.extensions.history.commands.environment import describe_for_programs, show_moves
from perfci.extensions.history.rebaseline import CaseMove, Rebaselined
from perfci.report.data import write_plain

DRIVER = Difference("device.driver", "580", "590")
HOST = Difference("host", "one", None, Bearing.NAMED)
DAMAGED = Reason("file_damaged", {"path": "relu.json", "line": 1, "column": 2})


def move(case="rows=1", kernel=0.05, reference=0.05, *, unexplained=False):
    ends = [Interval(value, value - 0.001, value + 0.001) for value in (kernel, reference)]
    return CaseMove(case, *ends, before_us=50.0, after_us=50.0 * (1 + kernel), unexplained=unexplained)


def moved(op="relu", *cases, differs=(DRIVER, HOST), **options):
    cases = cases or (move(), move("rows=2", 0.07))
    return Rebaselined(op, differs, cases, **{"taken": tuple(one.case for one in cases)} | options)


def text(*rebaselined, wrote=False, terminal=False, width=120):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    print_parts(show_moves(rebaselined, wrote=wrote), console)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_what_changed_comes_first_then_every_op_with_its_spread(terminal):
    lines = text(moved(), moved("scale"), terminal=terminal).splitlines()

    assert lines[:3] == [
        "Changed since the baselines:",
        "  device.driver: 580 -> 590",
        "  host: one -> - (no matter for times)",
    ]
    assert lines[3].split() == ["op", "cases", "kernel", "reference"]
    assert lines[4].split()[:2] == ["relu", "2"]
    assert "+6.0 % (+5.0 % .. +7.0 %)" in lines[4]
    assert "+5.0 % (+5.0 % .. +5.0 %)" in lines[4]
    assert lines[-1] == "Nothing was written. Store 4 cases anew, with a step: --write --why TEXT"


def test_what_was_written_is_said_and_what_could_not_be_too():
    shown = text(
        moved(path=Path("/elsewhere/relu.json")), Rebaselined("scale", failure=DAMAGED), wrote=True
    )  # fmt: skip

    assert "  Written: /elsewhere/relu.json" in shown
    assert "  relu.json is not complete JSON" in shown
    assert shown.splitlines()[-1] == "2 cases stored anew, with a step that says why."


def test_programs_get_every_case_and_every_field():
    rebaselined = moved("relu", move(unexplained=True), taken=(), withheld=(DAMAGED,))

    answer = json.loads(encode(write_plain(describe_for_programs(rebaselined))))

    assert [(difference["field"], difference["moves"]) for difference in answer["differs"]] == [
        ("device.driver", True),
        ("host", False),
    ]
    assert answer["cases"][0]["kernel"] == pytest.approx(
        {"value": 0.05, "low": 0.049, "high": 0.051, "confidence": 0.95}
    )
    assert (answer["cases"][0]["unexplained"], answer["cases"][0]["taken"]) == (True, False)
    assert answer["withheld"][0]["sentence"].startswith("relu.json is not complete JSON")
    assert answer["written"] is answer["failure"] is None
