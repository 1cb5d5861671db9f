import csv
import io
import shutil
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.extensions.history import tables

STORED = Path(__file__).parents[2] / "stored" / "format-1"


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
    assert set(tables.COLUMNS) < set(rows[0])
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
