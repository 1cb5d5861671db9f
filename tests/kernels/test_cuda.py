"""CUDA C++ of the ops, compiled by NVRTC for an H200 without one: each function that a launch may need."""

import importlib
import re
import sys
from itertools import product
from pathlib import Path

import pytest

from perfci.extensions.common.binaries import nvidia_usage, tool
from perfci.worker.load import import_from

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
DTYPES = ("float32", "float16", "bfloat16")
ROWS = (("whole_rows", 8), ("whole_rows", 16), ("whole_rows", 32))

pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.slow]


def load(op):
    """The op's CUDA module, imported as a worker does."""
    with import_from(KERNELS / op, KERNELS):
        return importlib.import_module(f"{op}_cuda")


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """What the ops compile with, without anything that was compiled before."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)
    try:
        nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
        try:
            nvrtc.nvrtcVersion()
        except RuntimeError as error:
            pytest.skip(str(error))
        with import_from(KERNELS, KERNELS):
            yield importlib.import_module("_cuda")
    finally:
        for name in set(sys.modules) - before:
            if str(KERNELS) in str(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]


def functions(op):
    import torch

    module = load(op)
    if op == "broadcast":
        return [module.function(*words) for words in product(("whole_vectors", "any_rows"), DTYPES, DTYPES)]
    if op == "matmul":
        sides = [(tile, "".join(side)) for tile in (module.LARGE, module.SMALL) for side in product("rc", "rc")]
        tiles = product([*sides, (module.ELEMENTS, "")], (torch.float16, torch.bfloat16))
        return [
            module.function(module.FLOAT32, "", torch.float32),
            *(module.function(*tile, dtype) for tile, dtype in tiles),
        ]
    more = (
        (("long_rows", 32),)
        if op == "softmax"
        else tuple((path, module.LONG_VALUES) for path in ("long_rows", "parts_of_rows", "join_parts"))
    )
    return [module.function(*path, *kind) for path, *kind in product(ROWS + more, ("vectors", "elements"), DTYPES)]


@pytest.mark.skipif(tool("cuobjdump") is None, reason="Triton brings no cuobjdump")
@pytest.mark.parametrize("op", ["broadcast", "matmul", "rms_norm", "softmax"])
def test_every_function_is_compiled_for_an_h200_and_spills_no_register(cuda, op):
    usages = {
        function.name: nvidia_usage(cuda.compile_for(function.path, "sm_90", function.options), "", function.name)
        for function in functions(op)
    }

    assert {name for name, usage in usages.items() if usage is None} == set()
    # The last elements of a vector in 16 bits are indexed, so that it lies on the stack: 16 bytes.
    indexed = {name: 16 for name in usages if re.match(r"any_rows_b?float16", name)}
    assert {name: usage.spill_bytes for name, usage in usages.items() if usage.spill_bytes} == indexed


def test_a_file_is_compiled_again_if_what_it_includes_changes(cuda, tmp_path):
    header, file = tmp_path / "value.cuh", tmp_path / "value.cu"
    file.write_text('#include "value.cuh"\nextern "C" __global__ void NAME(int* out) { *out = VALUE; }\n')

    def compile_with(value):
        header.write_text(f"#define VALUE {value}\n")
        return cuda.compile_for(file, "sm_90", ("--define-macro=NAME=write",))

    first, second = compile_with(1), compile_with(2)

    assert first != second
    assert compile_with(1) == first
    assert len(list((tmp_path / "cache" / "nvrtc").iterdir())) == 2


def test_an_error_of_a_file_is_told_with_the_compilers_words(cuda, tmp_path):
    (tmp_path / "wrong.cu").write_text("__global__ void wrong() { return 1 }\n")

    with pytest.raises(RuntimeError, match=r"(?s)wrong\.cu does not compile .*error"):
        cuda.compile_for(tmp_path / "wrong.cu", "sm_90")
