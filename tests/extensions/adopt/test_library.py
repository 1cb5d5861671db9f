"""A folder of other people's operators becomes ops by one command, without an edit."""

from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.extensions.adopt.files import find_files
from perfci.extensions.adopt.rehearsal import operators
from perfci.extensions.adopt.rehearsal.operators import find_operators
from perfci.ops import discover
from tests.extensions.adopt.rehearsing import interpreted, unpack

TESTS = """
import pytest, torch, gems

@pytest.mark.parametrize("shape", [(6, 50), (2, 3)])
def test_square(shape):
    x = torch.randn(shape, device=gems.device)
    with gems.use_gems():
        x.square_()
"""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("library")
    library = unpack("library", root / "others")
    (root / "kernels").mkdir()
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    (root / "test_unary.py").write_text(TESTS)
    tests = str(root / "test_unary.py")
    # asin is written, and wrong, so it is not ready.
    assert run(["new", "--from-library", str(library), "--copy", "--tests", tests, "--project", str(root)]) == 3
    return root


def test_each_file_with_an_operator_of_torch_becomes_an_op(project):
    ops = discover.ops(settings.load(project))

    assert {op.op for op in ops} == {"addcdiv", "asin", "bitwise_xor_", "replication_pad1d", "square_"}
    assert [reason for op in ops for reason in discover.check_contract(op)] == []


def test_what_an_operator_writes_into_and_is_defined_on_comes_from_torch(project):
    texts = {op: (project / "kernels" / op / f"{op}_accuracy.py").read_text() for op in ("asin", "square_")}

    assert "mutates=('self',)" in texts["square_"] and "domain" not in texts["square_"]
    assert "domain=(-1, 1)" in texts["asin"] and "mutates" not in texts["asin"]


def test_tests_of_the_whole_library_give_each_op_its_own_cases(project):
    texts = {op: (project / "kernels" / op / f"{op}_accuracy.py").read_text() for op in ("asin", "square_")}

    assert "rows=[6], cols=[50]" in texts["square_"] and "cols=[50]" not in texts["asin"]


def test_kernels_that_ask_for_cuda_are_launched_and_judged(project):
    told = interpreted(project, "dtype=float32", "asin", "square_")

    (_, right), (_, wrong) = told["square_"], told["asin"]
    assert right == []
    assert wrong != []


@pytest.mark.nightly
def test_operators_with_other_dtypes_and_lists_of_numbers_are_judged_without_an_edit(project):
    for checks, failures in interpreted(project, "*", "addcdiv", "bitwise_xor_", "replication_pad1d").values():
        assert checks > 20
        assert failures == []


