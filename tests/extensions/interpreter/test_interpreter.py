"""Triton's interpreter answers like a GPU: by known answers, and by compiled kernels if there is a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extensions.interpreter.interpreter_table import REFUSED, ROWS, bits

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
TABLE = Path(__file__).with_name("interpreter_table.py")


def run(device):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", TABLE, device],
        env=environment, capture_output=True, text=True, check=False, cwd=TABLE.parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def interpreted():
    return run("cpu")


@pytest.fixture(scope="module")
def compiled():
    return run("cuda")


def agree(got, wanted, ulps):
    near = [
        one == other if "nan" in (one, other) else abs(one - other) <= ulps
        for one, other in zip(got, wanted, strict=True)
    ]
    return all(near)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_interpreter_answers_as_the_hardware_is_known_to(row, interpreted):
    wide = torch.tensor(row.answer, dtype=torch.float64 if "float" in (row.out or row.dtype) else torch.int64)
    wanted = bits(wide.to(getattr(torch, row.out or row.dtype)))

    assert agree(interpreted[row.name], wanted, row.ulps)


def test_what_the_interpreter_cannot_run_is_named(interpreted):
    assert interpreted["refused"] == list(REFUSED.values())


def test_wrappers_that_choose_a_grid_by_the_processors_of_a_gpu_run(interpreted):
    assert interpreted["processors"] > 1


@pytest.mark.cuda
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_interpreter_answers_as_the_compiled_kernel(row, interpreted, compiled):
    assert agree(interpreted[row.name], compiled[row.name], row.ulps)


@pytest.mark.nightly
def test_other_names_of_the_languages_functions_are_called_and_compile_afterwards(tmp_path):
    (tmp_path / "named.py").write_text(
        "import triton, triton.language as tl\n"
        "root = tl.sqrt\n"
        "@triton.jit\ndef helper(x):\n    return root(x)\n"
        "@triton.jit\ndef kernel(out, x):\n    tl.store(out, helper(x) + root(x))\n"
    )
    code = (
        "import torch, triton.language as tl; from perfci.device import open_device; open_device('cpu', seed=0)\n"
        "import named\n"
        "out = torch.zeros(1)\n"
        "for _ in range(3): named.kernel[(1,)](out, 4.0)\n"
        "print(out.item(), tl.core.is_builtin(named.root))"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr[-500:]) == ("4.0 True\n", "")


def test_a_file_may_have_functions_by_any_name_beside_its_kernels(tmp_path):
    """Functions of the interpreter's come into the globals of a kernel's file, unless that has one of their name."""
    kernel = tmp_path / "named.py"
    kernel.write_text(
        "import triton, triton.language as tl\n"
        "def _combine(): ...\ndef _count(): ...\ndef _negate(): ...\ndef _value_of(): ...\n"
        "@triton.jit\ndef kernel(out, n, FLAG: tl.constexpr):\n"
        "    for at in tl.range(0, n):\n"
        "        if (FLAG or n > 9) and not n > 9:\n"
        "            tl.store(out + at, at)\n"
    )
    code = (
        "import torch; from perfci.device import open_device; open_device('cpu', seed=0); import named\n"
        "out = torch.zeros(3); named.kernel[(1,)](out, 3, True); print(out.tolist())"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{tmp_path}:{TABLE.parents[3]}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.split("\n")[0] == "[0.0, 1.0, 2.0]"
