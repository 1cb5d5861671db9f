import csv
import io
import math
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import perfci
from perfci.cli.main import run
from perfci.core import errors
from perfci.core.errors import MissingPackageError, PerfciError, StoredFileError
from perfci.core.model import ArmBlock, Gate, Verdict
from perfci.extensions.history import tables


def with_case(run, case: str, **changes):
    """The run with its first case under another id."""
    op = run.ops[0]
    first = replace(op.performance[0], case=case, **changes)
    return replace(run, ops=(replace(op, performance=(first, *op.performance[1:])), *run.ops[1:]))


def read(table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tables.to_csv(table).decode())))


def test_a_row_is_a_block_and_arm_with_every_column_in_order_and_of_its_type(examples):
    run, _ = examples.duelled()

    table = tables.tabulate([(run, None)])

    blocks = [block for op in run.ops for case in op.performance for block in case.blocks]
    assert len(table) == sum(len(block.arms) for block in blocks)
    parameters = [name for name in table.columns if name.startswith(tables.PARAMETER)]
    assert [name for name in table.columns if name not in parameters] == list(tables.COLUMNS)
    place = list(table.columns).index("case") + 1
    assert list(table.columns)[place : place + len(parameters)] == parameters
    assert {name: str(table[name].dtype) for name in tables.COLUMNS} == {
        name: column.type for name, column in tables.COLUMNS.items()
    }


def test_a_row_holds_the_numbers_of_its_block_and_names_its_run(examples):
    run, _ = examples.duelled()
    op = next(op for op in run.ops if op.op == "softmax")
    case, block = op.performance[0], op.performance[0].blocks[2]

    table = tables.tabulate([(run, None)])
    row = table[(table["op"] == "softmax") & (table["case"] == case.case) & (table["block"] == block.index)]
    row = row[row["process"] == block.process].set_index("arm")

    assert row.loc["kernel", "median_us"] == block.arms["kernel"].time.median_us
    assert row.loc["base", "mean_us"] == block.arms["base"].time.mean_us
    assert row.loc["reference", "rsd"] == block.arms["reference"].time.rsd
    assert row.loc["kernel", "change_base"] == pytest.approx(math.expm1(block.shifts["kernel/base"]))
    assert row.loc["kernel", "power_w"] == block.state.power_w
    assert set(row["run"]) == {run.id}
    assert set(row["commit"]) == {run.environment.commit}
    assert set(row["base"]) == {run.plan.base.commit}
    assert set(row["device"]) == {"nvidia-h200"}
    assert set(row["board"]) == {run.environment.device.uuid}
    assert set(row["timer"]) == {run.environment.timer}
    assert set(row["cache"]) == {"cold"}


def test_each_blocks_change_against_the_base_is_in_the_kernels_rows(examples):
    run, _ = examples.duelled()
    case = next(case for op in run.ops if op.op == "softmax" for case in op.performance if len(case.blocks) == 24)

    table = tables.tabulate([(run, None)])
    mine = table[(table["op"] == "softmax") & (table["case"] == case.case)].set_index("arm")

    changes = [math.expm1(block.shifts["kernel/base"]) for block in case.blocks]
    assert list(mine.loc["kernel", "change_base"]) == pytest.approx(changes)
    assert mine.loc[["base", "reference"], "change_base"].isna().all()
    assert list(mine.loc["kernel", "started_s"]) == [block.started_s for block in case.blocks]


@pytest.mark.parametrize(
    ("value", "type_", "read_as"),
    [
        ("12", "Int64", 12),
        ("-3", "Int64", -3),
        ("0.5", "float64", 0.5),
        ("1e-5", "float64", 1e-5),
        ("True", "boolean", True),
        ("float16", "string", "float16"),
        ("[1;2]", "string", "[1;2]"),
        ("nan", "string", "nan"),
        ("9" * 30, "string", "9" * 30),
        ("\uff11", "string", "\uff11"),
    ],
)
def test_a_parameter_has_a_column_of_the_type_that_all_its_values_fit(examples, value, type_, read_as):
    run, _ = examples.small()

    table = tables.tabulate([(with_case(run, f"weird={value},rows=1"), None)])

    assert str(table["param.weird"].dtype) == type_
    assert list(table["param.weird"].dropna().unique()) == [read_as]
    assert table["param.weird"].isna().any(), "the other case has no such parameter"


