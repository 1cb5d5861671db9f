"""`perfci new --from` takes the sizes of a recorded workload."""

import pytest

from perfci.cli.main import run
from perfci.extensions.workloads.records import Call, Tensor, Workload, write_workload

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def _triple(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(x_ptr + place, mask=place < n) * 3, mask=place < n)

def triple(x):
    out = torch.empty_like(x)
    _triple[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out

def reference(x):
    return x * 3
"""


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_the_sizes_of_a_workload_become_the_timed_cases(tmp_path, capsys):
    (tmp_path / "mylib.py").write_text(KERNEL)
    calls = (Call("triple", {"x": Tensor((rows, 4096), "float16")}) for rows in (8, 700))
    path = write_workload(tmp_path / "kernels", Workload("serve", calls=(*calls, Call("other", {"x": None}))))
    function, source = str(tmp_path / "mylib.py"), ["--reference", f"{tmp_path / 'mylib.py'}:reference"]

    code = run(["new", "--from", f"{function}:triple", *source, "--tests", str(path), "--project", str(tmp_path)])

    assert code == 0, capsys.readouterr().err
    written = (tmp_path / "kernels/triple/triple_performance.py").read_text()
    assert "rows=[8, 700]" in written.replace("[700, 8]", "[8, 700]") and "cols=[4096]" in written
    assert "torch.float16" in written
