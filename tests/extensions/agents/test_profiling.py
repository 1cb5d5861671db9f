"""`perfci profile` from the command to its answer, on the fake device."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core.settings import load
from perfci.device.seam import WARMING
from perfci.extensions.agents.logbook import read_logbook
from perfci.extensions.agents.profile_records import Bound, Profile
from perfci.extensions.agents.profile_task import ProfileOp
from perfci.extensions.agents.profiles import read_profile
from perfci.ops.discover import select
from perfci.runs.bench import list_files, place_ops, plan_opening
from perfci.store.files import decode
from perfci.worker.tasks import pack_task
from tests.git_repositories import begin_topic

WORK = "fake.work(2.0 + US_PER_MEGABYTE * x.nbytes / 1e6)"
SMALL = "rows=256,cols=128,dtype=float32"


def profile(project, *arguments):
    """The answer of `perfci profile relu` in JSON."""
    answer = project.perfci("profile", "relu", "--device", "fake", "--format", "json", *arguments)
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_every_case_has_its_bound_evidence_and_counters(project):
    report = profile(project)

    assert (report["op"], report["source"], report["note"]) == ("relu", "virtual", None)
    assert [case["case"] for case in report["cases"]] == [SMALL, "rows=512,cols=128,dtype=float32"]
    for case in report["cases"]:
        assert case["bound"] == "latency"
        assert case["us"] > 40
        assert case["counters"]["dram_bytes"] == case["bytes_moved"]
        assert case["rates"]["of_copy"] < 0.01
        assert all(reason["sentence"] for reason in case["evidence"])
        assert 0 < len(case["advice"]) <= 2
        assert all(advice["speedup"] > 1 and advice["by"] == "launch" for advice in case["advice"])


def test_the_last_profile_of_an_op_is_kept(project):
    profile(project, "--case", "rows=256")
    report = read_profile(load(project.root), "relu")

    assert report == decode(project.root / "reports" / "profiles" / "relu.json", Profile)
    assert [(case.case, case.bound) for case in report.cases] == [(SMALL, Bound.LATENCY)]
    assert read_profile(load(project.root), "scale") is None
    assert not (project.root / "reports" / "run.json").exists()


@pytest.mark.parametrize(
    ("work", "bound", "advice"),
    [
        ("fake.work(2.2e-6 * x.nbytes)", "memory", None),
        ("fake.work(100.0, tensor=0.9)", "compute", "more_stages"),
        ("fake.work(100.0, l2=0.9)", "l2", "larger_tiles"),
        ("fake.work(100.0, occupancy=0.1)", "occupancy", "more_warps"),
        ("fake.work(100.0, stall_barrier=0.6)", "latency", "fewer_warps"),
        ("[fake.work(1.0) for _ in range(3)]", "launch", "fuse_launches"),
    ],
)
def test_each_bound_is_found(project, work, bound, advice):
    project.edit("relu", "triton", WORK, work)

    (case,) = profile(project, "--case", "rows=256")["cases"]
    assert case["bound"] == bound
    assert advice in {None, *(advice["id"] for advice in case["advice"])}


def test_refused_counters_leave_times_and_one_sentence(project):
    (project.root / "pyproject.toml").write_text("[tool.perfci.fake]\ncounters_refused = true\n")

    report = profile(project, "--case", "rows=256")
    assert (report["source"], report["note"]["kind"]) == ("compiled", "counters_refused")
    (case,) = report["cases"]
    assert not case["counters"]
    assert (case["bound"], case["rates"]["gbps"] > 0) == ("latency", True)

    text = project.perfci("profile", "relu", "--device", "fake", "--case", "rows=256")
    assert text.code == 0
    assert "ERR_NVGPUCTRPERM" in text.out


def test_the_text_has_a_line_a_case_and_what_to_try(project):
    answer = project.perfci("profile", "relu", "--device", "fake")

    assert answer.code == 0
    assert SMALL in answer.out
    assert "latency" in answer.out
    assert "more_stages" in answer.out
    assert "reports/profiles/relu.json" in answer.out


def test_a_case_that_raises_is_named_and_the_others_are_profiled(project):
    project.edit("relu", "triton", "out = np.empty", "assert len(x) < 300\n    out = np.empty")

    sound, broken = profile(project)["cases"]
    assert sound["bound"] == "latency"
    assert (broken["bound"], broken["failure"]["kind"]) == (None, "kernel_raised")


def test_a_kernel_that_kills_the_process_is_perfcis_own_failure_with_its_reason(project):
    project.edit("relu", "triton", "out = np.empty", "fake.crash()\n    out = np.empty")

    answer = project.perfci("profile", "relu", "--device", "fake")
    assert answer.code == 1
    assert "SIGSEGV" in answer.err


def test_unknown_ops_and_cases_are_named(project):
    assert "reluu" in project.perfci("profile", "reluu", "--device", "fake").err
    assert "rows=1" in project.perfci("profile", "relu", "--device", "fake", "--case", "rows=1").err


def test_a_process_that_is_watched_makes_each_call_once_behind_untimed_ones(project):
    project.edit("relu", "triton", "out = np.empty", "print('called with', len(x))\n    out = np.empty")
    settings = load(project.root)
    cases = ("rows=512,cols=128,dtype=float32", SMALL)
    place = place_ops(settings, list_files(select(settings, ("relu",))))
    task = ProfileOp(place=place, opening=plan_opening(settings, "fake", 7), cases=cases, marks=True)
    file = project.root / "task.json"
    file.write_bytes(pack_task(task, 1))

    done = subprocess.run(
        [sys.executable, "-P", "-m", "perfci.worker.child", str(file)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=project.root,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    calls = [line for line in done.stdout.splitlines() if line.startswith("called")]
    assert calls == ["called with 512"] * (WARMING + 1) + ["called with 256"] * (WARMING + 1)


# --- rounds -----------------------------------------------------------------------------------------------------------


def try_round(project, us, *arguments):
    project.edit("relu", "triton", re.search(r"US_PER_MEGABYTE = .*", project.op_file("relu", "triton").read_text())[0],
                 f"US_PER_MEGABYTE = {us}")  # fmt: skip
    project.perfci("try", "relu", "--device", "fake", "--seed", "7", *arguments)
    return read_logbook(project.root / "kernels" / "relu").rounds[-1]


@pytest.mark.nightly
def test_the_next_round_notes_counters_and_the_advice_that_it_follows(project):
    begin_topic(project.root)

    before = try_round(project, 330.0, "--why", "load earlier")
    assert (before.advice, before.counters) == (None, {})

    profile(project)
    after = try_round(project, 340.0, "--why", "load earlier", "--advice", "more_stages")
    assert (after.verdict, after.advice) == ("slower", "more_stages")
    assert after.counters[SMALL]["occupancy"] == 0.5


@pytest.mark.nightly
def test_a_damaged_profile_costs_no_round(project):
    begin_topic(project.root)
    profile(project)
    (project.root / "reports" / "profiles" / "relu.json").write_text("{")

    assert try_round(project, 330.0, "--why", "load earlier").verdict == "slower"


# --- what is published ------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_command_prints(project):
    def shape(text):
        return re.sub(r"[\d.]+", "N", " ".join(text.split()))

    text = (Path(__file__).parents[3] / "docs" / "profile.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ perfci (.*)$", text, re.MULTILINE)
    block = text.split(f"$ perfci {command}\n")[1].split("```")[0]

    answer = project.perfci(*command.split(), "--seed", "1")
    for line in filter(None, map(str.strip, block.splitlines())):
        assert shape(line).removeprefix("Profile: ") in shape(answer.out), line
