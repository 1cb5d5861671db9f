"""The test device itself: what the tests of perfci on it take for granted."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = TEXTS["program"]


def test_the_device_computes_keeps_time_and_memory_and_runs_kernels_that_triton_compiled(npu, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")

    done = run(npu | {"NPU_STAND_IN_LACKS": "erfinv"}, tmp_path / "program.py")

    assert done.stdout == "all of it\n", done.stderr
    assert "'aten::erfinv' is not currently supported on the NPU backend" in done.stderr


def test_without_cann_importing_torch_fails_unless_plugins_are_switched_off(npu):
    bare = npu | {"NPU_STAND_IN_CANN": "missing"}

    assert "Failed to load the backend extension: torch_npu" in run(bare, "-c", "import torch").stderr
    assert run(bare | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "-c", "import torch").returncode == 0


def run(environment, *arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
