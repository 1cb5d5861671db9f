"""What the commands really write fits what is published about it."""

from __future__ import annotations

import gzip
import json

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
