"""The test device itself: what the tests of perfci on it take for granted."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = """
import torch
import triton
import triton.language as tl

assert torch.accelerator.current_accelerator().type == "npu", "torch did not load the plugin"
assert triton.runtime.driver.active.get_current_target().backend == "npu"
x = torch.randn(6, 40, device="npu")
assert torch.equal((x * 2 + 1).cpu(), x.cpu() * 2 + 1)
assert torch.equal(x[1:5, ::3].t().contiguous().cpu(), x.cpu()[1:5, ::3].t())
draw = lambda: torch.randn(5, device="npu", generator=torch.Generator("npu").manual_seed(3))
assert torch.equal(draw(), draw())
assert x.data_ptr() % 512 == 0 and x.to(torch.float8_e4m3fn).device.type == "npu"

held = torch.npu.memory_allocated()
torch.npu.reset_peak_memory_stats()
big = torch.zeros(1 << 28, dtype=torch.uint8, device="npu")
del big
assert torch.npu.memory_allocated() == held
assert torch.npu.max_memory_allocated() == held + (1 << 28)
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="npu")
    raise AssertionError("memory without an end")
except torch.OutOfMemoryError:
    pass

start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
start.record()
x + 1
end.record()
torch.npu.synchronize()
assert 0.002 < start.elapsed_time(end) < 0.01, "2 us and 960 bytes each way at a nanosecond each"
side = torch.npu.Stream()
with torch.npu.stream(side):
    assert torch.npu.current_stream() == side
assert torch.npu.current_stream() != side


@triton.jit
def positive(value):
    return tl.where(value > 0, value, 0.0)


@triton.jit
def softmax_of_positive(x, out, cols, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    value = positive(tl.load(x + row * cols + offsets, mask=offsets < cols, other=0.0))
    value = tl.exp(tl.where(offsets < cols, value, -float("inf")) - tl.max(value, 0))
    tl.store(out + row * cols + offsets, value / tl.sum(value, 0), mask=offsets < cols)


out = torch.empty_like(x)
compiled = softmax_of_positive[(6,)](x, out, 40, BLOCK=64)
assert "tt.reduce" in compiled.asm["ttir"]
torch.testing.assert_close(out.cpu(), torch.softmax(x.cpu().relu(), 1))
try:
    softmax_of_positive[(65536,)](x, out, 0, BLOCK=64)
    raise AssertionError("a grid without an end")
except RuntimeError as error:
    assert "65536" in str(error)

has = torch._C._dispatch_has_kernel_for_dispatch_key
assert has("aten::add.Tensor", "PrivateUse1") and not has("aten::erfinv", "PrivateUse1")
torch.testing.assert_close(torch.erfinv(x.clamp(-0.9, 0.9)).cpu(), torch.erfinv(x.cpu().clamp(-0.9, 0.9)))
print("all of it")
"""


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