@pytest.mark.parametrize("case", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx"])
def test_a_name_that_a_spreadsheet_takes_for_a_formula_is_disarmed_in_csv_alone(examples, case):
    run, _ = examples.small()
    table = tables.tabulate([(with_case(run, case), None)])

    written = read(table)

    assert {row["case"] for row in written if row["case"][:1] == "'"} == {f"'{case}"}
    assert not [cell for row in written for cell in row.values() if cell.startswith(tables.FORMULA) and "." not in cell]
    assert case in set(table["case"])


def test_csv_is_utf_8_with_plain_line_ends_and_reads_back_whatever_a_case_holds(examples):
    run, _ = examples.small()
    hostile = 'name=Zürich "数"\nline,rows=3'

    data = tables.to_csv(tables.tabulate([(with_case(run, hostile), None)]))

    assert b"\r" not in data
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert hostile in {row["case"] for row in rows}
    assert {row["param.rows"] for row in rows if row["case"] == hostile} == {"3"}


def test_without_pyarrow_parquet_is_refused_with_what_to_install(examples, monkeypatch):
    run, _ = examples.small()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(MissingPackageError, match=r"pip install 'perfci\[parquet\]'"):
        tables.to_parquet(tables.tabulate([(run, None)]))


def test_parquet_holds_the_table_with_its_types(examples):
    pytest.importorskip("pyarrow")
    import pandas as pd

    run, judgements = examples.duelled()
    run = with_case(run, "=cmd=1,rows=3")
    table = tables.tabulate([(run, judgements), (replace(examples.small()[0], id="other"), None)])

    back = pd.read_parquet(io.BytesIO(tables.to_parquet(table)), dtype_backend="numpy_nullable")

    assert list(back.columns) == list(table.columns)
    assert len(back) == len(table)
    assert list(back["median_us"]) == list(table["median_us"])
    assert list(back["process"]) == list(table["process"])
    assert "=cmd=1,rows=3" in set(back["case"]), "texts are as they are"


def test_the_99th_percentile_is_of_each_arms_launches_in_all_blocks_of_the_case(examples):
    run, _ = examples.duelled()
    case = next(case for case in run.ops[0].performance if case.blocks)
    time = replace(case.blocks[0].arms["kernel"].time, slowest_us=(27.0, 28.0, 29.0, 30.0))
    blocks = tuple(replace(block, arms=block.arms | {"kernel": ArmBlock(time)}) for block in case.blocks)
    op = replace(run.ops[0], performance=(replace(case, blocks=blocks),))

    rows = read(tables.tabulate([(replace(run, ops=(op,)), None)]))

    p99s = {arm: {row["p99_us"] for row in rows if row["arm"] == arm} for arm in ("kernel", "reference")}
    assert len(p99s["kernel"]) == 1
    assert 29.0 <= float(p99s["kernel"].pop()) <= 30.0
    assert p99s["reference"] == {""}


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


@pytest.fixture
def project(tmp_path):
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "kernels").mkdir()
    return tmp_path


@pytest.mark.parametrize("given", ["reports", "reports/run.json"])
def test_a_stored_run_is_loaded_from_its_folder_or_its_file(project, given):
    loaded = perfci.load(project / given)

    assert loaded.run.plan.seed == 7
    assert perfci.load(str(project / given)).run == loaded.run
    assert loaded.folder == project / "reports"


def test_its_frame_has_a_row_a_block_and_arm(project):
    table = perfci.load(project / "reports").frame()

    assert len(table) == 2 * 24 * 3
    medians = table.groupby(["param.rows", "arm"])["median_us"].median()
    assert medians[256, "kernel"] == pytest.approx(45.7, abs=0.2)
    assert medians[512, "base"] == pytest.approx(85.9, abs=0.3)


def test_its_launches_have_a_row_a_launch(project):
    table = perfci.load(project / "reports").launches()

    assert list(table.columns) == ["op", "case", "process", "block", "arm", "us"]
    assert len(table) == 3960
    assert table["us"].dtype == "float64"


def test_its_judgements_are_those_of_the_project_around_it(project):
    loaded = perfci.load(project / "reports")

    assert loaded.judgements.gate is Gate.FAILS
    slow = {row.case for row in loaded.judgements.rows if row.verdict is Verdict.REGRESSED}
    assert len(slow) == 2
    assert loaded.judgements is loaded.judgements, "judged once"
    assert set(loaded.frame(verdicts=True)["verdict"]) == {"REGRESSED"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "does not exist: check the path"),
        ('{"format": 7}', "has format 7, and this perfci reads formats up to 1: update perfci"),
        ('{"name": "left-pad"}', "is not a file of perfci"),
        ("{", "is not complete JSON, first at line 1"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_whose_text_is_the_sentence(tmp_path, text, words):
    path = tmp_path / "run.json"
    if text:
        path.write_text(text)

    with pytest.raises(StoredFileError) as caught:
        perfci.load(path)

    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")
    assert isinstance(caught.value, PerfciError)


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_error_survives_the_way_out_of_a_process(kind):
    if not issubclass(kind, PerfciError):
        return
    error = kind("no_case_fits", pattern="rows=9", ops="relu")

    back = pickle.loads(pickle.dumps(error))

    assert type(back) is kind
    assert back.reason == error.reason
    assert str(back) == "No case of relu fits --case 'rows=9'; `perfci list` shows the case ids."
