"""`perfci chain` from the command to the answer, on the fake device."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from perfci.cli.main import run
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, Reason
from perfci.core.settings import load
from perfci.extensions.lab.chains import flow
from perfci.extensions.lab.chains.flow import check_chains
from perfci.extensions.lab.chains.records import ChainMeasured, Error, Output, StageMeasured
from perfci.extensions.lab.chains.task import ChainPlanned
from perfci.runs.describe import Described
from perfci.runs.plan import Request
from perfci.worker.protocol import Doing, OpDone, Ready

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

CHAIN = TEXTS["chain"]


class Project:
    """A project with one op that a chain takes."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        self.path = root / "kernels" / "_chains" / "echo_chain.py"
        self.path.parent.mkdir(parents=True)
        (root / "kernels" / "_shared.py").write_text("FACTOR = 3\n")
        op = root / "kernels" / "shout" / "shout_triton.py"
        op.parent.mkdir()
        op.write_text("from _shared import FACTOR\n\n\ndef shout(x):\n    return x * FACTOR\n")
        self.write()

    def write(self, before: str = "BREAKS", after: str = "pass") -> None:
        self.path.write_text(CHAIN.replace(before, after).replace("BREAKS", "pass"))

    def chain(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["chain", "--device", "fake", "--project", str(self.root), *arguments])
        seen = self._capsys.readouterr()
        return code, seen.out, seen.err

    def answer(self, *arguments: str) -> tuple[int, dict]:
        code, out, err = self.chain("--format", "json", "--seed", "7", *arguments)
        assert out, err
        return code, json.loads(out)["chains"][0]


@pytest.fixture
def project(tmp_path, capsys):
    return Project(tmp_path, capsys)


def verdicts(chain):
    return {case["case"]: case["verdict"] for case in chain["cases"]}


def test_a_sound_chain_passes_with_a_table_a_case(project):
    code, out, err = project.chain("echo")

    assert code == 0
    assert "echo: 3 cases (3 PASS)" in out
    assert out.count("stage ") == 3
    assert "Fake One" in out
    assert "echo: checking the chain, 3 checks" in err


def test_a_crash_costs_one_case_and_is_an_error_that_names_stage_and_case(project):
    project.write("BREAKS", "crash()")

    code, chain = project.answer()
    assert code == 2
    assert verdicts(chain) == {"rows=4": "PASS", "rows=8": "ERROR", "rows=16": "PASS"}
    (failure,) = chain["cases"][1]["failures"]
    told = failure["sentence"]
    assert told.startswith("echo crashed with SIGSEGV at kernels/_chains/echo_chain.py:")
    assert " during stage again of rows=8; its last output: Fatal Python error: Segmentation fault (" in told


def test_a_project_without_chains_is_told_where_they_belong_and_fails_only_if_one_is_named(project):
    project.path.unlink()

    code, out, _ = project.chain()
    assert code == 0
    assert "There are no chains in" in out

    code, out, _ = project.chain("--format", "json")
    assert (code, json.loads(out)["chains"]) == (0, [])

    code, _, err = project.chain("echo")
    assert code == 1
    assert "There are no chains in" in err


@pytest.mark.slow
@pytest.mark.torch
def test_the_projects_own_chains_are_right_in_tritons_interpreter(tmp_path, capsys):
    (tmp_path / "kernels").symlink_to(Path(__file__).parents[4] / "kernels", target_is_directory=True)
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")

    code = run(["chain", "--device", "cpu", "--seed", "3", "--format", "json", "--project", str(tmp_path)])
    verdicts_of = {chain["chain"]: verdicts(chain) for chain in json.loads(capsys.readouterr().out)["chains"]}
    assert code == 0
    assert [*verdicts_of] == ["float8_mlp", "norm_matmul_softmax", "transformer_block"]
    for told in verdicts_of.values():
        assert {case: verdict for case, verdict in told.items() if verdict != "UNCHECKED"} == dict.fromkeys(
            list(told)[:3], "PASS"
        )


SOUND = Output("y", "float32", 1e-7, 1.0, Error(1e-6, 1e-6), Error(1e-6, 1e-6))
GOOD = ChainMeasured("rows=1", 7, (StageMeasured("loud", (), Error(1e-6, 1e-6), (SOUND,)),))
CASES = ("rows=1", "rows=2", "rows=3")
FAKE = Device("fake", "Fake One", "fake-one")


@pytest.fixture
def settings(tmp_path):
    folder = tmp_path / "kernels" / "_chains"
    folder.mkdir(parents=True)
    for name in ("echo", "other"):
        (folder / f"{name}_chain.py").write_text("")
    return load(tmp_path)


