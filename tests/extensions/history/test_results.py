import pickle
import shutil
from pathlib import Path

import pytest

import perfci
from perfci.core import errors
from perfci.core.errors import PerfciError, StoredFileError
from perfci.core.model import Gate, Verdict

STORED = Path(__file__).parents[2] / "stored" / "format-1"


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
