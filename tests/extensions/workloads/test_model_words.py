"""A check, its note and `perfci brief --model`, in the terms of a model."""

import json
import re
from dataclasses import replace

import pytest

from perfci.core import settings
from perfci.core.model import Device, DeviceState, Limits
from perfci.extensions.note.text import Links, compose
from perfci.extensions.workloads.page import place_all
from perfci.extensions.workloads.records import Call, Other, Slice, Tensor, Workload, write_workload
from perfci.runs.decide import decide
from tests.git_repositories import begin_topic

pytestmark = pytest.mark.slow

SCALE = tuple(Call("scale", us=40.0, params=f"rows={rows}, cols=128, dtype='float32'") for rows in (256, 512))
LLAMA = Workload("llama", clock="device", step_us=1000.0, busy_us=1000.0, calls=SCALE)


@pytest.fixture
def modelled(project):
    """A topic on which scale got 2.4 % slower, in a project with a workload and a limit for it."""
    write_workload(project.root / "kernels", LLAMA)
    write_limit(project, "0.1 %")
    begin_topic(project.root)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 328.0")
    return project


def write_limit(project, limit):
    (project.root / "thresholds").mkdir(exist_ok=True)
    (project.root / "thresholds/default.yaml").write_text(f"model:\n  llama: {limit}\n")


def test_a_verdict_its_headline_note_and_page_say_what_it_costs_the_model(modelled):
    answer = modelled.check()

    assert answer.code == 2
    scale = answer.rows["scale", "performance", "rows=256,cols=128,dtype=float32"]
    assert [also["kind"] for also in scale["also"]][-1:] == ["model_case"]
    model = answer.rows["model-llama", "performance", None]
    assert (model["verdict"], model["reason"]["kind"]) == ("REGRESSED", "model_beyond")
    shown = modelled.perfci("compare", str(modelled.root / "reports")).out
    assert shown.index("A step of llama takes 0.2 % longer") < shown.index("verdict ")
    assert "For llama: +2.4 % here = +0.1 % of a step" in shown
    report = (modelled.root / "reports/report.md").read_text()
    assert report.index("A step of llama takes") < report.index("exit code 2")
    said = r"A step of llama takes 0\.2 % longer \(\+0\.19\d* % to \+0\.19\d* %\) by scale, 8\.0 % of its time\."
    assert len(re.findall(said, report)) == 1
    assert re.search(r"REGRESSED\*\* \| `model-llama` by its ops +\| \+0\.2 % \|", report)
    run = modelled.run_record()
    note = compose(run, decide(run, settings.at(modelled.root)), Links())
    assert note.index("A step of llama takes") < note.index("| verdict")


@pytest.mark.nightly
def test_a_limit_of_a_model_without_times_of_a_device_judges_nothing_and_says_so(modelled):
    write_workload(modelled.root / "kernels", replace(LLAMA, clock="host"))
    answer = modelled.check("scale")

    assert ("model-llama", "performance", None) not in answer.rows
    assert "model_untimed" in {note["kind"] for note in json.loads(answer.out)["notes"]}


def test_a_model_limit_that_is_no_percentage_is_refused(project):
    write_limit(project, "much")

    assert "llama" in project.check().err


# --- end to end -------------------------------------------------------------------------------------------------------

SCRIPT = """
import pathlib, re, sys
text = pathlib.Path(__file__).parents[1].joinpath("scale/scale_triton.py").read_text()
us = float(re.search(r"US_PER_MEGABYTE = ([0-9.]+)", text)[1])
for turn, _ in enumerate(sys.stdin):
    print(f"{(us + EXTRA) * (1 + turn % 3 / 1000)} ms", flush=True)
"""


@pytest.fixture
def scripted(project):
    """A function that makes a topic with another speed of scale, in a project with a script that adds to its times."""

    def make(us, extra="0", script=SCRIPT):
        write_workload(project.root / "kernels", LLAMA)
        (project.root / "kernels/_workloads/llama.py").write_text(script.replace("EXTRA", extra))
        begin_topic(project.root)
        project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", f"US_PER_MEGABYTE = {us}")
        return project.check("--op", "scale")

    return make


STEP = ("model-llama", "performance", "step")


@pytest.mark.nightly
def test_a_script_is_duelled_in_turns_by_the_same_rule(scripted, project):
    answer = scripted(328.0)

    row = answer.rows[STEP]
    assert (row["verdict"], row["reason"]["kind"]) == ("REGRESSED", "duel_slower")
    assert row["change"]["value"] == pytest.approx(0.025, abs=1e-3)
    blocks = project.run_record().ops[-1].performance[0].blocks
    assert len(blocks) == 24 and {block.process for block in blocks} == {0, 1}
    # It is judged again from what is stored, and shown. No command asks to check it alone, as it is no op.
    shown = project.perfci("compare", str(project.root / "reports")).out
    assert "REGRESSED  model-llama step" in shown and "1 op, " in shown
    assert "model-llama a step " in shown
    report = (project.root / "reports/report.md").read_text()
    assert "perfci check scale --seed" in report
    assert project.accept().code == 1
    assert project.perfci("accept", str(project.root / "reports"), "--slower", "--why", "meant", "--dirty").code == 0


