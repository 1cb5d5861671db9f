"""Random faults: what the rules of benchmarks/mutants.py make of a kernel, and of which ops it is."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from mutants import every_mutant, users  # noqa: E402

KERNEL = '''"""A copy."""
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, cols, x_stride, out_stride, SIZE: tl.constexpr):
    """Copies."""
    col = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + col * x_stride, mask=col < cols, other=0.0)
    tl.store(out_ptr + col * out_stride, x.to(tl.float32), mask=col < cols)


def copy(x):
    return x + 1
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "copy_triton.py").write_text(KERNEL)
    return tmp_path


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("comparison", "    x = tl.load(x_ptr + col * x_stride, mask=col <= cols, other=0.0)"),
        ("mask", "    tl.store(out_ptr + col * out_stride, x.to(tl.float32), mask=(None))"),
        ("other", "    x = tl.load(x_ptr + col * x_stride, mask=col < cols, other=None)"),
        ("swap", "    x = tl.load(x_ptr + col * out_stride, mask=col < cols, other=0.0)"),
        ("cast", "    tl.store(out_ptr + col * out_stride, x.to(tl.float16), mask=col < cols)"),
        ("operator", "    col = tl.program_id(0) * SIZE - tl.arange(0, SIZE)"),
        ("constant", "    col = tl.program_id(1) * SIZE + tl.arange(0, SIZE)"),
        ("term", "    col = (tl.program_id(0)) + tl.arange(0, SIZE)"),
    ],
)
def test_a_rule_edits_one_line_of_a_kernel(folder, rule, line):
    mutants = [mutant for mutant in every_mutant(folder) if mutant.rule == rule]

    assert line in [mutant.planted(KERNEL).splitlines()[mutant.line - 1] for mutant in mutants]


def test_a_shared_file_belongs_to_the_ops_that_import_it():
    known = users(ROOT / "kernels")

    assert {"attention", "fp8_attention"} <= {*known["_attention.py"]}
    assert known["softmax/softmax_triton.py"] == ["softmax"]
