"""FlagGems' operators: the suites are ours, and the functions are imported from the library beside a pretended GPU."""

PACKAGE = "src/flag_gems"
SINCE = "2024-11-01"  # before, it asks Triton for what is no longer there
FILES = {"_sketched.py": "perfci/extensions/adopt/rehearsal/sketched.py"}  # as `perfci new --from` copies it
SHARED = """
import torch


def first(answer):
    return answer[0] if isinstance(answer, tuple) else answer


def normal(device, seed, dtype):
    generator = torch.Generator(device).manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=dtype, device=device)
"""
ROWS = "perfci.grid(rows=[3, 5], cols=[61, 512], dtype=[torch.float32, torch.bfloat16])"
SINGLE = "perfci.grid(rows=[3, 5], cols=[61, 512], dtype=[torch.float32])"
ROUNDED = '{"float32": (1e-5, 1e-5), "bfloat16": (3.2e-2, 1e-2)}'


def _op(name, module, answer, call="theirs(x)", parameters="x", inputs="", function="", **suite):
    """call: of the library's function, which is called `theirs`. inputs: beside x, of rows x cols."""
    more = {"cases": ROWS, "values": ("normal", "zeros", "ones"), "tolerance": ROUNDED, **suite}
    return name, {
        "path": f"{PACKAGE}/ops/{module}.py",
        "kernel": "import _sketched\n\nwith _sketched.pretend('cuda'):\n"
        f"    from flag_gems.ops.{module} import {function or name} as source\n\n"
        "theirs = _sketched.wrap(source, 'cuda')",
        "parameters": parameters, "call": call, "answer": answer,
        "inputs": f'{{"x": draw(rows, cols){inputs}}}', **more,
    }  # fmt: skip


def _pair(name, module, answer, call="theirs(x, y)", **suite):
    return _op(name, module, answer, call, "x, y", ', "y": draw(rows, cols)', **suite)


def _product(name, module, answer, call, parameters, inputs, **suite):
    cases = "perfci.grid(rows=[17, 40], cols=[33, 64], dtype=[torch.float32])"
    return _op(
        name, module, answer, call, parameters, inputs, cases=cases, values=("normal",), uses_dot=True, cols=1024,
        tolerance='{"float32": (5e-3, 5e-3)}', **suite,
    )  # fmt: skip


