from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.report import export

STORED = Path(__file__).parents[1] / "stored" / "format-1"


@pytest.fixture
def reports(tmp_path):
    shutil.copytree(STORED, tmp_path / "project")
    (tmp_path / "project" / "kernels").mkdir()
    return tmp_path / "project" / "reports"


def exported(capfdbinary, *arguments: object) -> tuple[int, list[dict[str, str]], str]:
    code = run(["report", "--to", "csv", *map(str, arguments)])
    seen = capfdbinary.readouterr()
    return code, list(csv.DictReader(io.StringIO(seen.out.decode()))), seen.err.decode()


def test_a_run_goes_to_standard_output_as_csv(capfdbinary, reports):
    code, rows, err = exported(capfdbinary, reports)

    assert code == 0
    assert err == ""
    assert len(rows) == 144
    assert set(export.COLUMNS) < set(rows[0])
    assert {row["arm"] for row in rows} == {"kernel", "reference", "base"}
    assert {row["param.dtype"] for row in rows} == {"float32"}


def test_a_file_is_written_whole_and_replaced(capfdbinary, reports, tmp_path):
    out = tmp_path / "new" / "table.csv"

    for _ in range(2):
        code, rows, err = exported(capfdbinary, reports, "--out", out)
        assert (code, rows, err) == (0, [], "")

    assert [path.name for path in out.parent.iterdir()] == ["table.csv"]
    assert len(out.read_text(encoding="utf-8").splitlines()) == 145


def test_parquet_goes_into_a_pipe_or_a_file(capfdbinary, reports, tmp_path):
    pytest.importorskip("pyarrow")

    assert run(["report", str(reports), "--to", "parquet"]) == 0
    piped = capfdbinary.readouterr().out
    assert run(["report", str(reports), "--to", "parquet", "--out", str(tmp_path / "table.parquet")]) == 0

    assert piped[:4] == piped[-4:] == b"PAR1"
    assert (tmp_path / "table.parquet").read_bytes() == piped


# The columns of oss_ci_benchmark_v3 and of its named tuples; of a map's values str stands for any text.
RUNNER = {"name": str, "type": str, "gpu_info": str, "gpu_count": int, "avail_gpu_mem_in_gb": int, "extra_info": dict}
HUD = {
    "timestamp": int, "schema_version": str, "name": str, "repo": str, "head_branch": str, "head_sha": str,
    "workflow_id": int, "run_attempt": int, "job_id": int, "runners": list, "dependencies": dict,
    "benchmark": {"name": str, "mode": str, "dtype": str, "extra_info": dict},
    "model": {"name": str, "type": str, "backend": str, "origins": list},
    "metric": {"name": str, "benchmark_values": list},
}  # fmt: skip


def fits(value, kind):
    if isinstance(kind, dict):
        return value.keys() == kind.keys() and all(fits(value[name], each) for name, each in kind.items())
    texts = value.values() if kind is dict else ()
    return type(value) is kind and all(isinstance(each, str | dict) for each in texts)


def test_the_hud_gets_rows_of_its_table(capfdbinary, reports, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "us/kernels")
    monkeypatch.setenv("GITHUB_RUN_ID", "77")

    assert run(["report", str(reports), "--to", "hud", "--verdicts"]) == 0

    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert all(fits(row, HUD) and all(fits(each, RUNNER) for each in row["runners"]) for row in rows)
    assert {(row["repo"], row["workflow_id"], row["job_id"]) for row in rows} == {("us/kernels", 77, 0)}
    times = [row for row in rows if row["metric"]["name"] == "kernel_us"]
    stored = json.loads((reports / "run.json").read_text())
    cases = [case for op in stored["ops"] for case in op.get("performance", ())]
    assert len(times) == len(cases)
    first = [block["arms"]["kernel"]["time"]["median_us"] for block in cases[0]["blocks"] if not block.get("process")]
    assert times[0]["metric"]["benchmark_values"] == first
    assert all(row["benchmark"]["extra_info"]["verdict"] for row in rows)
