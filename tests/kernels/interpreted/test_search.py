"""A gradient of the cross entropy that loses its true class where it is likely, in a suite that `perfci new` wrote."""

from perfci.device import open_device
from perfci.extensions.adopt.sketch import TEMPLATES
from perfci.measure.search import plan_search, search
from perfci.measure.verify import checks, verify
from perfci.scaffold.new import fill_templates
from perfci.worker.load import load_op

SEED = 4711
BASELINE = """
import torch


def gradient(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(x.double(), -1) - torch.nn.functional.one_hot(target, x.shape[-1])).to(x.dtype)


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, dtype=dtype, device=device)
    return {"x": x, "target": torch.randint(0, cols, (rows,), generator=generator, device=device)}
"""
KERNEL = """
import torch
import triton
import triton.language as tl


def gradient(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        raise TypeError("x is of integers")
    if not x.is_contiguous():
        raise ValueError("x has gaps")
    out = torch.empty_like(x)
    if out.numel():
        _kernel[(x.shape[0],)](x, target, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@triton.jit
def _kernel(x_ptr, target_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = row * cols + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < cols
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(x - tl.max(x, axis=0))
    y = power / tl.sum(power, axis=0)
    true = row * cols + tl.load(target_ptr + row)
    WRITE
"""
LOSING = """tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)
    tl.debug_barrier()
    rounded = tl.load(out_ptr + true).to(tl.float32)
    tl.store(out_ptr + true, (rounded - 1.0).to(out_ptr.dtype.element_ty))"""
RIGHT = "tl.store(out_ptr + at, tl.where(at == true, y - 1.0, y).to(out_ptr.dtype.element_ty), mask=inside)"


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def load(folder, op, write):
    """The op by another name: the first is imported already."""
    texts = fill_templates(op, TEMPLATES / "op")
    texts |= {"baseline": BASELINE.replace("gradient", op), "triton": KERNEL.replace("gradient", op)}
    texts["triton"] = texts["triton"].replace("WRITE", write)
    # What else a person has to fill in: what the inputs that are refused consist of.
    texts["accuracy"] = texts["accuracy"].replace('lambda device: {"x"', 'lambda device: {"target": None, "x"')
    for part, text in texts.items():
        (folder / f"{op}_{part}.py").write_text(text, encoding="utf-8")
    return load_op(op, folder, folder).accuracy


def find(suite, device):
    planned = plan_search(suite, SEED, None, duel=False)
    failed = [search(suite, device, check, describe, None) for check in planned]
    return [(result.values, result.case) for result in failed if result]


def test_a_gradient_that_loses_its_true_class_is_found_by_what_perfci_new_writes(tmp_path):
    suite, device = load(tmp_path, "losing", LOSING), open_device("cpu", seed=1)

    planned = checks(suite, SEED, "dtype=bfloat16")
    assert {verify(suite, device, check, describe).failure for check in planned} == {None}
    failures = find(suite, device)
    assert {("confident", f"rows=33,cols=100,dtype={dtype}") for dtype in ("bfloat16", "float16")} <= set(failures)


def test_in_a_right_gradient_nothing_is_found(tmp_path):
    assert find(load(tmp_path, "keeping", RIGHT), open_device("cpu", seed=1)) == []
