"""How exact the timed outputs are is recorded, kept and learnt from, and limits on it gate."""

import json

from tests.closed_schemas import faults

CASE = "rows=256,cols=128,dtype=float32"
EXACT = "    np.multiply(x, x.dtype.type(factor), out=out)\n"
ROUGH = "    np.multiply(x, x.dtype.type(factor * (1 + 6e-7)), out=out)\n"
"""Less exact by several units in the last place, and within torch's tolerance for float32."""


def errors(project):
    (op,) = project.run_record().ops
    return {case.case: case.errors for case in op.performance}


def test_a_timed_output_that_is_less_exact_than_its_limit_is_wrong(project):
    (project.root / "pyproject.toml").unlink()  # as many launches as a block has else
    limits = project.root / "thresholds" / "scale.yaml"
    limits.parent.mkdir(exist_ok=True)
    limits.write_text(f"cases:\n  {CASE}:\n    rmse: 1.0e-9\n    max_abs: 1.0e-9\n")

    assert project.check("scale").verdicts("scale") == {"NEW", "PASS"}
    exact = errors(project)
    assert {case: errors.max_abs for case, errors in exact.items()} == dict.fromkeys(exact, 0.0)
    assert exact[CASE].count >= 256 * 128, "the first block, and others at random"

    project.edit("scale", "triton", EXACT, ROUGH)
    answer = project.check("scale")

    assert answer.code == 2
    rows = {row["case"]: row for row in answer.rows.values() if row["suite"] == "performance"}
    reason = rows[CASE]["reason"]
    assert (rows[CASE]["verdict"], reason["kind"]) == ("WRONG", "timed_errors_overall")
    assert "of the timed outputs is" in reason["sentence"] and "thresholds/scale.yaml" in reason["sentence"]
    assert {row["verdict"] for case, row in rows.items() if case != CASE} == {"NEW"}
    rough = errors(project)[CASE]
    assert 1e-8 < rough.p50_abs < rough.p90_abs < rough.p99_abs < rough.max_abs < 2e-6
    assert rough.l2 is not None and 1e-7 < rough.l2 < 2e-6
    assert faults(json.loads((project.root / "reports/run.json").read_text()), "run.schema.json") == []