OPS = dict([
    _op("softmax", "softmax", "torch.softmax(x, -1)", "theirs(x, -1)"),
    _op("log_softmax", "log_softmax", "torch.log_softmax(x, -1)", "theirs(x, -1)"),
    _op(
        "layer_norm", "layernorm", "torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)",
        "first(theirs(x, x.shape[-1:], weight, bias))", "x, weight, bias",
        ', "weight": draw(cols), "bias": draw(cols)', values=("normal", "ones"),
    ),
    _op(
        "rms_norm", "rms_norm", "torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-5)",
        "first(theirs(x, x.shape[-1:], weight, 1e-5))", "x, weight", ', "weight": draw(cols)',
    ),
    _op("sum_dim", "sum", "x.sum(-1)", "theirs(x, [-1])"),
    _op("mean_dim", "mean", "x.mean(-1)", "theirs(x, [-1])"),
    _op("prod_dim", "prod", "x.prod(-1)", "theirs(x, -1)", values=("normal", "ones"), cases=SINGLE),
    _op("amax", "amax", "x.amax(-1)", "theirs(x, [-1])"),
    _op("argmax", "argmax", "x.argmax(-1)", "theirs(x, -1)", values=("normal",), cases=SINGLE),
    _op("max_dim", "max", "x.max(-1).values", "theirs(x, -1)[0]"),
    _op("min_dim", "min", "x.min(-1).values", "theirs(x, -1)[0]"),
    _op("all_dim", "all", "(x > 0).all(-1)", "theirs(x > 0, -1)"),
    _op("any_dim", "any", "(x > 1).any(-1)", "theirs(x > 1, -1)"),
    _op("cumsum", "cumsum", "x.cumsum(-1)", "theirs(x, -1)", cases=SINGLE),
    _op("cummin", "cummin", "x.cummin(-1).values", "theirs(x, -1)[0]", values=("normal",), cases=SINGLE),
    _op("vector_norm", "vector_norm", "torch.linalg.vector_norm(x, 2, -1)", "theirs(x, 2, [-1])", values=("normal",)),
    _op("var_mean", "var_mean", "torch.var_mean(x, -1)", "theirs(x, [-1])", values=("normal",), cases=SINGLE),
    _op("topk", "topk", "x.topk(4, -1).values", "theirs(x, 4, -1)[0]", values=("normal",)),
    _op("sort", "sort", "x.sort(-1).values", "theirs(x, -1)[0]", values=("normal",), cases=SINGLE, cols=1024),
    _op("gelu", "gelu", "torch.nn.functional.gelu(x)"),
    _op("silu", "silu", "torch.nn.functional.silu(x)"),
    _op("tanh", "tanh", "torch.tanh(x)"),
    _op("elu", "elu", "torch.nn.functional.elu(x)"),
    _op("glu", "glu", "torch.nn.functional.glu(x)", cases="perfci.grid(rows=[3], cols=[62], dtype=[torch.float32])"),
    _op("clamp", "clamp", "x.clamp(-0.5, 0.5)", "theirs(x, -0.5, 0.5)"),
    _op("nan_to_num", "nan_to_num", "x.nan_to_num()"),
    _op("flip", "flip", "x.flip(-1)", "theirs(x, [-1])"),
    _op("triu", "triu", "x.triu()"),
    _op("repeat", "repeat", "x.repeat(2, 3)", "theirs(x, (2, 3))"),
    _op("masked_fill", "masked_fill", "x.masked_fill(x > 0, 2.0)", "theirs(x, x > 0, 2.0)"),
    _op(
        "embedding", "embedding", "x[index]", "theirs(x, index)", "x, index",
        ', "index": torch.arange(7, device=device) % rows',
    ),
    _op(
        "index_select", "index_select", "x.index_select(1, index)", "theirs(x, 1, index)", "x, index",
        ', "index": torch.arange(7, device=device) * 5',
    ),
    _op(
        "gather", "gather", "x.gather(1, index)", "theirs(x, 1, index)", "x, index",
        ', "index": draw(rows, cols).argsort(-1)', cases=SINGLE, layouts='("contiguous",)',
    ),
    _pair("add", "add", "x + y"),
    _pair("true_divide", "div", "x / y", values=("normal", "ones")),
    _pair("pow_tensor_tensor", "pow", "x.abs() ** y", "theirs(x.abs(), y)", values=("normal", "ones")),
    _pair("where_self", "where", "torch.where(x > y, x, y)", "theirs(x > y, x, y)"),
    _pair("lerp_tensor", "lerp", "torch.lerp(x, y, x.sigmoid())", "theirs(x, y, x.sigmoid())"),
    _pair("stack", "stack", "torch.stack((x, y), 1)", "theirs((x, y), 1)"),
    _pair("cat", "cat", "torch.cat((x, y), 1)", "theirs((x, y), 1)"),
    _pair("slice_scatter", "slice_scatter", "x.slice_scatter(y[:, :9], 1, 2, 11)", "theirs(x, y[:, :9], 1, 2, 11)"),
    _pair("select_scatter", "select_scatter", "x.select_scatter(y[:, 0], 1, 3)", "theirs(x, y[:, 0], 1, 3)"),
    _product("mm", "mm", "x @ y", "theirs(x, y)", "x, y", ', "y": draw(cols, 48)'),
    _product(
        "addmm", "addmm", "torch.addmm(bias, x, y)", "theirs(bias, x, y)", "x, y, bias",
        ', "y": draw(cols, 48), "bias": draw(48)',
    ),
    _product(
        "bmm", "bmm", "x.expand(2, -1, -1) @ y", "theirs(x.expand(2, -1, -1), y)", "x, y", ', "y": draw(2, cols, 48)'
    ),
    _product("mv", "mv", "x @ y", "theirs(x, y)", "x, y", ', "y": draw(cols)'),
])  # fmt: skip
