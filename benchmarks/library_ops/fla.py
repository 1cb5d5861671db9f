"""flash-linear-attention's ops, forward: the suites are ours, and the functions are imported from the library."""

PACKAGE = "fla"
SINCE = "2025-04-20"  # before, heads came before times by default
ALSO = ("fla/ops/common", "fla/ops/utils")  # what ops share: commits that change it are replayed too
SHARED = '''
import torch


def without_state(answer):
    """The output of a function that gives its last state too."""
    return answer[0] if isinstance(answer, tuple) else answer


def normal(device, seed, dtype):
    generator = torch.Generator(device).manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=dtype, device=device)


def recur(q, k, v, decay=None, beta=None, bonus=None, scale=None):
    """Linear attention, one time after the other: q, k, v of times along axis 1 and heads along axis 2."""
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    wide = torch.promote_types(v.dtype, torch.float32)
    q, k, values = q.to(wide) * scale, k.to(wide), v.to(wide)
    state = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1], dtype=wide, device=v.device)
    out = []
    for t in range(v.shape[1]):
        if bonus is not None:  # rwkv6: the state decays after it is read
            outer = k[:, t, :, :, None] * values[:, t, :, None]
            out.append((q[:, t, :, :, None] * (state + bonus.to(wide)[None, :, :, None] * outer)).sum(-2))
            state = state * decay[:, t].to(wide).exp()[..., None] + outer
            continue
        if decay is not None:
            factor = decay[:, t].to(wide).exp()
            state = state * (factor[..., None] if factor.dim() == 3 else factor[..., None, None])
        value = values[:, t]
        if beta is not None:  # the delta rule
            value = (value - (state * k[:, t, :, :, None]).sum(-2)) * beta[:, t].to(wide)[..., None]
        state = state + k[:, t, :, :, None] * value[..., None, :]
        out.append((q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(out, 1).to(v.dtype)
'''
ROWS = "perfci.grid(rows=[3, 37], cols=[16, 64], dtype=[torch.float32, torch.bfloat16])"
HELPERS = '''

def call(function, *arguments, **options):
    """Calls a function with those of the options that this revision has."""
    has = inspect.signature(inspect.unwrap(function)).parameters
    return function(*arguments, **{name: value for name, value in options.items() if name in has})
'''


def _op(path, name, parameters, call, answer, inputs, **suite):
    """call: of the library's function, which is called `theirs`."""
    module = path.removesuffix(".py").replace("/", ".")
    return {
        "path": f"{PACKAGE}/{path}", "kernel": f"from {PACKAGE}.{module} import {name} as theirs",
        "parameters": parameters, "call": call, "answer": answer, "inputs": inputs, "helpers": HELPERS, **suite,
    }  # fmt: skip


def _attention(path, name, parameters, answer, more="", options="head_first=False", **suite):
    """A function of q, k, v, which are 1 x times x 2 heads x width."""
    shapes = "draw(1, rows, 2, cols)"
    keys = f"torch.nn.functional.normalize({shapes}, dim=-1)" if "beta" in parameters else shapes
    defaults = {
        "cases": "perfci.grid(rows=[20, 70], cols=[16], dtype=[torch.bfloat16])", "values": ("normal",), "rows": 512,
        "cols": 64, "dtype": "torch.bfloat16", "layouts": '("contiguous",)', "uses_dot": True,
        "tolerance": '{"bfloat16": (3e-2, 3e-2), "float16": (1e-2, 1e-2)}',
    }  # fmt: skip
    given = ", ".join(f"{name}={name}" for name in parameters.split(", "))
    return _op(
        path, name, parameters, f"without_state(call(theirs, {given}, {options}))", answer,
        f'{{"q": {shapes}, "k": {keys}, "v": {shapes}{more}}}', **{**defaults, **suite},
    )  # fmt: skip


GATE = ', "g": torch.nn.functional.logsigmoid(draw(1, rows, 2, cols))'
HEAD_GATE = ', "g": torch.nn.functional.logsigmoid(draw(1, rows, 2))'
BETA = ', "beta": draw(1, rows, 2).sigmoid()'
TOLERANCE = '{"float32": (1e-5, 1e-5), "bfloat16": (3.2e-2, 1e-2)}'

