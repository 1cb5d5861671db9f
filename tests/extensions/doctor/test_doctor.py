import dataclasses
from pathlib import Path

import pytest

from perfci.core.model import Device, DeviceState, Reason
from perfci.core.settings import load
from perfci.core.wording import catalogue, sentence
from perfci.extensions.doctor import machine as doctor
from perfci.extensions.doctor.machine import CPU_INDEX, Facts, Level, examine, gather, is_writable
from perfci.git import Revision

H200 = Device("cuda", "NVIDIA H200", "nvidia-h200", driver="580.1", runtime="CUDA 13.0")
CLEAN = Revision(Path("/project"), "0123456789abcdef", "main", dirty=False)
DIRTY = dataclasses.replace(CLEAN, dirty=True)
HEALTHY = Facts(
    python="3.12.1",
    packages={"torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.5", "nvidia-ml-py": "13.6"},
    device=H200,
    state=DeviceState(sm_clock_mhz=1980, temperature_c=40, power_w=120.0, throttle=("power_cap",), foreign_processes=0),
    timer="activity",
    has_nvidia=True,
    landlock=6,
    fenced=True,
    isolated=True,
    here=CLEAN,
    lock_folder="/var/lock",
    reports="/project/reports",
)
BARE = Facts(python="3.11.7", packages={"torch": "2.13.0+cpu", "triton": "3.7.1", "numpy": "2.4.6"}, here=CLEAN)


def kinds(facts: Facts, level: Level | None = None) -> set[str]:
    return {finding.reason.kind for finding in examine(facts) if level in {None, finding.level}}


def test_a_quarantined_board_is_named_whatever_the_spelling():
    device = dataclasses.replace(H200, uuid="GPU-1D0B-2A77")

    assert "doctor_quarantined" in notes(device=device, quarantine=("gpu-1d0b-2a77",))
    assert "doctor_quarantined" not in notes(device=device, quarantine=("GPU-9",))
    assert "doctor_quarantined" not in notes(quarantine=("GPU-9",))


def test_a_sick_board_and_memory_errors_are_problems():
    device = dataclasses.replace(H200, uuid="GPU-1D0B-2A77")
    state = dataclasses.replace(HEALTHY.state, ecc_errors=3)

    assert "doctor_board_sick" in problems(device=device, sick=("gpu-1d0b-2a77",))
    assert "doctor_board_sick" not in problems(device=device, sick=("GPU-9",))
    assert "ecc_errors" in problems(state=state)


def problems(**changes: object) -> set[str]:
    return kinds(dataclasses.replace(HEALTHY, **changes), Level.PROBLEM)


def notes(**changes: object) -> set[str]:
    return kinds(dataclasses.replace(HEALTHY, **changes), Level.NOTE)


def packages(**changes: str | None) -> dict[str, str]:
    mixed = dict(HEALTHY.packages) | {name.replace("_", "-"): version for name, version in changes.items()}
    return {name: version for name, version in mixed.items() if version is not None}


def test_a_healthy_machine_has_nothing_to_mend():
    assert {finding.level for finding in examine(HEALTHY)} == {Level.OK}
    assert kinds(HEALTHY) == {
        "doctor_torch", "doctor_triton", "doctor_device", "doctor_timer", "doctor_state", "doctor_isolated",
        "doctor_commit",
        "doctor_reports",
    }  # fmt: skip


@pytest.mark.parametrize(("has_nvidia", "command"), [(False, f"--extra-index-url {CPU_INDEX}"), (True, "nvidia-ml-py")])
def test_without_torch_and_triton_there_is_one_remedy_and_nothing_else_is_missed(has_nvidia, command):
    nothing = dataclasses.replace(
        BARE, packages={"numpy": "2.4.6"}, has_nvidia=has_nvidia, device_failure=Reason("torch_missing"), landlock=6,
        fenced=True,
    )  # fmt: skip
    [finding] = [one for one in examine(nothing) if one.level is not Level.OK]

    assert (finding.level, finding.reason.kind) == (Level.PROBLEM, "doctor_no_toolchain")
    assert f"pip install torch triton {command}" in sentence(finding.reason)


