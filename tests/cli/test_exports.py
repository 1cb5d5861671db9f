from __future__ import annotations

import csv
import io
import shutil
import sys
from pathlib import Path

import pytest

from perfci import store
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


def test_several_runs_are_exported_one_behind_the_other(capfdbinary, reports, tmp_path):
    other = store.read_run(reports)
    store.write_run(type(other)(**{**vars(other), "id": "another"}), tmp_path / "other")

    _, rows, _ = exported(capfdbinary, reports, tmp_path / "other" / "run.json")

    assert list(dict.fromkeys(row["run"] for row in rows)) == [other.id, "another"]
    assert len(rows) == 288


def test_verdicts_are_judged_by_the_project_around_the_run(capfdbinary, reports):
    code, rows, _ = exported(capfdbinary, reports, "--verdicts")

    assert code == 0, "an export is no gate"
    assert {row["verdict"] for row in rows} == {"REGRESSED"}
    assert {row["reason"] for row in rows} == {"duel_slower"}
    assert all(0.03 < float(row["change"]) < 0.05 for row in rows)


def test_a_file_is_written_whole_and_replaced(capfdbinary, reports, tmp_path):
    out = tmp_path / "new" / "table.csv"

    for _ in range(2):
        code, rows, err = exported(capfdbinary, reports, "--out", out)
        assert (code, rows, err) == (0, [], "")

    assert [path.name for path in out.parent.iterdir()] == ["table.csv"]
    assert len(out.read_text(encoding="utf-8").splitlines()) == 145


def test_parquet_without_pyarrow_says_what_to_install_and_writes_nothing(capfdbinary, reports, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    code, _, err = exported(capfdbinary, reports, "--to", "parquet", "--out", tmp_path / "table.parquet")

    assert code == 1
    assert "pip install 'perfci[parquet]'" in err
    assert not (tmp_path / "table.parquet").exists()


def test_parquet_goes_into_a_pipe_or_a_file(capfdbinary, reports, tmp_path):
    pytest.importorskip("pyarrow")

    assert run(["report", str(reports), "--to", "parquet"]) == 0
    piped = capfdbinary.readouterr().out
    assert run(["report", str(reports), "--to", "parquet", "--out", str(tmp_path / "table.parquet")]) == 0

    assert piped[:4] == piped[-4:] == b"PAR1"
    assert (tmp_path / "table.parquet").read_bytes() == piped
