"""Kernels that cheat, written with perfci's source open: none gets a better verdict than an honest one."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from perfci.worker.confine import landlock_version
from tests.benchmark_modules import imported
from tests.daily import first_daily
from tests.flow.cheats import merge_request, naive
from tests.flow.cheats.merge_request import BEST, Setting
from tests.flow.cheats.preludes import CALL, NUMPY, NUMPY_BASELINE, SUITE, TORCH, TORCH_BASELINE
from tests.flow.cheats.tricks import ERROR, ON_TORCH, PASS, SUSPECT, TRICKS, WRONG, Trick
from tests.program import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock"),
]

ON_FAKE = Setting(NUMPY, NUMPY_BASELINE, SUITE, CALL)
ON_CPU = Setting(TORCH, TORCH_BASELINE, SUITE, CALL, rows=(3, 16))

INTERPRETED = {
    name: (TRICKS | ON_TORCH)[name]
    for name in (
        "count_beyond_the_checks", "checker_frames_answer", "late_next_call", "code_of_the_reference", "patch_random",
        "memory_in_place", "memory_two_views_of_one_file", "memory_shrunk",
    )
}  # fmt: skip
"""Those that show in Triton's interpreter too, of each sort some. benchmarks/cheats.py plays all."""


FRAME = {"accuracy_passed", "accuracy_failed", "accuracy_case_failed", "least_wrong", "not_timed"}
"""Reasons that say where others are."""


@dataclass(frozen=True)
class Judged:
    """What perfci and a plain harness found of all ops."""

    code: int
    verdicts: dict[str, set[str]]
    kinds: dict[str, set[str]]  # of all reasons
    logs: dict[str, str]
    naive: dict[str, dict | None]


def check(root: Path, ops: Sequence[str], *options: str) -> Judged:
    """What perfci found of some ops."""
    given = ["--format", "json", "--seed", "7", "--budget", "0.05", *options, "--deadline", "3600"]
    done = call("check", *ops, *given, "--project", str(root))
    verdicts: dict[str, set[str]] = {op: set() for op in ops}
    kinds: dict[str, set[str]] = {op: set() for op in ops}
    for row in json.loads(done.out)["verdicts"]:
        verdicts[row["op"]].add(row["verdict"])
        kinds[row["op"]] |= {reason["kind"] for reason in (row["reason"], *row["also"]) if reason}
    logs = {op: (root / "reports" / "logs" / f"{op}.log").read_text() for op in ops}
    return Judged(done.code, verdicts, kinds, logs, {})


@contextlib.contextmanager
def merge_request_of(folder: Path, tricks: Mapping[str, Trick], setting: Setting) -> Iterator[None]:
    """One merge request in which every op but one begins to cheat, in the folder `project`."""
    merge_request.begin(folder / "project", {op: trick.source for op, trick in tricks.items()}, setting)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in merge_request.variables(folder).items():
            patch.setenv(name, value)
        patch.delenv("PERFCI_WRITABLE", raising=False)
        yield


def shows_its_trick(op: str, trick: Trick, judged: Judged, *more: str) -> bool:
    """Whether it played its trick, and got its verdict for that and for nothing else."""
    assert "SPRUNG" in judged.logs[op], "it did not play its trick"
    worst = next(verdict for verdict in (WRONG, ERROR, SUSPECT, PASS) if verdict in judged.verdicts[op])
    assert worst in trick.verdict.split(), judged.verdicts[op]
    shown = {kind for kind in judged.kinds[op] - FRAME if not kind.startswith("pattern_")}
    return bool(shown) and shown <= {*trick.shows.split(), *more}


# --- on the fake device -----------------------------------------------------------------------------------------------


def find_family(op: str, trick: Trick) -> str:
    """What an op's trick is about, by its name."""
    return op.partition("_")[0]


def list_asked(request) -> set[str]:
    """The tricks that the tests which run here ask for."""
    here = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    return {item.callspec.params["op"] for item in here if "op" in item.callspec.params}


