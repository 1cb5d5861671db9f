import dataclasses
from pathlib import Path

import pytest

from perfci.core.environment import differences, find_newest, telling, unmixable
from perfci.core.model import BaselineRun, Bearing, Device, Difference, Environment
from perfci.core.variables import OWN, worker_environment

DEVICE = Device("cuda", "NVIDIA H200", "nvidia-h200", "GPU-1", "580.1", "CUDA 13.0", memory_bytes=4)
PACKAGES = {"torch": "2.11.0", "triton": "3.6.0"}
ENVIRONMENT = Environment(DEVICE, "activity", "3.11.7", PACKAGES, "host", "Linux")

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
    "CUTE_DSL_ARCH": "sm_90a",
    "CUTE_DSL_CACHE_DIR": "/shared",
    "CUTE_DSL_DUMP_DIR": "/shared",
    "HELION_AUTOTUNE_EFFORT": "none",
    "HELION_INTERPRET": "1",
    "HELION_LLM_API_KEY": "hidden",
    "HELION_LLM_EXTRA_HEADERS": '{"Authorization": "hidden"}',
    "TILELANG_DEFAULT_TARGET": "cuda",
    "TL_CUTLASS_PATH": "/cutlass",
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
        "CUTE_DSL_ARCH": "sm_90a",
        "HELION_AUTOTUNE_EFFORT": "none",
        "TILELANG_DEFAULT_TARGET": "cuda",
        "TL_CUTLASS_PATH": "/cutlass",
        "PYTHONPATH": "/src",
        "CI": "true",
        **{name: f"/cache/{folder}" for name, folder in OWN.items()},
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_CACHE_AUTOTUNING": "1",
    }


def test_a_project_may_allow_more_but_never_a_secret():
    told = worker("MY_FLAG", "MY_TOKEN", "CI_JOB_TOKEN")

    assert told["MY_FLAG"] == "on"
    assert "hidden" not in "".join(told.values())


def test_recorded_variables_are_those_that_tell_something():
    told = telling({**BASE, "CUDA_LAUNCH_BLOCKING": "1"})

    assert told["CUDA_LAUNCH_BLOCKING"] == "1"
    assert told["CUTE_DSL_ARCH"] == "sm_90a"
    assert told["TRITON_INTERPRET"] == "1"
    assert "PATH" not in told
    assert "hidden" not in "".join(told.values())


# --- two environments -------------------------------------------------------------------------------------------------


def changed(**changes):
    return dataclasses.replace(ENVIRONMENT, **changes)


def on(**changes):
    return changed(device=dataclasses.replace(DEVICE, **changes))


@pytest.mark.parametrize(
    ("now", "field", "before", "after", "bearing"),
    [
        (changed(timer="event"), "timer", "activity", "event", Bearing.APART),
        (on(key="nvidia-h200-450w"), "device.key", "nvidia-h200", "nvidia-h200-450w", Bearing.APART),
        (on(driver="590"), "device.driver", "580.1", "590", Bearing.MOVES),
        (on(runtime="CUDA 13.1"), "device.runtime", "CUDA 13.0", "CUDA 13.1", Bearing.MOVES),
        (on(memory_bytes=5), "device.memory_bytes", "4", "5", Bearing.MOVES),
        (on(uuid="GPU-2"), "device.uuid", "GPU-1", "GPU-2", Bearing.BOARD),
        (changed(packages={"torch": "2.12.0", "triton": "3.6.0"}), "packages.torch", "2.11.0", "2.12.0", Bearing.MOVES),
        (changed(packages={"torch": "2.11.0"}), "packages.triton", "3.6.0", None, Bearing.MOVES),
        (changed(packages={**PACKAGES, "numpy": "2.5"}), "packages.numpy", None, "2.5", Bearing.NAMED),
        (changed(packages={**PACKAGES, "perfci": "0.2"}), "packages.perfci", None, "0.2", Bearing.NAMED),
        (changed(python="3.12.1"), "python", "3.11.7", "3.12.1", Bearing.MOVES),
        (changed(python="3.11.9"), "python", "3.11.7", "3.11.9", Bearing.NAMED),
        (changed(host="elsewhere"), "host", "host", "elsewhere", Bearing.NAMED),
        (changed(system="Linux 7"), "system", "Linux", "Linux 7", Bearing.NAMED),
        (
            changed(variables={"CUBLAS_WORKSPACE_CONFIG": ":8"}),
            "variables.CUBLAS_WORKSPACE_CONFIG",
            None,
            ":8",
            Bearing.MOVES,
        ),
        (changed(variables={"TRITON_PTXAS_PATH": "/b"}), "variables.TRITON_PTXAS_PATH", None, "/b", Bearing.MOVES),
        (changed(variables={"CUDA_VISIBLE_DEVICES": "3"}), "variables.CUDA_VISIBLE_DEVICES", None, "3", Bearing.NAMED),
        (changed(variables={"TRITON_CACHE_DIR": "/c"}), "variables.TRITON_CACHE_DIR", None, "/c", Bearing.NAMED),
        (changed(variables={"CUTE_DSL_ARCH": "sm_90a"}), "variables.CUTE_DSL_ARCH", None, "sm_90a", Bearing.MOVES),
        (changed(variables={"CUTE_DSL_DUMP_DIR": "/c"}), "variables.CUTE_DSL_DUMP_DIR", None, "/c", Bearing.NAMED),
    ],
)
def test_each_difference_has_both_values_and_what_it_means(now, field, before, after, bearing):
    (difference,) = differences([ENVIRONMENT], now)

    assert difference == Difference(field, before, after, bearing)
    assert difference.moves is (bearing is not Bearing.NAMED)


def test_what_a_device_did_not_tell_is_no_difference():
    assert differences([ENVIRONMENT], on(driver=None, runtime=None)) == ()
    assert differences([on(driver=None)], ENVIRONMENT) == ()


def test_of_several_environments_one_that_agrees_is_enough():
    boards = [ENVIRONMENT, on(uuid="GPU-2")]

    assert differences(boards, on(uuid="GPU-2")) == ()
    (difference,) = differences(boards, on(uuid="GPU-3"))
    assert (difference.before, difference.after) == ("GPU-1, GPU-2", "GPU-3")


def test_what_may_move_a_number_comes_first():
    every = differences([ENVIRONMENT], changed(host="elsewhere", variables={"TRITON_F32_DEFAULT": "ieee"}))

    assert [difference.field for difference in every] == ["variables.TRITON_F32_DEFAULT", "host"]


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (on(uuid="GPU-2"), []),
        (changed(host="elsewhere", python="3.11.9"), []),
        (on(driver="590"), ["device.driver"]),
        (changed(packages={"torch": "2.12.0", "triton": "3.6.0"}), ["packages.torch"]),
    ],
)
def test_runs_of_several_boards_make_one_baseline_those_of_several_environments_do_not(other, fields):
    assert [difference.field for difference in unmixable(ENVIRONMENT, other)] == fields


def test_a_run_that_a_wrong_clock_dates_in_the_future_is_not_the_newest():
    runs = [BaselineRun(f"r{year}", f"{year}-01-01T00:00:00Z", ENVIRONMENT) for year in (2020, 2999, 2021)]

    assert find_newest(runs).id == "r2021"
    assert find_newest(runs[1:2]).id == "r2999"