OPERATORS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def copy(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _copy[(triton.cdiv(x.numel(), 128),)](x.contiguous(), out, x.numel(), BLOCK=128)
    return out


@triton.jit
def _negate(x_ptr, out_ptr):
    at = tl.program_id(0)
    tl.store(out_ptr + at, -tl.load(x_ptr + at))


def neg(self):
    out = torch.empty_like(self, memory_format=torch.contiguous_format)
    if self.numel():
        _negate[(self.numel(),)](self.contiguous(), out)
    return out


def hstack(tensors):
    assert tensors[0].is_cuda
    return torch.hstack([copy(x) for x in tensors])


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return torch.native_layer_norm(copy(input), normalized_shape, weight, bias, eps)


def gather(self, dim, index):
    return torch.gather(copy(self), dim, index)


def index(self, indices):
    return torch.ops.aten.index(copy(self), indices)


def index_put(self, indices, values, accumulate=False):
    assert not (accumulate and self.dtype == torch.int16)  # as atomic additions
    return torch.ops.aten.index_put(copy(self), indices, values, accumulate)


def nll_loss_forward(self, target, weight=None, reduction=1, ignore_index=-100):
    return torch.ops.aten.nll_loss_forward(copy(self), target, weight, reduction, ignore_index)
"""


@pytest.mark.nightly
def test_operators_of_lists_of_tensors_and_of_shapes_that_depend_on_each_other_have_torchs_samples(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "lib").mkdir()
    ops = ("hstack", "layernorm", "gather", "index", "index_put", "nllloss", "neg")
    for name in ops:
        (tmp_path / "lib" / f"{name}.py").write_text(OPERATORS)

    assert run(["new", "--from-library", str(tmp_path / "lib"), "--copy", "--project", str(tmp_path)]) == 0

    texts = {op: (tmp_path / "kernels" / op / f"{op}_baseline.py").read_text() for op in ops}
    assert "torch.ops.aten.hstack.default([tensors_0, tensors_1" in texts["hstack"]
    assert "normalized_shape" in texts["layernorm"]
    assert "torch.randint(0, cols, (rows, index_cols), " in texts["gather"]
    assert " if has_weight else None" in texts["nllloss"]
    assert "torch.randint(0, " in texts["nllloss"] and "torch.randint(0, " in texts["index"]
    suite = (tmp_path / "kernels" / "layernorm" / "layernorm_accuracy.py").read_text()
    assert "normalized_shape=[(1, 2, 4097)], input_shape=[(1, 2, 4097)]" in suite  # the samples have 12 numbers at most
    assert "input_shape=[(1, 2, 1025)]" in suite.partition("probe_cases")[2]  # a stride shows past a block
    suite = (tmp_path / "kernels" / "neg" / "neg_accuracy.py").read_text()
    assert "probe_cases=perfci.grid(rows=[3], cols=[5]" in suite  # six numbers would hardly show both infinities
    told = interpreted(tmp_path, "*", *ops)
    assert {op: failures for op, (_, failures) in told.items() if failures} == {}
    assert all(checks > 10 for checks, _ in told.values())


MAKERS = (
    OPERATORS.partition("def hstack")[0]
    + """
@triton.jit
def _scan(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at, row, total = tl.arange(0, BLOCK), tl.program_id(0) * size, 0.0
    for start in range(0, size, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < size, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + start + at, total + tl.cumsum(x, 0), mask=start + at < size)
        total += tl.sum(x, 0)


def cumsum(self, dim):
    x = self.movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _scan[(x.numel() // x.shape[-1],)](x, out, x.shape[-1], BLOCK=32)
    return out.movedim(-1, dim).contiguous()


def full(size, fill_value, *, dtype=None, layout=None, device=None, pin_memory=None):
    assert torch.device(device).type != "cpu"
    return copy(torch.full(size, fill_value, dtype=dtype, device=device))


def eye_m(n, m, *, dtype=None, device=torch.device("cuda")):
    return copy(torch.eye(n, m, dtype=dtype, device=device))


def isnan(self):
    return torch.isnan(copy(self)) if self.is_floating_point() else torch.zeros_like(self, dtype=torch.bool)


def any(self):
    return torch.any(copy(self))


def triu(self, diagonal=0):
    return torch.triu(copy(self).float(), diagonal).to(self.dtype)


def avg_pool2d(self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    more = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return torch.ops.aten.avg_pool2d(copy(self).float(), *more).to(self.dtype)
"""
)


@pytest.mark.nightly
def test_operators_without_tensors_with_rare_truths_and_of_floats_alone_are_checked_by_what_they_take(tmp_path, capsys):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "lib").mkdir()
    ops = ("full", "eye_m", "isnan", "any", "avg_pool2d", "cumsum", "triu")
    for name in ops:
        (tmp_path / "lib" / f"{name}.py").write_text(MAKERS)

    assert run(["new", "--from-library", str(tmp_path / "lib"), "--copy", "--project", str(tmp_path)]) == 0

    texts = {op: (tmp_path / "kernels" / op / f"{op}_baseline.py").read_text() for op in ops}
    suites = {op: (tmp_path / "kernels" / op / f"{op}_accuracy.py").read_text() for op in ops}
    assert "log() * 0" in texts["isnan"] and "clamp(0)" in texts["any"]  # answers that differ
    assert '"n": size,' in texts["eye_m"] and "torch.ops.aten.eye.m(n, m, dtype=dtype" in texts["eye_m"]
    assert 'values=("normal",),' in suites["full"] and 'values=("normal",),' not in suites["isnan"]
    assert "torch.int64" not in suites["isnan"]  # which launches no kernel for them
    said = " ".join(capsys.readouterr().out.split())
    assert "torch.randint(-8, 9, " in texts["avg_pool2d"] and "avg_pool2d gives other integers" in said
    assert "torch.int16" in suites["triu"] and "torch.int64" not in suites["triu"]
    assert "The same holds for 2: triu, cumsum" in said
    assert "dim=0, **_: (" in suites["cumsum"]
    told = interpreted(tmp_path, "*", *ops)
    assert {op: failures for op, (_, failures) in told.items() if failures} == {}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("max_dim", "max.dim"),
        ("sum_dim", "sum.dim_IntList"),
        ("sum", "sum.default"),
        ("eye_m", "eye.m"),
        ("div_mode", "div.Tensor_mode"),
    ],
)
def test_a_name_with_the_overload_behind_it_is_that_overload(name, path):
    assert find_operators(name)[0].path == f"torch.ops.aten.{path}"


@pytest.mark.torch
def test_samples_are_those_of_all_variants_of_an_operator_with_words_as_numbers_and_weights_first():
    modes, losses = find_operators("div_mode")[0].list_calls(), find_operators("nll_loss_forward")[0].list_calls()

    assert {call["rounding_mode"] for call in modes} == {None, "trunc", "floor"}
    assert losses[0]["weight"] is not None
    assert {call["reduction"] for call in losses} == {1, 2}  # of none the total is undefined
    # Its variant hands `unbiased` by place, where a library's function may have `dim`.
    assert [call["unbiased"] for call in find_operators("std")[0].list_calls()] == [True]


def test_samples_of_a_torch_whose_tests_take_more_of_its_compiler_are_imported_with_it(monkeypatch):
    asked = []

    def refuse(stand_ins):
        asked.append({*stand_ins})
        if "torch._inductor.utils" in stand_ins:
            raise ImportError("cannot import name 'is_gpu' from 'torch._inductor.utils'")
        return ["infos"]

    monkeypatch.setattr(operators, "_import_beside", refuse)
    assert operators._import_infos.__wrapped__() == ["infos"]
    assert asked[-1] == {"expecttest"}


def test_an_argument_that_no_python_function_can_have_is_left_to_torch():
    assert [one.name for one in find_operators("uniform_")[0].arguments] == ["self"]


@pytest.mark.nightly
def test_a_single_file_needs_no_name(project, capsys):
    root = project.parent / "single"
    (root / "kernels").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    library = unpack("library", root / "others")

    assert run(["new", "--from", str(library / "square_.py"), "--copy", "--project", str(root)]) == 0
    assert (root / "kernels" / "square_" / "square__triton.py").is_file()
    assert run(["new", "--from", str(library / "_unit_acosh.py"), "--copy", "--project", str(root)]) == 1
    assert "no operator of the name" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_library_of_which_nothing_can_be_written_fails_with_each_cause_once(tmp_path, capsys):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "lib").mkdir()
    for name in ("__init__", "first_of_all", "second_of_all"):
        (tmp_path / "lib" / f"{name}.py").write_text(f"def {name.replace('_', '')}(x):\n    return x\n")

    assert run(["new", "--from-library", str(tmp_path / "lib"), "--project", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "Ops written: 0 of 2. Ready: 0. torch has no operator of the name of first_of_all.py:firstofall:"
    )
    assert said.endswith("The same holds for 1: second_of_all")


RELU6 = """
class MyReLU6Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return copy(x).clamp(0, 6)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return copy(gradient) * ((x > 0) & (x < 6))
"""


@pytest.mark.nightly
def test_a_file_of_one_autograd_function_needs_no_name_and_has_a_backward_pass(tmp_path, capsys):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "relu6.py").write_text(OPERATORS.partition("def hstack")[0] + RELU6)

    command = ["new", "--from-library", str(tmp_path / "lib"), "--project", str(tmp_path)]
    assert run([*command, "--copy"]) == 0
    assert run([*command, "--copy", "--backward"]) == 0

    assert "Ops written: 1 of 1. Ready: 1." in capsys.readouterr().out
    assert "source.apply(self)" in (tmp_path / "kernels" / "relu6" / "relu6_triton.py").read_text()
    backward = (tmp_path / "kernels" / "relu6_backward" / "relu6_backward_triton.py").read_text()
    assert "_sketched.gradients(source.apply)" in backward


def test_the_backward_pass_of_a_file_is_of_what_calls_the_function_of_its_name(tmp_path):
    text = RELU6.replace("MyReLU6Function", "Clamped").replace("copy(x).clamp", "relu6_forward(x).clamp")
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "relu6.py").write_text(f"def relu6_forward(x): ...\nclass Other(torch.autograd.Function): ...\n{text}")

    names = [
        find_files(str(tmp_path / "relu6.py"), None, settings.load(tmp_path), backward=backward).function
        for backward in (False, True)
    ]
    assert names == ["relu6_forward", "Clamped"]