@pytest.fixture(scope="module")
def judged(request, tmp_path_factory) -> Judged:
    """One of each family, or each night the others."""
    tricks = {op: trick for op, trick in TRICKS.items() if op in list_asked(request)}
    folder = tmp_path_factory.mktemp("cheats")
    root, base = folder / "project", folder / "base"
    command = [sys.executable, naive.__file__, "judge", "fake", str(root / "kernels"), str(base), BEST, *tricks]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "env": merge_request.variables(folder)}
    # The plain harness waits more than it works, so it goes beside the checks.
    with (
        merge_request_of(folder, tricks, ON_FAKE),
        subprocess.Popen(command, **pipes, text=True) as plain,
    ):
        checked = check(root, [BEST, *tricks], "--device", "fake")
        printed, _ = plain.communicate()
    harness = dict(line.split(" ", 1) for line in printed.splitlines())
    return replace(checked, naive={op: json.loads(text) for op, text in harness.items()})


def test_the_honest_kernel_passes_and_the_others_fail_the_gate(judged):
    assert judged.verdicts[BEST] == {PASS, "UNCHANGED"}
    assert judged.naive[BEST] == {"right": True, "ratio": 1.0}
    assert judged.code == 2


@pytest.mark.parametrize(("op", "trick"), first_daily(TRICKS.items(), kind=find_family, name=lambda op, _: op))
def test_a_cheat_gets_no_better_verdict_than_an_honest_kernel(op, trick, judged):
    assert shows_its_trick(op, trick, judged), judged.kinds[op]
    assert "IMPROVED" not in judged.verdicts[op]
    if trick.verdict == PASS:
        assert judged.verdicts[op] <= judged.verdicts[BEST]


@pytest.mark.parametrize(
    ("op", "trick"),
    first_daily((one for one in TRICKS.items() if one[1].naive), kind=find_family, name=lambda op, _: op),
)
def test_a_plain_harness_takes_the_same_cheat_for_right_and_fast(op, trick, judged):
    harness = judged.naive[op]

    assert harness["right"] is True
    assert harness["ratio"] < 0.9


# --- on torch ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreted(request, tmp_path_factory) -> Judged:
    tricks = {op: trick for op, trick in INTERPRETED.items() if op in list_asked(request)}
    folder = tmp_path_factory.mktemp("cheats")
    with merge_request_of(folder, tricks, ON_CPU):
        return check(folder / "project", (BEST, *tricks), "--device", "cpu", "--suite", "accuracy")


@pytest.mark.torch
def test_the_honest_kernel_is_right_in_the_interpreter(interpreted):
    assert interpreted.verdicts[BEST] == {PASS}


@pytest.mark.torch
@pytest.mark.parametrize(
    "op", first_daily(((op,) for op in INTERPRETED), kind=lambda op: op.partition("_")[0], name=str)
)
def test_a_cheat_is_wrong_in_the_interpreter(op, interpreted):
    # What a cheap kernel leaves out there still holds what perfci filled it with.
    assert shows_its_trick(op, INTERPRETED[op], interpreted, "not_written"), interpreted.kinds[op]


@pytest.mark.cuda
def test_none_of_the_sixty_gets_a_better_verdict_on_a_gpu(pytestconfig):
    command = [sys.executable, "benchmarks/cheats.py", "--device", "cuda", "--jobs", "6"]

    done = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


# --- what counts as better --------------------------------------------------------------------------------------------


@pytest.fixture
def found(pytestconfig, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with imported(pytestconfig.rootpath / "benchmarks", "cheats") as modules:

        def find(*verdicts: str, times: Sequence[float] = (), alone: bool = True):
            rows = [{"verdict": verdicts[-1], "kernel_us": time_, "base_us": 1.0} for time_ in times]
            return modules.cheats.Found("op", "what", verdicts=[*verdicts], rows=rows, alone=alone)

        yield find


def test_a_verdict_is_better_if_it_is_improved_or_passes_in_less_than_the_honest_time(found):
    honest = found(PASS, times=[1.0, 0.98])

    assert found(PASS, "IMPROVED", times=[1.0]).is_better(honest, "cuda")
    assert found(PASS, times=[1.0, 0.9]).is_better(honest, "cuda")
    assert not found(PASS, times=[0.97]).is_better(honest, "cuda")
    assert not found(PASS, WRONG, times=[0.5]).is_better(honest, "cuda")
    assert not found(PASS).is_better(honest, "cuda")


def test_on_the_cpu_a_verdict_is_better_if_it_passes_a_kernel_that_is_wrong_for_its_user(found):
    honest = found(PASS)

    assert found(PASS, "UNCHANGED", alone=False).is_better(honest, "cpu")
    assert not found(PASS, "UNCHANGED").is_better(honest, "cpu")
    assert not found(PASS, WRONG, alone=False).is_better(honest, "cpu")
