"""`perfci soak` from the command to its answer, on the fake device, over kernels with planted faults."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from tests.worker.test_load import OpFolder

BASELINE = """
    import numpy as np
    from perfci.device.fake import work

    def {op}(x):
        work(50.0)
        return x * 2.0

    def make_inputs(rows, device, seed):
        return {{"x": np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)}}
    """
SUITE = """
    import perfci
    from {op}_baseline import make_inputs, {op} as reference
    from {op}_triton import {op} as kernel

    {part} = perfci.{kind}(
        kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(rows=[{rows}]){more}
    )
    if __name__ == "__main__":
        perfci.main({part})
    """
SOUND = """
    from perfci.device.fake import work

    def {op}(x):
        work(20.0)
        return x * 2.0
    """
CALLS = "400"


class Project:
    """A project of one-function ops."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        root.mkdir()
        self.settings()

    def settings(self, **fake) -> None:
        lines = "".join(f"{key} = {value}\n" for key, value in {"spike_share": 0.0, **fake}.items())
        (self.root / "pyproject.toml").write_text(f"[tool.perfci]\ntime_limit_s = 20\n[tool.perfci.fake]\n{lines}")

    def op(self, name: str, kernel: str = SOUND, rows: str = "4", accuracy: str = "") -> None:
        folder = self.root / "kernels" / name
        folder.mkdir(parents=True)
        texts = {"triton": kernel.replace("{op}", name), "baseline": BASELINE.format(op=name)}
        for part, more in (("accuracy", accuracy), ("performance", "")):
            texts[part] = SUITE.format(op=name, part=part, kind=part.title(), rows=rows, more=more)
        for part, text in texts.items():
            (folder / f"{name}_{part}.py").write_text(textwrap.dedent(text).lstrip())

    def soak(self, *options: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["soak", "--device", "fake", "--seed", "5", "--project", str(self.root), *options])
        seen = self._capsys.readouterr()
        return code, seen.out, seen.err

    def findings(self, *options: str) -> tuple[int, dict[tuple[str, str, str | None], dict]]:
        code, out, err = self.soak("--format", "json", "--calls", CALLS, *options)
        assert code in {0, 2}, err
        return code, {(load["op"], load["test"], load["case"]): load for load in json.loads(out)["findings"]}


@pytest.fixture
def project(tmp_path, capsys):
    return Project(tmp_path / "project", capsys)


def status(findings, op, test, case="rows=4"):
    return findings[op, test, case]["status"]


def kind(findings, op, test, case="rows=4"):
    return findings[op, test, case]["reason"]["kind"]


def test_a_sound_op_passes_every_test_that_the_device_is_good_for(project):
    project.op("scale")

    code, out, _ = project.soak("--calls", CALLS)

    assert code == 0
    assert "PASS memory rows=4: 400 calls, 0 B to 0 B" in out
    assert "PASS decay" in out
    assert "PASS threads" in out
    assert "SKIPPED streams all cases" in out
    assert "4 passed, 0 failed, 0 errors, 1 skipped" in out
    kept = json.loads((project.root / "reports" / "soak" / "soak.json").read_text())
    assert kept["failed"] is False


def test_leaks_are_told_with_their_size_and_caches_that_fill_are_not(project):
    leaking = (
        "from perfci.device.fake import hold, work\n\ndef {op}(x):\n    work(20.0)\n    hold(96)\n    return x * 2.0\n"
    )
    project.op("leaking", leaking)
    project.op("outside", leaking.replace("hold(96)", "hold(512, outside=True)"))
    project.op(
        "caching",
        "from perfci.device.fake import hold, work\nCALLS = []\n\n"
        "def {op}(x):\n    work(20.0)\n    CALLS.append(1)\n"
        "    hold(96 if len(CALLS) < 250 else 0)\n    return x * 2.0\n",
    )

    code, findings = project.findings()

    assert code == 2
    assert kind(findings, "leaking", "memory") == "soak_leak"
    assert findings["leaking", "memory", "rows=4"]["numbers"]["rate"] == 96
    assert kind(findings, "outside", "memory") == "soak_leak_outside"
    assert findings["outside", "memory", "rows=4"]["numbers"]["rate"] == 512
    assert status(findings, "caching", "memory") == "PASS"


