"""What stands in an NPU's way, among the findings of `perfci doctor`."""

import dataclasses
from pathlib import Path

import pytest

from perfci import git
from perfci.core.model import Device, DeviceState, Reason
from perfci.extensions.doctor.machine import Facts, Level, examine
from perfci.extensions.npu.host import NpuHost
from perfci.extensions.npu.smi import NpuChip, NpuPlace, NpuProcess, NpuTable

B2 = Device("npu", "Ascend910B2", "ascend910b2", driver="25.5.1", runtime="CANN 8.5.0")
HOST = NpuHost(
    packages={"torch": "2.6.0+cpu", "torch-npu": "2.6.0", "triton-ascend": "3.2.0", "pybind11": "3.0"},
    nodes=("/dev/davinci0",),
    home=str(Path(__file__).parent),
    triton_backends=("ascend",),
    table=NpuTable("25.5.1", (NpuChip(NpuPlace(0), "910B2", "OK"),), ()),
    place=NpuPlace(0),
    has_cann=True,
)
ASCEND = Facts(
    landlock=6,
    fenced=True,
    isolated=True,
    python="3.11.7",
    packages={"torch": "2.6.0+cpu", "torch-npu": "2.6.0", "triton-ascend": "3.2.0", "numpy": "1.26.4"},
    device=B2,
    state=DeviceState(sm_clock_mhz=1800, temperature_c=47, power_w=93.4, foreign_processes=0),
    timer="activity",
    looks=(HOST,),
    here=git.Revision(Path("/project"), "0123456789abcdef", "main", dirty=False),
    lock_folder="/var/lock",
    reports="/project/reports",
)


def of_npu(level: Level | None = None, npu: dict | None = None, **changes: object) -> set[str]:
    facts = dataclasses.replace(ASCEND, looks=(dataclasses.replace(HOST, **(npu or {})),), **changes)
    return {finding.reason.kind for finding in examine(facts) if level in {None, finding.level}}


def test_a_healthy_npu_has_nothing_to_mend_and_its_clock_is_that_of_its_cores():
    assert of_npu(Level.PROBLEM) == of_npu(Level.NOTE) == set()
    assert {"doctor_device", "doctor_npu_state", "doctor_timer"} <= of_npu(Level.OK)


def test_traps_of_npus_are_findings():
    assert of_npu(Level.PROBLEM, {"variables": {"ASCEND_LAUNCH_BLOCKING": "1"}}) == {"doctor_launch_blocking"}
    unset, shut = {"home": None, "found": "/usr/local/Ascend/cann"}, {"device": None, "state": None, "timer": None}
    assert of_npu(Level.PROBLEM, unset, **shut) == {"doctor_npu_cann_unset"}
    assert of_npu(Level.PROBLEM, unset) == set()  # the device was opened all the same


def test_what_opening_the_device_said_already_is_not_said_twice():
    shut = dataclasses.replace(HOST, shut=("/dev/davinci0",))
    facts = dataclasses.replace(ASCEND, looks=(shut,), device_failure=Reason("npu_no_permission"))

    assert [finding.reason.kind for finding in examine(facts)].count("npu_no_permission") == 1


def test_processes_of_others_are_counted_once_whether_or_not_the_device_could_be_opened():
    others = {"table": NpuTable("25.5.1", (NpuChip(NpuPlace(0), "910B2", "OK"),), (NpuProcess(NpuPlace(0), 1),))}

    assert of_npu(Level.PROBLEM, others, state=DeviceState(foreign_processes=1)) == {"doctor_foreign"}
    failed = of_npu(Level.PROBLEM, others, state=None, device=None, device_failure=Reason("npu_busy"))
    assert failed == {"doctor_npu_taken", "npu_busy"}


def test_events_of_an_npu_are_explained_by_what_an_npu_needs():
    assert "doctor_npu_timer_events" in of_npu(Level.NOTE, timer="event")


def test_a_cpu_build_of_torch_is_right_for_an_npu_beside_a_gpu():
    assert "doctor_torch_without_cuda" not in of_npu(has_nvidia=True)
    assert "doctor_npu_and_gpu" in of_npu(Level.NOTE, {"has_gpu": True})


def test_a_compiler_for_npus_that_is_a_package_of_its_own_stands_beside_triton():
    both = dict(ASCEND.packages) | {"triton": "3.7.1"}

    assert "doctor_two_tritons" in of_npu(Level.PROBLEM, packages=both)
    assert "doctor_two_tritons" not in of_npu(Level.PROBLEM, {"triton_plugged": True}, packages=both)


@pytest.mark.parametrize(
    ("npu", "variables"), [({}, {}), ({"has_cann": False}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})]
)
def test_torch_npu_with_its_toolkit_or_with_autoload_off_is_fine(npu, variables):
    assert "doctor_npu_without_cann" in of_npu(Level.PROBLEM, {"has_cann": False})
    assert of_npu(Level.PROBLEM, npu, variables=variables) == set()
