"""`perfci ranks`, its exit codes, and both ops of this repository on four ranks without a GPU."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.cli.exits import Exit
from perfci.core.locks import device_lock
from perfci.core.model import Device, PlannedOp
from perfci.core.settings import load
from perfci.extensions.ranks import flow
from perfci.extensions.ranks.commands.ranks import get_exit_code
from perfci.runs.describe import Described
from perfci.runs.plan import Request
from tests.extensions.ranks.talking import commit, git, make_project, plant
from tests.program import call

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def perfci(*arguments, where):
    return call("ranks", *arguments, "--project", str(where))


def make_copy(folder, *ops):
    """A project with ops of this repository."""
    (folder / "kernels").mkdir()
    for path in (*ROOT.glob("kernels/_*"), *(ROOT / "kernels" / op for op in ops)):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / "kernels" / path.name)
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")
    return folder


@pytest.mark.torch
def test_both_ops_are_right_on_four_ranks_by_gloo_and_the_interpreter(tmp_path):
    pytest.importorskip("triton")
    chosen = ["--size", "4", "--device", "cpu", "--case", "m=148,dtype=float16", "--format", "json"]
    done = perfci(*chosen, where=make_copy(tmp_path, "allgather_matmul", "matmul_reducescatter"))

    assert done.code == 0, done.out + done.err
    for said in json.loads(done.out)["ops"]:
        (case,) = said["checked"]
        assert (said["ready"]["backend"], case["verdict"], len(case["l2"])) == ("gloo", "PASS", 4)
        assert 0 < case["whole"] < 1e-3


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "verdict", "sentence"),
    [
        ("a = a + rank", "WRONG", "is wrong on rank"),
        (
            'import os, torch.distributed as dist; rank and dist.get_backend() == "gloo" and os.kill(os.getpid(), 9)',
            "ERROR",
            "Rank 1 of 2 died (SIGKILL)",
        ),
    ],
)
def test_a_check_without_a_gpu_gates_what_is_wrong_on_some_rank_alone(fault, verdict, sentence, tmp_path):
    pytest.importorskip("triton")
    project = make_copy(tmp_path, "allgather_matmul")
    git(project, "init", "-q", "-b", "main")
    commit(project)
    path = project / "kernels/allgather_matmul/allgather_matmul_triton.py"
    line = "    rank, ranks = _symmetric.find_group()\n"
    path.write_text(path.read_text().replace(line, f"{line}    {fault}\n"))
    code, said, _ = check(project, "--case", "m=64,dtype=float32", "--against", "HEAD", device="cpu")

    assert code == 2
    assert f"{verdict} allgather_matmul accuracy" in said
    assert sentence in said
    assert "Next: perfci ranks allgather_matmul --size 2 --case" in said


def test_what_is_slower_fails_with_the_ranks_and_the_figures_in_the_answer(tmp_path):
    plant(make_project(tmp_path), "lost overlap")
    done = perfci("--device", "fake", "--size", "2", "--case", "m=64*", where=tmp_path)
    words = " ".join(done.out.split())

    assert done.code == 2, done.err
    assert "talk is slower on every rank at m=64,dtype=float32: a launch takes its slowest rank +34" in words
    assert "clocks of the ranks, us ahead of the first: 0.000" in words
    assert "times are what each rank's process says" in words
    assert "0.0 MB, 0 us" in words  # what a layer of 64 x 64 sends by pipeline parallelism
    assert json.loads((tmp_path / "reports/ranks/ranks.json").read_text())["gate"] == "fails"


def test_a_project_without_such_ops_is_told_how_an_op_says_so(tmp_path):
    project = make_project(tmp_path)
    path = project / "kernels" / "talk" / "talk_accuracy.py"
    path.write_text(path.read_text().replace("    ranks=(2, 4),\n", ""))
    done = perfci("--device", "fake", where=project)

    assert (done.code, "give its accuracy suite ranks=2" in done.err) == (1, True)


def run_on_boards(tmp_path, monkeypatch, sizes, devices=None, wait_s=60.0, kind="cuda"):
    """Runs groups on a machine with five boards, one of them sick. Returns what each was given, and the result."""
    uuids = ("a", "b", "c", "d", "e")
    described = Described(Device(kind, "NVIDIA H200", "nvidia-h200"), (PlannedOp("talk"),), 5, 5, uuids)
    given, running, at_once = [], [], []

    def working(task, around, heard):
        given.append(around.environment["CUDA_VISIBLE_DEVICES"])
        running.append(given[-1])
        yield ()
        at_once.append([*running])
        yield ()
        running.remove(around.environment["CUDA_VISIBLE_DEVICES"])
        assert around.environment["NCCL_NVLS_ENABLE"] == "0"

    monkeypatch.setattr(flow, "working", working)
    monkeypatch.setattr(flow, "describe_sources", lambda *_: [described])
    monkeypatch.setattr(flow, "find_sick", lambda _: ("GPU-b",))
    settings = replace(load(make_project(tmp_path)), lock_folder=tmp_path, lock_wait_s=wait_s)
    request = Request(("talk",), device=kind, devices=devices)
    return given, flow.check_ranks(settings, request, lambda _: None, sizes), at_once


def test_a_group_that_the_machine_has_no_boards_for_is_skipped_and_says_so(tmp_path, monkeypatch):
    given, result, _ = run_on_boards(tmp_path, monkeypatch, (2, 8))

    assert given == ["0,2"]
    assert (result.ops[1].skipped.kind, result.ops[1].skipped.facts) == ("ranks_few_boards", {"ranks": 8, "boards": 4})


def test_npus_make_no_group_and_that_is_said(tmp_path, monkeypatch):
    given, result, _ = run_on_boards(tmp_path, monkeypatch, (2,), kind="npu")

    assert (given, result.ops[0].skipped.kind, get_exit_code(result)) == ([], "ranks_no_npu", Exit.WARNINGS)


def test_groups_are_at_work_side_by_side_on_boards_of_their_own_if_that_is_asked_for(tmp_path, monkeypatch):
    given, _, at_once = run_on_boards(tmp_path, monkeypatch, (2, 2), "all")

    assert given == ["0,2", "3,4"]
    assert at_once[0] == given


def test_groups_keep_to_the_boards_that_are_named(tmp_path, monkeypatch):
    given, result, _ = run_on_boards(tmp_path, monkeypatch, (2,), "1,3,4")

    assert (given, result.ops[0].skipped) == (["3,4"], None)


def test_a_group_of_which_another_run_keeps_a_board_stays_undone_and_is_no_fault_of_the_kernel(tmp_path, monkeypatch):
    with device_lock("GPU-c", tmp_path, lambda _: None):
        given, result, _ = run_on_boards(tmp_path, monkeypatch, (2,), wait_s=0.0)

    assert (given, result.ops[0].undone.kind, get_exit_code(result)) == ([], "device_taken", Exit.WARNINGS)


def check(project, *arguments, device="fake"):
    """What `perfci check` says, without line breaks."""
    done = call("check", "--device", device, "--project", str(project), *arguments)
    return done.code, " ".join(done.out.split()), (project / "reports" / "report.md").read_text()


@pytest.mark.nightly
def test_a_check_without_boards_for_groups_says_which_command_checks_them(tmp_path):
    sentence = "talk is for groups of 2, 4 ranks as well, and none of that size was checked here: `perfci ranks talk"
    _, said, report = check(make_project(tmp_path))

    assert sentence in said
    assert sentence in report
    assert sentence not in check(tmp_path, "--against", "HEAD")[1]  # which did not change


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments", [pytest.param(["--deadline", "3000"], marks=pytest.mark.nightly), ["--devices", "all"]], ids=" ".join
)
def test_a_check_gates_groups_where_the_boards_are_enough(arguments, tmp_path):
    plant(make_project(tmp_path, devices=2), "a hidden message")  # of which one rank shows nothing
    code, said, report = check(tmp_path, "--case", "m=64*", *arguments)
    again = call("compare", "--project", str(tmp_path))

    assert code == 2
    assert "REGRESSED talk ranks=2,m=64,dtype=float32" in said
    assert "Next: perfci ranks talk --size 2 --case m=64,dtype=float32 --seed" in said
    assert "talk sends 20.0 MB a launch from rank 0 at m=64,dtype=float32, where the base sends 16.0 MB" in said
    assert "On 2 ranks: talk sends 20.0 MB a launch" in report
    assert "talk is for groups of 4 ranks as well, and none of that size was checked here" in said
    assert "Times of groups are what each rank's process reports" in said
    assert "Times of groups are what each rank's process reports" in report
    assert "ranks=2" in again.out  # which judges the stored run

    (command,) = {*re.findall(r"^perfci (ranks .*)$", report, re.MULTILINE)}  # what to type next
    alone = call(*shlex.split(command))
    assert (alone.code, "REGRESSED" in alone.out) == (2, True), command + alone.err


def test_a_check_names_groups_that_pass(tmp_path):
    project = make_project(tmp_path, devices=2)
    path = project / "kernels" / "talk" / "talk_triton.py"
    path.write_text(path.read_text().replace("    return x", "    work(0.001)\n    return x"))
    code, _, report = check(project, "--case", "m=64*")

    assert code == 0
    assert "talk is right on 2 ranks in 0 cases, and slower there in none of 1 case." in report


def test_accepted_times_of_a_group_show_when_a_kernel_has_lost_against_its_reference(tmp_path):
    project = make_project(tmp_path)
    chosen = ["--device", "fake", "--size", "2", "--case", "m=64*"]
    accepted = perfci(*chosen, "--seed", "1", "--accept", "--duel", "none", where=project)
    plant(project, "all ranks")
    after = perfci(*chosen, "--seed", "2", "--duel", "none", "--format", "json", where=project)
    (case,) = json.loads(after.out)["ops"][0]["timed"]

    assert accepted.code == 0, accepted.err
    assert (project / "baselines" / "fake-one" / "ranks" / "talk-x2.json").is_file()
    assert (after.code, case["verdict"], case["reasons"][0]["kind"]) == (3, "DRIFTED", "ranks_drifted")
    assert case["reasons"][0]["facts"]["change"] == pytest.approx(0.03, abs=0.004)