def test_an_isolated_win_with_an_end_to_end_loss_is_a_verdict(scripted):
    answer = scripted(300.0, extra="(30 if us < 310 else 0)")

    assert answer.rows["scale", "performance", "rows=256,cols=128,dtype=float32"]["verdict"] == "IMPROVED"
    row = answer.rows[STEP]
    assert row["verdict"] == "REGRESSED"
    assert [also["kind"] for also in row["also"]] == ["model_isolated_win"]
    assert answer.code == 2


def test_a_script_is_not_run_if_no_op_changed(scripted):
    assert STEP not in scripted(320.0).rows


@pytest.mark.nightly
def test_a_script_that_prints_no_time_is_an_error_with_what_it_printed(scripted):
    row = scripted(328.0, script="import sys\nfor _ in sys.stdin: print('soon', flush=True)\n").rows[
        "model-llama", "performance", None
    ]

    assert (row["verdict"], row["reason"]["kind"]) == ("ERROR", "script_silent")
    assert row["reason"]["facts"]["text"] == "soon"


# --- brief ------------------------------------------------------------------------------------------------------------

WORKLOAD = Workload(
    "llama", created="2026-11-29T12:00:00+00:00", device=Device("cuda", "NVIDIA H200", "nvidia-h200"), clock="device",
    steps=2, step_us=1000.0, recorded_us=1030.0, busy_us=1800.0, overlap_us=20.0, gaps=8, longest_gap_us=50.0,
    limits=Limits(4000.0, {"float16": 700.0}), state=DeviceState(sm_clock_mhz=1980), free_mhz=1980.0,
    calls=(
        Call("matmul", {"a": Tensor((4096, 4096), "float16")}, count=2, us=1200.0, params="m=4096",
             bytes_moved=100_000_000, flops=280_000_000_000),
        Call("norm", {"x": Tensor((1000, 1000), "float16")}, (Tensor((1000, 1000), "float16"),), 10, 400.0,
             params="rows=1000", flops=4_000_000),
        Call("tiny", {"x": Tensor((8,), "float16")}, count=20, us=40.0, params="n=8"),
    ),
    others=(Other("mul", by="aten::mul", count=4, us=100.0), Other("Memcpy HtoD", "copy", count=2, us=60.0)),
    timeline=(Slice(0.0, 600.0, 7, "matmul"), Slice(610.0, 20.0, 7, "norm"), Slice(640.0, 25.0, 7, "mul")),
)  # fmt: skip


def test_a_brief_places_ops_by_their_ceiling_and_says_what_reaching_it_brings():
    ops = {place.op: place for place in place_all(WORKLOAD).ops}

    assert list(ops) == ["matmul", "norm", "tiny"]
    matmul, norm, tiny = ops.values()
    assert (matmul.calls, matmul.share, matmul.us, matmul.bound) == (1, 0.6, 600.0, "compute")
    assert matmul.of_ceiling == pytest.approx(280e9 / 700e6 / 600)  # 400 us at 700 TFLOP/s
    assert matmul.gain == pytest.approx(0.6 * (1 - 400 / 600))
    # Inputs and outputs once, 4 MB, at 4000 GB/s are 1 us of 40.
    assert (norm.bound, norm.of_ceiling) == ("memory", pytest.approx(1 / 40))
    assert (tiny.us, tiny.bound, tiny.intensity) == (2.0, "launch", None)


def test_the_extremes_are_the_cases_with_most_and_with_fewest_operations_a_byte():
    brief = place_all(WORKLOAD)

    assert [place.op for place in brief.compute] == ["matmul", "norm"]
    assert [place.op for place in brief.memory] == ["norm", "matmul"]


def test_the_page_of_a_model_has_its_ops_other_launches_gaps_and_a_picture(project):
    write_workload(project.root / "kernels", WORKLOAD)

    text = project.perfci("brief", "--model", "llama").out

    assert "2 steps on NVIDIA H200, 1.00 ms each, recorded on 2026-11-29." in text
    assert "nothing in 10.0 % of the time, in 4 gaps a step: 10.0 us is usual, 50.0 us the longest." in text
    assert "The clock was 1980 of 1980 MHz while llama ran." in text
    assert "Several kernels at once: 1.0 %. Copies and communication: 3.0 %." in text
    assert "take 82.0 % of the time, other launches 8.0 %." in text
    assert "Recording changed a step's time by +3.0 %" in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    assert cells[0][:4] == ["`matmul`", "1", "60.0 %", "600 us"]
    assert ["`mul`", "`aten::mul`", "2", "5.0 %"] in cells
    [picture] = (project.root / "reports/workloads").glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_brief_of_an_unknown_model_names_those_that_there_are(project):
    write_workload(project.root / "kernels", WORKLOAD)

    assert "There are: llama." in project.perfci("brief", "--model", "lama").err
