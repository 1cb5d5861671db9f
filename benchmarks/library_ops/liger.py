"""Liger's ops, forward and backward in one: the suites are ours, and the functions are imported from the library."""

PACKAGE = "src/liger_kernel"
SHARED = '''
import torch


def with_gradients(function, inputs, gradient):
    """What a function of tensors answers, and the gradients of the inputs."""
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        answer = function(*leaves)
        answer.backward(gradient.clone())  # some write into it
    return answer.detach(), *(leaf.grad for leaf in leaves)


def normal(device, seed, dtype):
    generator = torch.Generator(device).manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=dtype, device=device)
'''
DTYPES = "[torch.float32, torch.float16, torch.bfloat16]"
ROWS = f"""(
    *perfci.grid(rows=[3], cols=[100], dtype={DTYPES}), *perfci.grid(rows=[5], cols=[61, 1024], dtype=[torch.float32])
)"""
LOSSES = "perfci.grid(rows=[5], cols=[100, 1024], dtype=[torch.float32])"


def _op(module, name, parameters, call, answer, inputs, cases=ROWS, **suite):
    """module, name: what is imported. call: of it, with the parameters. answer: what it should give."""
    return {
        "path": f"{PACKAGE}/ops/{module}.py",
        "kernel": f"from liger_kernel.ops.{module} import {name}",
        "parameters": parameters,
        "call": call,
        "answer": answer,
        "inputs": inputs,
        "cases": cases,
        **suite,
    }


def _with_gradients(names, expression):
    leaves = "".join(f"{name}, " for name in names.split())
    return f"with_gradients(lambda {leaves[:-2]}: {expression}, ({leaves}), gradient)"


def _graded(module, name, names, call, answer, inputs, **suite):
    parameters = ", ".join([*names.split(), "gradient"])
    return _op(module, name, parameters, _with_gradients(names, call), _with_gradients(names, answer), inputs, **suite)


PLAIN = ("normal", "zeros", "ones", "cancellation")
NORMED = {"values": ("normal", "ones", "cancellation")}  # gradients of a row of zeros are as large as eps makes them
LOSS = {"cases": LOSSES, "values": ("normal",), "rows": 4096, "cols": 32768}

