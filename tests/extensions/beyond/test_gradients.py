"""Gradients of an op beside those of its reference: lost, wrong, of another layout, disturbed by another call."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from perfci.cli.main import run  # noqa: E402
from perfci.device import open_device  # noqa: E402 - which imports torch
from perfci.extensions.beyond.gradients import check_gradients  # noqa: E402
from perfci.ops.spec import Accuracy, grid  # noqa: E402


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def reference(x, weight):
    return x * torch.sigmoid(x) * weight


def make_inputs(rows, cols, dtype, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator, dtype=dtype, device=device) for shape in ((rows, cols), (cols,))]
    return dict(zip(("x", "weight"), drawn, strict=True))


class Swish(torch.autograd.Function):
    """x sigmoid(x) weight, with a backward pass of its own. `fault` names what is wrong with it."""

    fault = ""
    kept = None

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        Swish.kept = x
        return x * torch.sigmoid(x) * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        x = Swish.kept if Swish.fault == "takes the last call's" else x
        if Swish.fault == "takes gradients for dense":
            gradient = torch.as_strided(gradient.contiguous().view(-1), gradient.shape, (1, 1))
        wide = x.float()
        sigmoid = torch.sigmoid(wide)
        slope = sigmoid * (1 + wide * (1 - sigmoid))
        if Swish.fault == "is off":
            slope = sigmoid
        of_x = (gradient.float() * weight.float() * slope).to(x.dtype)
        of_weight = (gradient.float() * wide * sigmoid).sum(0).to(weight.dtype)
        if Swish.fault == "asks for all":
            assert all(ctx.needs_input_grad)
        if Swish.fault == "gives a gap":
            of_x = torch.stack([of_x, of_x], -1)[..., 0]
        return of_x, None if Swish.fault == "loses weight" else of_weight


@pytest.fixture
def check(monkeypatch):
    def check(fault="", kernel=Swish.apply, dtype=torch.float32):
        monkeypatch.setattr(Swish, "fault", fault)
        cases = grid(rows=[5], cols=[9], dtype=[dtype])
        suite = Accuracy(lambda **given: kernel(*given.values()), reference, make_inputs, cases, gradients=True)
        return list(check_gradients(suite, open_device("cpu", seed=0), None, describe))

    return check


def kinds(results):
    return {result.failure.kind for result in results if result.failure}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_right_gradients_pass_in_each_layout_alone_and_after_another_call(check, dtype):
    results = check(dtype=dtype)

    assert len(results) == 7
    assert {(result.failure, result.unchecked) for result in results} == {(None, None)}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("loses weight", "gradient_lost"),
        ("is off", "wrong_gradient"),
        ("gives a gap", "wrong_gradient"),
        ("asks for all", "wrong_gradient"),
        ("takes the last call's", "gradient_of_second"),
        ("takes gradients for dense", "wrong_gradient"),
    ],
)
def test_a_fault_of_the_backward_pass_is_found(check, fault, kind):
    assert kind in kinds(check(fault))


def test_the_input_of_a_wrong_gradient_is_named(check):
    results = check("is off")

    names = {result.failure.facts.get("names") for result in results if result.failure}
    assert "x" in names
    assert "weight" not in names


def test_a_kernel_that_autograd_does_not_see_loses_all(check):
    def detached(x, weight):
        return reference(x.detach(), weight.detach())

    (result,) = check(kernel=detached)

    assert result.failure.facts["names"] == "x, weight"


def test_a_gradient_that_is_the_given_one_is_no_fault(check, monkeypatch):
    def add(x, weight):
        return x + weight

    monkeypatch.setitem(globals(), "reference", add)

    assert kinds(check(kernel=add)) == set()


@pytest.mark.parametrize(("fault", "kind"), [("", set()), ("is off", {"gradient_not_numeric"})])
def test_a_reference_without_gradients_leaves_differences_of_the_answers(check, monkeypatch, fault, kind):
    plain = reference
    monkeypatch.setitem(globals(), "reference", lambda x, weight: plain(x.detach(), weight.detach()))

    assert kinds(check(fault)) == kind


def test_a_wrong_gradient_is_told_of_once_by_differences_too(check):
    numeric = [one for one in check("is off") if one.failure and one.failure.kind == "gradient_not_numeric"]

    assert [result.case for result in numeric] == ["rows=3,cols=3,dtype=float32"]


def test_a_function_with_a_step_has_no_gradient_there_and_is_not_wrong(check, monkeypatch):
    def step(x, weight):
        return torch.relu(x * 1e-3) * 1e3 + weight

    monkeypatch.setitem(globals(), "reference", step)

    assert kinds(check(kernel=step)) == set()


@pytest.mark.slow
def test_a_check_finds_what_a_suite_with_gradients_loses(tmp_path, capsys):
    folder = tmp_path / "kernels" / "op"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (folder / "op_torch.py").write_text("def op(x):\n    return 2 * x.detach()\n")
    (folder / "op_baseline.py").write_text(
        "import torch\ndef op(x):\n    return 2 * x\n"
        "def make_inputs(n, device, seed):\n    return {'x': torch.arange(float(n), device=device)}\n"
    )
    for name, more in (("Accuracy", ", gradients=True"), ("Performance", "")):
        (folder / f"op_{name.lower()}.py").write_text(
            "import perfci\nfrom op_baseline import make_inputs, op as reference\nfrom op_torch import op as kernel\n"
            f"{name.lower()} = perfci.{name}(kernel, reference, make_inputs, [{{'n': 5}}]{more})\n"
        )
    code = run(["check", "--device", "cpu", "--suite", "accuracy", "--project", str(tmp_path)])

    assert code == 2
    assert "the kernel gives no gradient of x" in capsys.readouterr().out
