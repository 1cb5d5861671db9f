"""What the commands really write fits what is published about it."""

import gzip
import json

from perfci.report import data
from tests import example_runs
from tests.closed_schemas import faults


def test_all_that_a_check_and_an_acceptance_write_fits_the_published_schemas(project):
    project.edit("row_sum", "triton", "x.sum(axis=1)", "x[:, :-1].sum(axis=1)")

    answer = project.check()
    project.accept()

    reports = project.root / "reports"
    assert answer.code == 2
    assert faults(json.loads(answer.out), "answer.schema.json") == []
    assert faults(json.loads((reports / "run.json").read_text(encoding="utf-8")), "run.schema.json") == []
    lines = gzip.decompress((reports / "launches.jsonl.gz").read_bytes()).splitlines()
    assert lines
    assert [fault for line in lines for fault in faults(json.loads(line), "launches.schema.json")] == []
    baselines = sorted((project.root / "baselines").rglob("*.json"))
    assert [path.stem for path in baselines] == ["relu", "scale"]
    for path in baselines:
        assert faults(json.loads(path.read_text(encoding="utf-8")), "baseline.schema.json") == []
    judged = project.perfci("compare", str(reports), "--format", "json")
    assert faults(json.loads(judged.out), "answer.schema.json") == []


def test_a_run_is_shown_to_programs_with_its_verdicts_rates_and_every_block(project):
    project.first_check()

    reports = str(project.root / "reports")
    shown = json.loads(project.perfci("show", reports, "--op", "scale", "--case", "rows=256,*", "--format", "json").out)

    assert faults({name: shown[name] for name in shown if name != "measured"}, "answer.schema.json") == []
    timed = [row for row in shown["verdicts"] if row["suite"] == "performance"]
    assert {(row["op"], row["case"]) for row in timed} == {("scale", "rows=256,cols=128,dtype=float32")}
    assert timed[0]["rates"]["gbps"] > 0
    [op] = shown["measured"]
    assert [len(case["blocks"]) for case in op["performance"]] == [timed[0]["arms"][0]["blocks"]]


def test_what_was_compiled_without_a_device_is_complete_for_programs():
    run, judgements = example_runs.compiled()

    compiled = data.to_json(judgements, run)["compiled"]

    told = {(entry["op"], entry["target"], entry["case"]): entry["kernels"] for entry in compiled}
    assert told.keys() == {(op.op, op.target, case.case) for op in run.static.ops for case in op.cases}
    for op in run.static.ops:
        for case in op.cases:
            kernels = told[op.op, op.target, case.case]
            assert [kernel["registers"] for kernel in kernels] == [binary.registers for binary in case.binaries]
            assert [kernel["occupancy"] for kernel in kernels] == [binary.occupancy for binary in case.binaries]
