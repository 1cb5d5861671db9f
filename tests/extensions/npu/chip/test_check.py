"""`perfci check --device npu`, whole, on the test device: a project of two ops, kept in git, and branches of it."""

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from perfci import load
from tests.git_repositories import alone, commit_all, git

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROJECT = Path(__file__).parent / "project"
ONE_CASE = ("scale", "--case", "rows=*,cols=256,dtype=float32")


@dataclasses.dataclass(frozen=True)
class Checked:
    """A check's output and files."""

    code: int
    rows: list[dict]
    text: str
    project: Path

    def told(self, op: str, suite: str) -> dict[str, str]:
        """Verdict -> the sentence of its reason, of one op and suite."""
        return {
            row["verdict"]: (row["reason"] or {}).get("sentence", "")
            for row in self.rows
            if (row["op"], row["suite"]) == (op, suite)
        }

    def performance(self, op: str):
        run = load(self.project / "reports").run
        return next(each for each in run.ops if each.op == op).performance


@pytest.fixture(scope="module")
def main(tmp_path_factory) -> Path:
    """The project on its branch main."""
    folder = tmp_path_factory.mktemp("projects")
    shutil.copytree(PROJECT, folder / "main", ignore=shutil.ignore_patterns("reports", "__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        alone(patch, folder)
        git(folder / "main", "init", "-q", "-b", "main")
        commit_all(folder / "main")
    return folder / "main"


@pytest.fixture
def project(main, tmp_path) -> Path:
    """A copy of it on main, with nothing to compare with."""
    shutil.copytree(main, tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def branch(project) -> Path:
    """The same on a branch, which is compared with main."""
    git(project, "checkout", "-q", "-b", "work")
    return project


def change(project: Path, op: str, *edits: tuple[str, str]) -> None:
    """Edit an op's kernel, and commit it; each text must be there."""
    path = project / "kernels" / op / f"{op}_triton.py"
    text = path.read_text("utf-8")
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    commit_all(project)


@pytest.fixture
def check(perfci, project):
    """Checks it, with variables that plant something."""

    def checked(*arguments: str, **planted: str) -> Checked:
        options = ["--device", "npu", "--format", "json", "--seed", "7", "--budget", "0.05"]
        code, out, err = perfci(project, "check", *options, *arguments, **planted)
        assert out, err
        return Checked(code, json.loads(out)["verdicts"], out + err, project)

    return checked


def test_a_first_check_is_green_and_reports_what_the_chip_and_its_records_tell(check, project):
    checked = check("scale", "--case", "*cols=[23]*", "--html")

    assert checked.code == 0, checked.text
    assert set(checked.told("scale", "accuracy")) == {"PASS"}
    assert set(checked.told("scale", "performance")) == {"NEW"}
    told = load(project / "reports").run.environment
    assert (told.timer, told.device.kind, told.device.key) == ("activity", "npu", "ascend910b2")
    assert told.device.driver == "25.2.0"
    assert told.device.runtime == "CANN 8.5.0"
    assert told.packages["triton-ascend"] == "3.2.0"
    block = checked.performance("scale")[0].blocks[0]
    assert block.state.sm_clock_mhz == 1800
    assert block.state.temperature_c == 47
    # 64 rows of 256 float32, read and written at a nanosecond a byte, and 2 us for the launch: the device's pace.
    assert block.arms["kernel"].time.median_us == pytest.approx(2 + 2 * 64 * 256 * 4 / 1e3, rel=0.01)
    for name in ("report.md", "report.html"):
        assert "Ascend910B2" in (project / "reports" / name).read_text("utf-8")


def test_a_slower_kernel_is_regressed_and_a_wrong_one_is_wrong_and_not_timed(check, branch):
    load = "    value = tl.load(x + offsets, mask=inside)\n"
    again = "    value = tl.where(inside, value, tl.load(x + offsets, mask=inside, cache_modifier='.cg'))\n"
    change(branch, "scale", (load, load + again))
    change(branch, "row_sum", ("mask=offsets < cols", "mask=offsets < cols - 1"))

    checked = check("--case", "*cols=[!1]*")

    assert checked.code == 2, checked.text
    assert "REGRESSED" in checked.told("scale", "performance")
    assert set(checked.told("scale", "accuracy")) == {"PASS"}
    assert "WRONG" in checked.told("row_sum", "accuracy")
    assert checked.performance("row_sum") == ()
    block = checked.performance("scale")[0].blocks[0]
    assert block.arms["kernel"].time.median_us > 1.4 * block.arms["base"].time.median_us
    assert "REGRESSED" in (branch / "reports" / "report.md").read_text("utf-8")


def test_a_kernel_that_is_only_written_otherwise_has_the_same_artefact_and_is_unchanged(check, branch):
    change(branch, "scale", ("    offsets = tl.", "    # every element once\n    offsets = tl."))

    checked = check(*ONE_CASE)

    assert checked.code == 0, checked.text
    assert set(checked.told("scale", "performance")) == {"UNCHANGED"}


def test_records_that_are_missing_are_no_number(check, project):
    checked = check(*ONE_CASE, "--suite", "performance", NPU_STAND_IN_PROFILER="missing")

    assert checked.code == 2, checked.text
    assert "The profiler left no kernel_details.csv" in checked.told("scale", "performance")["ERROR"]
    assert all(not case.blocks for case in checked.performance("scale"))


def test_an_operation_that_falls_back_to_the_cpu_is_said_by_name(check, project):
    change(project, "scale", ("    return out", "    return out + torch.special.i1(torch.zeros_like(out))"))

    checked = check(*ONE_CASE, NPU_STAND_IN_LACKS="special_i1")

    reason = checked.told("scale", "performance")
    assert "SUSPECT" in reason, checked.text
    assert "special_i1" in reason["SUSPECT"]


def test_a_kernel_that_has_the_cpu_do_its_work_launches_nothing_and_is_not_timed(check, project):
    path = project / "kernels" / "scale" / "scale_triton.py"
    text = path.read_text("utf-8")
    body = "    return torch.div(x.cpu(), 1 / factor).to(x.device)\n"
    path.write_text(text[: text.index("    x = x.contiguous()")] + body, encoding="utf-8")

    checked = check(*ONE_CASE, "--suite", "performance")

    assert checked.code == 2, checked.text
    assert "launched nothing on the device" in checked.told("scale", "performance")["WRONG"]


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [({"NPU_STAND_IN_CANN": "missing"}, "CANN"), ({"NPU_STAND_IN_TARGET": "cuda"}, "triton-ascend")],
)
def test_a_machine_that_cannot_run_kernels_is_one_clear_sentence(perfci, project, planted, sentence):
    code, _, err = perfci(project, "check", "--device", "npu", *ONE_CASE, **planted)

    assert code == 1
    assert sentence in err
    assert "Traceback" not in err


def test_doctor_sees_the_chip_its_timer_and_nothing_in_the_way(perfci, project):
    _, out, _ = perfci(project, "doctor")

    told = [line.split(maxsplit=1) for line in out.splitlines()]
    assert [sentence for kind, sentence in told if kind == "problem"] == []
    for sentence in ("Ascend910B2 (ascend910b2), driver 25.2.0, CANN 8.5.0.", "Timer: activity."):
        assert ["ok", sentence] in told


@pytest.mark.nightly
def test_a_person_with_a_chip_sends_one_file_back(check, project):
    checked = check(*ONE_CASE, "--report-back")

    assert "reports/report-back.zip" in checked.text
    with zipfile.ZipFile(project / "reports" / "report-back.zip") as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "Ascend910B2 (ascend910b2), driver 25.2.0, CANN 8.5.0." in files["doctor.txt"]
    assert json.loads(files["selftest.json"].splitlines()[0])["trials"]
    assert "910B2" in files["npu-smi info.txt"]
    assert json.loads(files["machine.json"])["cann"] == "8.5.0"
    assert {"run.json", "report.md", "logs/scale.log"} <= files.keys()