def test_a_drift_fails_and_one_that_the_clock_explains_does_not(project):
    project.op("scale")
    project.settings(drift_per_block=0.004)
    code, drifting = project.findings()
    assert (code, kind(drifting, "scale", "decay")) == (2, "soak_decay")
    numbers = drifting["scale", "decay", "rows=4"]["numbers"]
    assert 0.06 < numbers["low"] < numbers["change"] < numbers["high"] < 0.10  # 19 steps of 0.4 %

    project.settings(drift_per_block=0.004, clock_drop_per_block=0.004)
    code, explained = project.findings()
    assert (code, status(explained, "scale", "decay")) == (0, "PASS")
    assert kind(explained, "scale", "decay") == "soak_clock_explains"

    project.settings(drift_per_block=0.004)
    assert status(project.findings("--decay-limit", "12")[1], "scale", "decay") == "PASS"


def test_an_answer_that_changes_at_a_late_call_is_found_and_an_op_that_says_so_is_left_out(project):
    changing = (
        "from perfci.device.fake import work\nCALLS = []\n\n"
        "def {op}(x):\n    work(20.0)\n    CALLS.append(1)\n    return x * (2.0 if len(CALLS) < 1100 else 3.0)\n"
    )
    project.op("changing", changing)
    project.op("loose", changing, accuracy=", deterministic=False")

    code, findings = project.findings()

    assert code == 2
    assert kind(findings, "changing", "determinism") == "soak_differs"
    assert status(findings, "loose", "determinism", None) == "SKIPPED"
    assert ("loose", "determinism", "rows=4") not in findings


def test_a_crash_and_a_hang_are_errors_of_their_test_and_the_rest_goes_on(project):
    project.settings()
    (project.root / "pyproject.toml").write_text("[tool.perfci]\ntime_limit_s = 8\n")
    project.op(
        "dying",
        "from perfci.device.fake import crash, work\nCALLS = []\n\n"
        "def {op}(x):\n    work(20.0)\n    CALLS.append(1)\n"
        "    if len(CALLS) == 300 and x.shape[0] == 4:\n        crash()\n    return x * 2.0\n",
        rows="4, 8",
    )
    project.op(
        "hanging",
        "import threading\nfrom perfci.device.fake import hang, work\n\n"
        "def {op}(x):\n    work(20.0)\n    if threading.current_thread() is not threading.main_thread():\n"
        "        hang()\n    return x * 2.0\n",
    )

    code, findings = project.findings()

    assert code == 2
    died = [key for key, finding in findings.items() if finding["status"] == "ERROR" and key[0] == "dying"]
    assert [findings[key]["reason"]["kind"] for key in died] == ["worker_died"] * len(died)
    assert ("dying", "memory", "rows=4") in died
    assert all(status(findings, "dying", test, "rows=8") == "PASS" for test in ("threads", "memory", "decay"))
    assert kind(findings, "hanging", "threads") == "worker_hung"
    assert status(findings, "hanging", "memory") == "PASS"


def test_a_pattern_that_fits_nothing_and_senseless_options_are_refused(project):
    project.op("scale")

    assert project.soak("--case", "rows=5")[0] == 1
    assert "No case of scale fits --case 'rows=5'" in " ".join(project.soak("--case", "rows=5")[2].split())
    assert project.soak("--calls", "1")[0] == 1
    assert project.soak("scael")[0] == 1


@pytest.fixture
def declared(tmp_path):
    made = OpFolder(tmp_path, "wide")
    before = set(sys.modules)

    def load(fields):
        path = made.path("accuracy")
        text = f"accuracy = perfci.Accuracy(wide, reference, make_inputs, cases=[{{'rows': 1}}], {fields})\n"
        path.write_text(path.read_text() + text)
        return made.load().accuracy

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(declared, fields):
    with pytest.raises(ContractError) as caught:
        declared(fields)
    return sentence(caught.value.reason)


def test_large_cases_are_read_and_are_none_by_default(declared):
    assert declared("").large_cases == ()
    assert declared("large_cases=[{'rows': 5}]").large_cases == [{"rows": 5}]


@pytest.mark.parametrize(("interpreted", "many"), [("", 1), ("1", 0)])
def test_cases_for_accelerators_join_the_others_where_kernels_are_not_interpreted(
    declared, monkeypatch, interpreted, many
):
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    before = len(declared("").cases)

    cases = declared("accelerator_cases=[{'rows': 5}]").cases

    assert len(cases) == before + many


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("accelerator_cases=[{'columns': 5}]", "columns=5"),
        ("large_cases=7", "has no len()"),
        ("large_cases=[5]", "no attribute 'items'"),
        ("large_cases=[{'columns': 5}]", "columns=5"),
        ("large_cases=[{'rows': 5}, {'rows': 5}]", "rows=5"),
        ("large_cases=[{'rows': 5}], large_part=3", "wide_accuracy.py: the suite cannot be read"),
    ],
)
def test_a_wrong_declaration_is_refused_in_a_sentence(declared, fields, said):
    assert said in refusal(declared, fields)