OPS = {
    "chunk_gla": _attention("ops/gla/chunk.py", "chunk_gla", "q, k, v, g", "recur(q, k, v, g)", GATE),
    "chunk_simple_gla": _attention(
        "ops/simple_gla/chunk.py", "chunk_simple_gla", "q, k, v, g", "recur(q, k, v, g)", HEAD_GATE
    ),
    "chunk_retention": _attention(
        "ops/retention/chunk.py", "chunk_retention", "q, k, v",
        "recur(q, k, v, (1 - 2.0 ** (-5 - torch.arange(2, device=q.device))).log().expand(1, q.shape[1], 2))",
    ),
    "chunk_delta_rule": _attention(
        "ops/delta_rule/chunk.py", "chunk_delta_rule", "q, k, v, beta", "recur(q, k, v, None, beta)", BETA
    ),
    "fused_recurrent_delta_rule": _attention(
        "ops/delta_rule/fused_recurrent.py", "fused_recurrent_delta_rule", "q, k, v, beta",
        "recur(q, k, v, None, beta)", BETA,
    ),
    "chunk_gated_delta_rule": _attention(
        "ops/gated_delta_rule/chunk.py", "chunk_gated_delta_rule", "q, k, v, g, beta", "recur(q, k, v, g, beta)",
        HEAD_GATE + BETA,
    ),
    "fused_recurrent_gated_delta_rule": _attention(
        "ops/gated_delta_rule/fused_recurrent.py", "fused_recurrent_gated_delta_rule", "q, k, v, g, beta",
        "recur(q, k, v, g, beta)", HEAD_GATE + BETA,
    ),
    "chunk_kda": _attention(
        "ops/kda/chunk.py", "chunk_kda", "q, k, v, g, beta", "recur(q, k, v, g, beta)", GATE + BETA
    ),
    "parallel_attn": _attention(
        "ops/attn/parallel.py", "parallel_attn", "q, k, v",
        "torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)"
        ".transpose(1, 2)",
    ),
    "chunk_local_cumsum": _op(
        "ops/utils/cumsum.py", "chunk_local_cumsum", "g", "call(theirs, g, 16, head_first=False)",
        "torch.cat([part.cumsum(1) for part in g.split(16, 1)], 1)", '{"g": draw(1, rows, cols)}',
        cases="perfci.grid(rows=[20, 64], cols=[2, 5], dtype=[torch.float32])", cols=16,
        values=("normal", "zeros", "ones"),
    ),
    "l2_norm": _op(
        "modules/l2norm.py", "l2_norm", "x", "theirs(x)",
        "(x * torch.rsqrt(x.to(torch.promote_types(x.dtype, torch.float32)).square().sum(-1, keepdim=True) + 1e-6))"
        ".to(x.dtype)",
        '{"x": draw(rows, cols)}', cases=ROWS, values=("normal", "zeros", "ones"), cols=128,
    ),
    "layer_norm": _op(
        "modules/layernorm.py", "layer_norm", "x, weight, bias", "theirs(x, weight, bias)",
        "torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)",
        '{"x": draw(rows, cols), "weight": draw(cols), "bias": draw(cols)}', cases=ROWS,
        values=("normal", "zeros", "ones"),
    ),
    "rotary": _op(
        "modules/rotary.py", "rotary_embedding", "x, cos, sin", "theirs(x, cos, sin)",
        "torch.cat((x[..., : x.shape[-1] // 2] * cos[:, None] - x[..., x.shape[-1] // 2 :] * sin[:, None], "
        "x[..., : x.shape[-1] // 2] * sin[:, None] + x[..., x.shape[-1] // 2 :] * cos[:, None]), -1)",
        '{"x": draw(2, rows, 2, cols), "cos": draw(rows, cols // 2).cos(), "sin": draw(rows, cols // 2).sin()}',
        cases="perfci.grid(rows=[20, 64], cols=[16, 64], dtype=[torch.float32])", values=("normal",), cols=128,
        tolerance=TOLERANCE, layouts='("contiguous",)',
    ),
    "swiglu": _op(
        "modules/activations.py", "swiglu", "x, y", "theirs(x, y)", "torch.nn.functional.silu(x) * y",
        '{"x": draw(rows, cols), "y": draw(rows, cols)}', cases=ROWS, values=("normal", "zeros", "ones"),
        tolerance=TOLERANCE,
    ),
    "token_shift": _op(
        "modules/token_shift.py", "token_shift", "x", "without_state(theirs(x))",
        "torch.nn.functional.pad(x, (0, 0, 1, -1)) - x", '{"x": draw(2, rows, cols)}', cases=ROWS,
        values=("normal", "zeros", "ones"),
    ),
    "causal_conv1d": _op(
        "modules/convolution.py", "causal_conv1d", "x, weight", "without_state(theirs(x, weight))",
        "torch.nn.functional.conv1d(torch.nn.functional.pad(x.mT, (weight.shape[1] - 1, 0)), weight[:, None], "
        "groups=weight.shape[0]).mT",
        '{"x": draw(2, rows, cols), "weight": draw(cols, 4)}',
        cases="perfci.grid(rows=[20, 64], cols=[16, 64], dtype=[torch.float32])",
        values=("normal", "zeros", "ones"), tolerance=TOLERANCE,
    ),
}  # fmt: skip
