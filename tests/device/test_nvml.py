"""The management library is scripted: what perfci makes of its answers is the same everywhere."""

import os
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from perfci.core.model import DeviceState
from perfci.device.nvml import NvmlBoard


class Library:
    """Replaces pynvml: answers by function name, and raises an answer that is an exception."""

    answers: ClassVar = {
        "nvmlInit": None,
        "nvmlDeviceGetHandleByUUID": "handle",
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlSystemGetDriverVersion": "580.65",
        "nvmlDeviceGetUUID": "GPU-1234",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPowerUsage": 612_500,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x1,
        "nvmlDeviceGetComputeRunningProcesses": [],
    }

    def __init__(self, **changes):
        self.calls = []
        self._answers = {**self.answers, **changes}

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            answer = self._answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def board(monkeypatch):
    def make(uuid=None, **changes):
        library = Library(**changes)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return NvmlBoard(uuid), library

    return make


def processes(*pids):
    return [SimpleNamespace(pid=pid) for pid in pids]


def test_a_boards_state_is_read_in_the_models_units(board):
    device, _ = board()

    assert device.state() == DeviceState(1980, 1980, 61, 612.5, ("power_cap",), 0)
    assert (device.name(), device.driver(), device.uuid()) == ("NVIDIA H200", "580.65", "GPU-1234")


def test_a_reading_that_fails_is_none_and_costs_no_other(board):
    device, _ = board(nvmlDeviceGetPowerUsage=RuntimeError("not supported"), nvmlDeviceGetName=RuntimeError())

    assert device.state().power_w is None
    assert device.state().temperature_c == 61
    assert device.name() is None


@pytest.mark.parametrize("missing", ["library", "driver"])
def test_without_library_or_driver_nothing_is_known_and_nothing_raised(board, monkeypatch, missing):
    device, _ = board(nvmlInit=RuntimeError("driver not loaded"))
    if missing == "library":
        monkeypatch.setitem(sys.modules, "pynvml", None)
        device = NvmlBoard()

    assert device.state() == DeviceState()
    assert (device.driver(), device.uuid(), device.name()) == (None, None, None)


@pytest.mark.parametrize(
    ("pids", "foreign"),
    [
        ((), 0),
        ((os.getpid(),), 0),
        ((os.getpid(), 1), 1),
        ((999_999_999,), 0),  # this process, under its number on the host
        ((999_999_999, 999_999_998), 1),
    ],
)
def test_foreign_processes_are_all_but_this_one_even_in_a_container(board, pids, foreign):
    device, _ = board(nvmlDeviceGetComputeRunningProcesses=processes(*pids))

    assert device.state().foreign_processes == foreign


# --- the limits of a board --------------------------------------------------------------------------------------------

POWER = {"nvmlDeviceGetEnforcedPowerLimit": 700_000, "nvmlDeviceGetPowerManagementDefaultLimit": 700_000}


@pytest.mark.parametrize(("limit", "key"), [(450_000, "nvidia-h200-450w"), (700_400, "nvidia-h200")])
def test_a_board_held_to_other_power_is_a_device_of_its_own(board, limit, key):
    device, _ = board(**{**POWER, "nvmlDeviceGetEnforcedPowerLimit": limit})

    assert device.key("NVIDIA H200", 132) == key


@pytest.mark.parametrize(
    ("answers", "name", "mig"),
    [
        ({}, "NVIDIA H200 MIG 1g.18gb", "1g.18gb"),
        ({"nvmlDeviceGetName": "NVIDIA H200 MIG 2g.35gb"}, "NVIDIA H200", "2g.35gb"),
        (
            {
                "nvmlDeviceIsMigDeviceHandle": 1,
                "nvmlDeviceGetAttributes": SimpleNamespace(gpuInstanceSliceCount=1, memorySizeMB=18_000),
            },
            "NVIDIA H200",
            "1g.18gb",
        ),
        ({"nvmlDeviceIsMigDeviceHandle": 1}, "NVIDIA H200", "16sm"),
        ({"nvmlDeviceGetMigMode": [1, 1]}, "NVIDIA H200", "16sm"),
        ({"nvmlDeviceGetMigMode": [0, 1]}, "NVIDIA H200", None),
    ],
    ids=["in the runtime's name", "in the library's name", "by its share", "share unknown", "board divided", "not yet"],
)
def test_a_slice_of_a_board_is_a_device_of_its_own(board, answers, name, mig):
    device, _ = board(**answers)

    assert device.mig(name, 16) == mig
    assert device.key(name, 16) == (f"nvidia-h200-mig-{mig}" if mig else "nvidia-h200")