@pytest.fixture
def tasks(monkeypatch):
    """Replaces workers by `said`: one list of messages and a failure a worker."""

    class Workers(list):
        said = None

    seen = Workers()

    def run_worker(task, around, heard):
        seen.append(task)
        messages, failure = seen.said.pop(0)
        for message in messages:
            heard(message)
        return failure

    monkeypatch.setattr(flow, "run_worker", run_worker)
    return seen


def good(*cases):
    return [
        message
        for case in cases
        for message in (Doing("stage loud", "echo", case), replace(GOOD, case=case, lost=case == "rows=2"))
    ]


def check(settings, **options):
    return check_chains(settings, Request(**{"ops": ("echo",), "device": "fake", "seed": 7} | options), lambda _: None)


def test_a_worker_that_lost_its_device_is_followed_by_one_for_what_is_left(settings, tasks):
    tasks.said = [
        ([Ready(FAKE), ChainPlanned(CASES), *good("rows=1", "rows=2"), OpDone()], None),
        ([ChainPlanned(("rows=3",)), *good("rows=3"), OpDone()], None),
    ]

    (result,) = check(settings).results
    assert [case.case for case in result.cases] == [*CASES]
    assert [task.cases for task in tasks] == [None, ("rows=3",)]
    assert not result.failed


def test_a_worker_that_stops_short_fails_its_chain_with_what_it_had(settings, tasks):
    tasks.said = [([Ready(FAKE), ChainPlanned(CASES), *good("rows=1")], None), ([OpDone()], None)]

    (result,) = check(settings).results
    assert result.failure == Reason("worker_silent")
    assert [case.case for case in result.cases] == ["rows=1"]


def test_no_case_of_any_chain_is_a_usage_error_and_of_one_chain_is_none(settings, tasks):
    tasks.said = [([Ready(FAKE), ChainPlanned(()), OpDone()], None)] * 2
    with pytest.raises(UsageError, match="No case of echo, other fits"):
        check(settings, ops=(), pattern="rows=9")

    tasks.said = [
        ([Ready(FAKE), ChainPlanned(()), OpDone()], None),
        ([Ready(FAKE), ChainPlanned(("rows=9",)), *good("rows=9"), OpDone()], None),
    ]
    assert [len(result.cases) for result in check(settings, ops=(), pattern="rows=9").results] == [0, 1]


def test_a_device_that_cannot_be_opened_is_no_chains_fault(settings, tasks):
    tasks.said = [([], Reason("device_gone", {"device": "cuda", "why": "no driver"}))]

    with pytest.raises(PerfciError, match="The device cuda can"):
        check(settings, device="cuda")


def test_without_a_device_named_the_one_at_hand_is_asked_for_first(settings, tasks, monkeypatch):
    monkeypatch.setattr(flow, "describe_sources", lambda *_: [Described(FAKE, ())])
    tasks.said = [([Ready(FAKE), ChainPlanned(("rows=1",)), *good("rows=1"), OpDone()], None)]

    assert check(settings, device="auto").device == FAKE
    assert [task.opening.device for task in tasks] == ["fake"]


OFF = replace(SOUND, so_far=Error(1.0, 1.0))


def staged(*outputs, **fields):
    return replace(GOOD, stages=(StageMeasured("loud", (), Error(1e-6, 1e-6), outputs),), **fields)


FORGED = {
    "nothing": ChainMeasured("rows=1", 7),
    "a stage without outputs": replace(GOOD, stages=(StageMeasured("loud"),)),
    "an error without its failure": staged(OFF),
    "infinities without their failure": staged(replace(SOUND, faults=1)),
    "what it wrote elsewhere": replace(GOOD, stages=(replace(GOOD.stages[0], strays=1),)),
    "no error of the references": replace(GOOD, stages=(StageMeasured("loud", (), None, (OFF,)),)),
    "stages that read themselves": replace(GOOD, stages=(replace(GOOD.stages[0], reads=(0,)),)),
    "unchecked and wrong": staged(OFF, unchecked=Reason("interpreter_lacks")),
}


@pytest.mark.parametrize("message", FORGED.values(), ids=FORGED)
def test_a_case_whose_numbers_do_not_show_that_it_is_right_does_not_pass(settings, tasks, message):
    tasks.said = [([Ready(FAKE), ChainPlanned(("rows=1",)), message, OpDone()], None)]

    (result,) = check(settings).results
    assert result.failed and result.cases[0].verdict == "WRONG"