def test_a_bare_machine_is_told_what_it_cannot_do():
    assert kinds(BARE, Level.PROBLEM) == set()
    assert kinds(BARE, Level.NOTE) == {"doctor_no_device", "doctor_unconfined"}
    assert "doctor_unfenced" in kinds(dataclasses.replace(BARE, landlock=1), Level.NOTE)
    assert "doctor_confined" in kinds(dataclasses.replace(BARE, landlock=1, fenced=True), Level.OK)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"packages": packages(torch=None)}, "doctor_no_torch"),
        ({"packages": packages(torch="2.13.0+cpu")}, "doctor_torch_without_cuda"),
        ({"packages": packages(triton=None)}, "doctor_no_triton"),
        ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "doctor_launch_blocking"),
        ({"device": None}, "doctor_device_unseen"),
        ({"device_failure": Reason("cuda_unavailable")}, "cuda_unavailable"),
        ({"state": DeviceState(throttle=("thermal",))}, "doctor_throttled"),
        ({"state": DeviceState(throttle=("power_cap", "power_brake"))}, "doctor_throttled"),
        ({"state": DeviceState(foreign_processes=2)}, "doctor_foreign"),
        ({"lock_writable": False}, "lock_unwritable"),
        ({"lock_displaced": Reason("lock_displaced", {"wanted": "TMPDIR=/gone", "folder": "/tmp"})}, "lock_displaced"),
        ({"reports_writable": False}, "doctor_reports_unwritable"),
    ],
)
def test_each_trap_is_a_problem(changes, kind):
    assert problems(**changes) == {kind}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"packages": packages(nvidia_ml_py=None)}, "doctor_no_nvml"),
        ({"packages": packages(numpy="2.5.2")}, "doctor_numpy_too_new"),
        ({"variables": {"TRITON_INTERPRET": "1"}}, "doctor_interpret"),
        ({"timer": "event"}, "doctor_timer_events"),
        ({"slow_start": Reason("workers_anew")}, "workers_anew"),
        ({"here": Reason("git_missing")}, "git_missing"),
        ({"here": dataclasses.replace(CLEAN, commit=None)}, "doctor_no_commit"),
        ({"here": DIRTY}, "doctor_dirty"),
        ({"lock_shared": False}, "doctor_lock_in_container"),
    ],
)
def test_each_thing_worth_knowing_is_a_note(changes, kind):
    assert notes(**changes) == {kind}


@pytest.mark.parametrize(
    ("triton", "numpy", "bad"),
    [("3.6.0", "2.4.0", True), ("3.6.0", "2.3.5", False), ("3.7.1", "2.4.6", False), ("3.2.0", "2.10.0", True)],
)
def test_old_triton_cannot_interpret_with_new_numpy(triton, numpy, bad):
    facts = dataclasses.replace(BARE, packages={"torch": "2.13.0+cpu", "triton": triton, "numpy": numpy})

    assert ("doctor_numpy_too_new" in kinds(facts, Level.PROBLEM)) == bad


def test_a_variable_set_to_nothing_or_nought_is_no_trap():
    for value in ("", "0"):
        variables = {"CUDA_LAUNCH_BLOCKING": value, "TRITON_INTERPRET": value}
        assert problems(variables=variables) | notes(variables=variables) == set()


def test_the_ordinary_power_cap_is_no_problem():
    assert problems(state=DeviceState(throttle=("power_cap", "sync_boost"))) == set()


def test_every_finding_has_a_sentence():
    facts = [HEALTHY, BARE, dataclasses.replace(HEALTHY, packages={}, device=None, here=DIRTY, reports_writable=False)]

    for finding in (finding for fact in facts for finding in examine(fact)):
        assert finding.reason.kind in catalogue()
        assert "-" not in sentence(finding.reason).split()


def test_gathering_looks_at_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "kernels").mkdir()

    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("MY_TOKEN", "hidden")
    monkeypatch.setattr(doctor, "run_worker", lambda *_: Reason("cuda_unavailable"))

    facts = gather(load(tmp_path), "auto", lambda _: None)

    assert facts.variables["CUDA_LAUNCH_BLOCKING"] == "1"
    assert "MY_TOKEN" not in facts.variables
    assert facts.device_failure == Reason("cuda_unavailable")
    assert facts.here == Reason("no_repository", {"folder": str(tmp_path)})
    assert facts.reports == str(tmp_path / "reports")
    assert facts.reports_writable
    assert "numpy" in facts.packages


def test_a_file_where_a_folder_should_be_is_not_writable(tmp_path):
    (tmp_path / "reports").write_text("")

    assert not is_writable(tmp_path / "reports")
    assert not is_writable(tmp_path / "reports" / "deeper")
    assert is_writable(tmp_path / "new" / "deeper")
    assert list(tmp_path.iterdir()) == [tmp_path / "reports"], "asking leaves nothing behind"


def test_a_place_that_nobody_can_write_is_not_writable_for_root_either():
    assert not is_writable(Path("/sys/perfci"))
