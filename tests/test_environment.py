import dataclasses
import sys
from pathlib import Path

import pytest

from perfci.environment import describe, differences, installed, telling, worker_environment
from perfci.model import Device, Environment, Reason

DEVICE = Device("cuda", "NVIDIA H200", "nvidia-h200", uuid="GPU-1", driver="580.1")
ENVIRONMENT = Environment(DEVICE, "activity", "3.11.7", {"torch": "2.11.0", "triton": "3.6.0"}, "host", "Linux")

BASE = {
    "PATH": "/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "LD_LIBRARY_PATH": "/lib",
    "CUDA_VISIBLE_DEVICES": "1",
    "ASCEND_HOME_PATH": "/ascend",
    "TRITON_PRINT_AUTOTUNING": "1",
    "TRITON_INTERPRET": "1",
    "TRITON_CACHE_DIR": "/shared",
    "PYTHONPATH": "/src",
    "CI": "true",
    "CI_JOB_TOKEN": "hidden",
    "CI_COMMIT_MESSAGE": "text",
    "TRITON_API_KEY": "hidden",
    "CUDA_PASSWORD": "hidden",
    "TORCH_INDEX": "https://user:hidden@example.org/simple",
    "SSH_AUTH_SOCK": "/socket",
    "MY_FLAG": "on",
    "MY_TOKEN": "hidden",
}


def worker(*extra: str, interpret: bool = False) -> dict[str, str]:
    return worker_environment(BASE, extra, interpret, Path("/cache"))


def test_workers_see_what_is_allowed_and_nothing_else():
    assert worker() == {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "LD_LIBRARY_PATH": "/lib",
        "CUDA_VISIBLE_DEVICES": "1",
        "ASCEND_HOME_PATH": "/ascend",
        "TRITON_PRINT_AUTOTUNING": "1",
        "PYTHONPATH": "/src",
        "CI": "true",
        "TRITON_CACHE_DIR": "/cache/triton",
        "TORCHINDUCTOR_CACHE_DIR": "/cache/inductor",
        "TRITON_DISABLE_LINE_INFO": "1",
    }


def test_a_project_may_allow_more_but_never_a_secret():
    found = worker("MY_FLAG", "MY_TOKEN", "CI_JOB_TOKEN")

    assert found["MY_FLAG"] == "on"
    assert "hidden" not in "".join(found.values())


def test_an_interpreting_worker_is_told_so_and_keeps_to_one_thread():
    found = worker(interpret=True)

    assert found["TRITON_INTERPRET"] == "1"
    assert found["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert found["OMP_NUM_THREADS"] == "1"


def test_an_exported_interpreter_never_reaches_a_worker_that_measures():
    assert "TRITON_INTERPRET" not in worker(interpret=False)


def test_an_allowed_cache_is_still_the_workers_own():
    assert worker("TRITON_CACHE_DIR")["TRITON_CACHE_DIR"] == "/cache/triton"


@pytest.mark.parametrize("interpret", [False, True])
def test_workers_compile_without_line_information_whatever_the_shell_says(interpret):
    found = worker_environment(
        {"TRITON_DISABLE_LINE_INFO": "0"}, ["TRITON_DISABLE_LINE_INFO"], interpret, Path("/cache")
    )

    assert found["TRITON_DISABLE_LINE_INFO"] == "1"


def test_recorded_variables_are_those_that_tell_something():
    found = telling({**BASE, "CUDA_LAUNCH_BLOCKING": "1"})

    assert found["CUDA_LAUNCH_BLOCKING"] == "1"
    assert found["TRITON_INTERPRET"] == "1"
    assert "PATH" not in found
    assert "hidden" not in "".join(found.values())


def test_versions_are_read_without_importing_the_packages():
    before = set(sys.modules)

    assert installed(["numpy", "no-such-distribution"]).keys() == {"numpy"}
    assert not {"torch", "triton"} & (set(sys.modules) - before)


def test_a_description_holds_host_python_and_versions(tmp_path):
    found = describe(DEVICE, "activity", tmp_path, {"TRITON_DEBUG": "1"})

    assert found.device == DEVICE
    assert found.timer == "activity"
    assert found.python.count(".") == 2
    assert "numpy" in found.packages
    assert found.variables == {"TRITON_DEBUG": "1"}


def test_outside_a_repository_no_commit_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    found = describe(DEVICE, None, tmp_path, {})

    assert (found.commit, found.branch, found.dirty) == (None, None, False)


def test_alike_environments_have_no_differences():
    other = dataclasses.replace(ENVIRONMENT, host="elsewhere", commit="abc", dirty=True, branch="topic")

    assert differences(ENVIRONMENT, other) == ()


@pytest.mark.parametrize(
    ("change", "field", "before", "after"),
    [
        ({"timer": "event"}, "timer", "activity", "event"),
        ({"device": dataclasses.replace(DEVICE, driver="590")}, "device.driver", "580.1", "590"),
        ({"device": dataclasses.replace(DEVICE, uuid="GPU-2")}, "device.uuid", "GPU-1", "GPU-2"),
        ({"packages": {"torch": "2.12.0", "triton": "3.6.0"}}, "packages.torch", "2.11.0", "2.12.0"),
        ({"packages": {"torch": "2.11.0"}}, "packages.triton", "3.6.0", None),
        ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "variables.CUDA_LAUNCH_BLOCKING", None, "1"),
    ],
)
def test_each_difference_is_named_with_both_values(change, field, before, after):
    found = differences(ENVIRONMENT, dataclasses.replace(ENVIRONMENT, **change))

    assert found == (Reason("environment_differs", {"field": field, "before": before, "after": after}),)