OPS = {
    "softmax": _graded(
        "softmax", "LigerSoftmaxFunction", "x", "LigerSoftmaxFunction.apply(x)", "torch.softmax(x, -1)",
        '{"x": draw(rows, cols), "gradient": draw(rows, cols)}', values=PLAIN,
    ),
    "rms_norm": _graded(
        "rms_norm", "LigerRMSNormFunction", "x weight", "LigerRMSNormFunction.apply(x, weight, 1e-6)",
        "torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)",
        '{"x": draw(rows, cols), "weight": draw(cols), "gradient": draw(rows, cols)}', **NORMED,
        tolerance='{"float16": (4e-3, 4e-3), "bfloat16": (3.2e-2, 3.2e-2), "float32": (1e-5, 1e-5)}',
    ),
    "layer_norm": _graded(
        "layer_norm", "LigerLayerNormFunction", "x weight bias", "LigerLayerNormFunction.apply(x, weight, bias, 1e-6)",
        "torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-6)",
        '{"x": draw(rows, cols), "weight": draw(cols), "bias": draw(cols), "gradient": draw(rows, cols)}',
        values=("normal",),
        tolerance='{"float16": (4e-3, 4e-3), "bfloat16": (3.2e-2, 3.2e-2), "float32": (1e-5, 1e-5)}',
    ),
    "group_norm": _graded(
        "group_norm", "LigerGroupNormFunction", "x weight bias",
        "LigerGroupNormFunction.apply(x, weight, bias, 6, 3, 1e-6)",
        "torch.nn.functional.group_norm(x, 3, weight, bias, 1e-6)",
        '{"x": draw(rows, 6, cols), "weight": draw(6), "bias": draw(6), "gradient": draw(rows, 6, cols)}',
        cases="perfci.grid(rows=[2], cols=[8, 100], dtype=[torch.float32])", values=("normal",),
        tolerance='{"float32": (1e-5, 1e-4)}',
    ),
    "swiglu": _graded(
        "swiglu", "LigerSiLUMulFunction", "a b", "LigerSiLUMulFunction.apply(a, b)",
        "torch.nn.functional.silu(a) * b",
        '{"a": draw(rows, cols), "b": draw(rows, cols), "gradient": draw(rows, cols)}', values=PLAIN,
        tolerance='{"float16": (2e-3, 1e-3), "bfloat16": (3.2e-2, 1e-2)}',
    ),
    "geglu": _graded(
        "geglu", "LigerGELUMulFunction", "a b", "LigerGELUMulFunction.apply(a, b)",
        'torch.nn.functional.gelu(a, approximate="tanh") * b',
        '{"a": draw(rows, cols), "b": draw(rows, cols), "gradient": draw(rows, cols)}', values=PLAIN,
        tolerance='{"float16": (2e-3, 1e-3), "bfloat16": (3.2e-2, 1e-2), "float32": (1e-5, 1e-5)}',
    ),
    "relu_squared": _graded(
        "relu_squared", "LigerReLUSquaredFunction", "x", "LigerReLUSquaredFunction.apply(x)",
        "torch.nn.functional.relu(x).square()", '{"x": draw(rows, cols), "gradient": draw(rows, cols)}', values=PLAIN,
        tolerance='{"float16": (2e-3, 1e-3), "bfloat16": (3.2e-2, 1e-2)}',
    ),
    "dyt": _op(  # its gradient asks a GPU how many processors it has
        "dyt", "LigerDyTFunction", "x, alpha, gamma, beta", "LigerDyTFunction.apply(x, alpha, gamma, beta)",
        "gamma * torch.tanh(alpha * x) + beta",
        '{"x": draw(rows, cols), "alpha": draw(1), "gamma": draw(cols), "beta": draw(cols)}',
        cases="perfci.grid(rows=[3], cols=[100, 1024], dtype=[torch.float32])", values=PLAIN,
        tolerance='{"float32": (1e-5, 1e-5)}',
    ),
    "poly_norm": _graded(
        "poly_norm", "LigerPolyNormFunction", "x weight bias", "LigerPolyNormFunction.apply(x, weight, bias, 1e-6)",
        "sum(w * torch.nn.functional.rms_norm(x**n, x.shape[-1:], None, 1e-6) for w, n in zip(weight, (3, 2, 1)))"
        " + bias",
        '{"x": draw(rows, cols), "weight": draw(3), "bias": draw(), "gradient": draw(rows, cols)}',
        cases="perfci.grid(rows=[3], cols=[100, 1024], dtype=[torch.float32])", values=("normal",),
        tolerance='{"float32": (1e-5, 1e-3)}',
    ),
    "sparsemax": _op(
        "sparsemax", "LigerSparsemaxFunction", "x", "LigerSparsemaxFunction.apply(x, -1)", "_sparsemax(x)",
        '{"x": draw(rows, cols)}', cases="perfci.grid(rows=[3], cols=[100, 1000], dtype=[torch.float32])",
        values=("normal", "zeros", "ones"),
        reference='''
def _sparsemax(x):
    ordered = x.sort(dim=-1, descending=True).values
    numbers = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    total = ordered.cumsum(-1) - 1
    support = (numbers * ordered > total).sum(-1, keepdim=True)
    return (x - total.gather(-1, support - 1) / support).clamp(min=0)
''',
    ),
    "fused_add_rms_norm": _op(
        "fused_add_rms_norm", "LigerFusedAddRMSNormFunction", "x, residual, weight",
        "LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6)",
        "torch.nn.functional.rms_norm(x + residual, x.shape[-1:], weight, 1e-6), x + residual",
        '{"x": draw(rows, cols), "residual": draw(rows, cols), "weight": draw(cols)}', values=PLAIN,
        tolerance='{"float16": (4e-3, 4e-3), "bfloat16": (3.2e-2, 3.2e-2), "float32": (1e-5, 1e-5)}',
    ),
    "rope": _op(
        "rope", "LigerRopeFunction", "q, k, cos, sin", "LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)",
        "tuple(x * cos[:, None] + torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1) "
        "* sin[:, None] for x in (q, k))",
        '{"q": draw(1, 4, rows, cols), "k": draw(1, 2, rows, cols), **_angles(rows, cols, draw)}',
        cases="perfci.grid(rows=[5], cols=[32, 64], dtype=[torch.float32])", values=("normal",), cols=128,
        tolerance='{"float32": (1e-5, 1e-5)}', layouts='("contiguous",)',
        reference='''
def _angles(rows, cols, draw):
    angles = draw(1, rows, cols // 2).repeat(1, 1, 2)
    return {"cos": angles.cos(), "sin": angles.sin()}
''',
    ),
    "kl_div": _graded(
        "kl_div", "LigerKLDivLossFunction", "x", "LigerKLDivLossFunction.apply(x, target)",
        'torch.nn.functional.kl_div(x, target, reduction="batchmean")',
        '{"x": draw(rows, cols).log_softmax(-1), "target": draw(rows, cols).softmax(-1), "gradient": draw().abs()}',
        **LOSS, also="target", tolerance='{"float32": (1e-8, 1e-5)}',
    ),
    "jsd": _graded(
        "jsd", "LigerJSDFunction", "x", "LigerJSDFunction.apply(x, target)", "_jsd(x, target)",
        '{"x": draw(rows, cols).log_softmax(-1), "target": draw(rows, cols).log_softmax(-1), '
        '"gradient": draw().abs()}',
        **LOSS, also="target", tolerance='{"float32": (1e-8, 1e-5)}',
        reference='''
def _jsd(x, target):
    mean = (x.exp() + target.exp()).div(2).log()
    both = [torch.nn.functional.kl_div(mean, y, reduction="batchmean", log_target=True) for y in (x, target)]
    return sum(both) / 2
''',
    ),
    "tvd": _graded(
        "tvd", "LigerTVDLossFunction", "x", "LigerTVDLossFunction.apply(x, target)",
        "(x - target).abs().sum() / 2 / x.shape[0]",
        '{"x": draw(rows, cols).softmax(-1), "target": draw(rows, cols).softmax(-1), "gradient": draw().abs()}',
        **LOSS, also="target",
    ),
    "cross_entropy": _graded(
        "cross_entropy", "LigerCrossEntropyFunction", "x",
        "_first(LigerCrossEntropyFunction.apply(*_options(x, target)))",
        "torch.nn.functional.cross_entropy(x, target)",
        '{"x": draw(rows, cols), "target": draw(rows, cols).argmax(-1), "gradient": draw().abs()}',
        **LOSS, also="target", layouts='("contiguous",)',
        helpers='''
def _first(answer):
    return answer[0] if isinstance(answer, tuple) else answer


def _options(x, target):
    """The options that this revision's function needs, which were added one by one."""
    names = inspect.signature(LigerCrossEntropyFunction.forward).parameters
    given = {"weight": None, "ignore_index": -100, "lse_square_scale": 0.0, "label_smoothing": 0.0, "reduction": "mean"}
    options = [given.get(name) for name in list(names)[3:] if name in given or name == "softcap"]
    return x.clone(), target, *options
''',
    ),
    "fused_linear_cross_entropy": _graded(
        "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction", "x weight",
        "_first(LigerFusedLinearCrossEntropyFunction.apply(x, weight, target))",
        "torch.nn.functional.cross_entropy(x @ weight.T, target)",
        '{"x": draw(rows, 16), "weight": draw(cols, 16), "target": draw(rows, cols).argmax(-1), '
        '"gradient": draw().abs()}',
        **{**LOSS, "cols": 4096}, also="target", layouts='("contiguous",)',
        tolerance='{"float32": (1e-4, 1e-5)}',
        helpers='''
def _first(answer):
    return answer[0] if isinstance(answer, tuple) else answer
''',
    ),
}  # fmt: skip
