"""Storage in low precision from its declaration to the verdict, the history, the thresholds and the reports."""

from __future__ import annotations

import json

import pytest

from perfci.extensions.common.history import read_history
from tests.closed_schemas import faults

KEY = "fake-one"
QUANTISED = """

import functools
from pathlib import Path


def stored(rows, cols, scaling, dtype, device, seed):
    x = np.random.default_rng(seed).standard_normal((rows, cols)) * SIZE
    largest = 448.0
    width = x.shape if scaling == "tensor" else (1, cols)
    peak = np.abs(x).max(keepdims=True) if scaling == "tensor" else np.abs(x).max(axis=1, keepdims=True)
    scale = (peak / largest * SHRINK).astype(np.float32)
    clipped = np.clip(x / scale, -largest, largest)
    step = np.exp2(np.maximum(np.frexp(np.abs(clipped))[1] - 1, -6) - 3.0)
    return {"x": perfci.Stored(x, np.rint(clipped / step) * step, scale, group=width, dtype=dtype)}


SIZE, SHRINK = 0.25, 1.0
quantised = perfci.Quantised(
    store=stored, cases=perfci.grid(rows=[64], cols=[128], scaling=["tensor", "row"], dtype=["float8_e4m3fn"])
)
"""
TENSOR, ROW = (f"stored=x,rows=64,cols=128,scaling={mode},dtype=float8_e4m3fn" for mode in ("tensor", "row"))


@pytest.fixture
def scale(project):
    """The op scale, with what it stores in low precision declared."""
    project.edit("scale", "accuracy", "import perfci\n", f"import numpy as np\nimport perfci\n{QUANTISED}")
    project.edit(
        "scale",
        "accuracy",
        "    make_inputs=make_inputs,\n",
        "    make_inputs=make_inputs,\n    quantised=quantised,\n",
    )
    return project


def check(project, *arguments):
    """Both suites, as a run is that can be accepted."""
    return project.check("scale", *arguments)


def accuracy(project, *arguments):
    return check(project, "--suite", "accuracy", *arguments)


def history(project):
    return read_history(project.root / "baselines", KEY, "scale")


def shrunk(project, to="0.3"):
    project.edit("scale", "accuracy", "SIZE, SHRINK = 0.25, 1.0", f"SIZE, SHRINK = 0.25, {to}")


def test_what_is_stored_is_recorded_and_passes(scale):
    answer = accuracy(scale)

    assert answer.code == 0, answer.out
    row = answer.rows["scale", "accuracy", None]
    assert "stored_within" in {reason["kind"] for reason in [row["reason"], *row["also"]]}
    run = scale.run_record()
    assert [tensor.case for tensor in run.ops[0].stored] == [TENSOR, ROW]
    assert run.plan.ops[0].stored == (TENSOR.replace("=x,", "=*,"), ROW.replace("=x,", "=*,"))
    assert [tensor.divergence for tensor in run.ops[0].stored] == [0.0, 0.0]
    assert faults(json.loads((scale.root / "reports" / "run.json").read_text()), "run.schema.json") == []


def test_an_accepted_run_keeps_it_and_the_next_is_held_against_that(scale):
    scale.first_check("scale")
    assert scale.accept().code == 0

    (kept,) = history(scale).runs
    assert [tensor.case for tensor in kept.stored] == [TENSOR, ROW]
    line = (scale.root / "baselines" / KEY / "scale.history.jsonl").read_text()
    assert faults(json.loads(line), "history.schema.json") == []

    accuracy(scale)
    assert [tensor.divergence for tensor in scale.run_record().ops[0].stored] == [0.0, 0.0]
    scale.edit("scale", "accuracy", "SIZE, SHRINK = 0.25", "SIZE, SHRINK = 0.26")
    assert accuracy(scale).code == 0
    tensors = scale.run_record().ops[0].stored
    assert all(tensor.divergence > 0 for tensor in tensors)
    assert [tensor.before[-1].run for tensor in tensors] == [kept.run] * 2


def test_a_scale_that_is_too_small_is_wrong_with_its_cause_and_advice(scale):
    shrunk(scale)
    answer = check(scale)

    assert answer.code == 2
    row = answer.rows["scale", "accuracy", TENSOR]
    assert (row["verdict"], row["reason"]["kind"]) == ("WRONG", "stored_beyond_scale_small")
    assert row["reason"]["facts"]["clip"] > 0.02
    assert [reason["kind"] for reason in row["also"]] == ["stored_advice_none"]
    whole = answer.rows["scale", "accuracy", None]
    assert (whole["verdict"], whole["reason"]["kind"]) == ("WRONG", "accuracy_beyond_limits")
    assert scale.accept().code != 0


def test_a_limit_on_the_divergence_holds_against_the_accepted_run(scale):
    scale.first_check("scale")
    scale.accept()
    scale.edit("scale", "accuracy", "SIZE, SHRINK = 0.25", "SIZE, SHRINK = 0.3")

    answer = accuracy(scale, "--threshold", "divergence=0.01")
    row = answer.rows["scale", "accuracy", TENSOR]
    assert (row["reason"]["kind"], row["reason"]["facts"]["figure"]) == ("stored_beyond_moved", "divergence")
    assert row["also"] == []


def test_the_reports_have_its_pictures_and_tables(scale, pictures):
    scale.first_check("scale")
    scale.accept()
    shrunk(scale)
    accuracy(scale)
    answer = scale.perfci("report", str(scale.root / "reports"), "--to", "md,html")

    assert "Page: " in answer.out and "report.html" in answer.out
    assert answer.code in {0, 2}, answer.err
    folder = scale.root / "reports"
    text = (folder / "report.md").read_text()
    assert "stored in low precision" in text and "likely causes" in text
    assert {path.name for path in folder.glob("lowprec-*.png")} == {"lowprec-scale-1.png"}
    assert "lowprec-scale-1.png" in text
    assert (folder / "report.html").read_text().count("Errors of storage of") >= 1


def test_accepted_runs_earn_a_tighter_limit_on_what_is_clipped(scale):
    scale.first_check("scale")
    scale.accept()
    path = scale.root / "baselines" / KEY / "scale.history.jsonl"
    line = json.loads(path.read_text())
    lines = [{**line, "run": f"{line['run'][:-2]}{number:02}"} for number in range(40)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    answer = scale.perfci("thresholds", "tighten", "--op", "scale", "--write")

    assert answer.code == 0, answer.err
    earned = (scale.root / "thresholds" / KEY / "scale.json").read_text()
    assert TENSOR in earned
    for key in ("clip_ratio", "stored_p99", "divergence"):
        assert f'"key": "{key}"' in earned
    shown = scale.perfci("thresholds", "show", "--op", "scale", "--case", TENSOR)
    assert shown.code == 0 and "clip_ratio" in shown.out
