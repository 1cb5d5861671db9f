"""What Liger's ops mean, in plain torch, by the names of its files and of its functions' arguments.

In a project with this file, with Liger importable:

    perfci new --from-library Liger-Kernel/src/liger_kernel/ops --reference liger_references.py
    perfci new --from-library Liger-Kernel/src/liger_kernel/ops --reference liger_references.py --backward
    perfci check --suite accuracy
"""
# ruff: noqa: N803, A002

import torch
from torch.nn import functional


def dyt(x, alpha, gamma, beta):
    return gamma * torch.tanh(alpha * x) + beta if beta is not None else gamma * torch.tanh(alpha * x)


def relu_squared(X):
    return torch.relu(X).square()


def geglu(a, b):
    return functional.gelu(a, approximate="tanh") * b


def swiglu(a, b, gate_multiplier=1.0, down_multiplier=1.0):
    return functional.silu(a * gate_multiplier) * b * down_multiplier


def mlp(input, gate_weight, up_weight, down_weight, gate_multiplier=1.0, down_multiplier=1.0):
    gate = functional.silu(input @ gate_weight.T * gate_multiplier)
    return (gate * (input @ up_weight.T) * down_multiplier) @ down_weight.T


def _norm(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def fused_add_rms_norm(X, R, W, eps, offset=0.0):
    total = X + R
    return _norm(total, eps) * (offset + W), total


def modulated_rms_norm(X, W, scale, shift, eps, offset=0.0):
    return _norm(X, eps) * (offset + W) * (1 + scale) + shift


def poly_norm(X, W, B, eps=1e-6):
    return W[0] * _norm(X**3, eps) + W[1] * _norm(X**2, eps) + W[2] * _norm(X, eps) + B


def attn_res(V_stacked, w_query, w_norm, eps):
    scores = (_norm(V_stacked, eps) * w_norm) @ w_query
    return (torch.softmax(scores, 0).unsqueeze(-1) * V_stacked).sum(0)


def sparsemax(x, dim):
    ordered = x.sort(dim, descending=True).values
    places = torch.arange(1, x.shape[dim] + 1, device=x.device, dtype=x.dtype)
    places = places.view([-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())])
    sums = ordered.cumsum(dim) - 1
    count = (places * ordered > sums).sum(dim, keepdim=True)
    return torch.relu(x - sums.gather(dim, count - 1) / count)


def _turn(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def rope(q, k, cos, sin):
    assert q.shape[0] == k.shape[0]
    assert cos.shape == sin.shape
    assert cos.shape[-1] % 2 == 0
    # Both halves of a row are the same, as such tables are made: the first one counts.
    cos, sin = (torch.cat([x.chunk(2, -1)[0]] * 2, -1)[..., None, :, :] for x in (cos, sin))
    return _turn(q, cos, sin), _turn(k, cos, sin)


def jsd(_input, target, beta=0.5):
    if beta in (0.0, 1.0):
        one, other = (_input, target) if beta == 1.0 else (target, _input)
        return (one.exp() * (one - other)).sum() / _input.shape[0]
    mixed = torch.log(beta * target.exp() + (1 - beta) * _input.exp())
    loss = beta * target.exp() * (target - mixed) + (1 - beta) * _input.exp() * (_input - mixed)
    return loss.sum() / _input.shape[0]


def tvd(p, q, reduction="batchmean"):
    loss = 0.5 * (p - q).abs()
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean() if reduction == "mean" else loss.sum() / p.shape[0]


def multi_token_attention(scores, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    rows, cols = scores.shape[-2:]
    later = torch.ones(rows, cols, dtype=torch.bool, device=scores.device).triu(1)
    chances = torch.softmax(scores.masked_fill(later, -1e9), -1)
    return functional.conv2d(chances, weight, bias, stride, padding, dilation, groups).masked_fill(later, 0.0)


def fused_linear_cross_entropy(
    _input, weight, target, bias=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"
):
    logits = _input @ weight.T if bias is None else _input @ weight.T + bias
    return functional.cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )


def fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, jsd_beta=0.5, temperature=1.0):
    student = torch.log_softmax(student_input @ student_weight.T / temperature, -1)
    teacher = torch.log_softmax(teacher_input @ teacher_weight.T / temperature, -1)
    return jsd(student, teacher, jsd_beta)


def fused_linear_kl_div(student_input, student_weight, target, reduction="batchmean", temperature=1.0):
    student = torch.log_softmax(student_input @ student_weight.T / temperature, -1)
    return functional.kl_div(student, target, reduction=reduction)


def fused_ce_tvd(student_logits, teacher_logits, target, ignore_index=-100):
    total = 0.5 * (student_logits.softmax(-1) - teacher_logits.softmax(-1)).abs().sum(-1)
    loss = functional.cross_entropy(student_logits, target, ignore_index=ignore_index, reduction="none")
    return loss, total.masked_fill(target == ignore_index, 0.0)


def fused_moe(x, gate_up_proj, down_proj, top_k_index, top_k_weights):
    out = torch.zeros_like(x)
    for expert in range(gate_up_proj.shape[0]):
        gate, up = (x @ gate_up_proj[expert].T).chunk(2, -1)
        share = (top_k_weights * (top_k_index == expert)).sum(-1, keepdim=True)
        out = out + share * ((functional.silu(gate) * up) @ down_proj[expert].T)
    return out


def llama4_rope(q, k, freqs_cis):
    assert q.shape[0] == k.shape[0]
    _, _, parts = freqs_cis.shape
    assert parts == 2  # as torch.view_as_real has them
    real, imaginary = freqs_cis.unbind(-1)
    real, imaginary = real[:, None], imaginary[:, None]
    turned = []
    for x in (q, k):
        one, other = x[..., 0::2], x[..., 1::2]
        parts = one * real - other * imaginary, one * imaginary + other * real
        turned.append(torch.stack(parts, -1).flatten(-2))
    return tuple(turned)


def qwen2vl_mrope(q, k, cos, sin, mrope_section):
    def pick(x):
        parts = x.split([*mrope_section, *mrope_section], -1)
        return torch.cat([part[number % 3] for number, part in enumerate(parts)], -1).unsqueeze(1)

    return _turn(q, pick(cos), pick(sin)), _turn(k, pick(cos), pick(sin))


def mhc(x, f_out, h_post, h_res):
    return torch.einsum("...oi,...ic->...oc", h_res, x) + h_post.unsqueeze(-1) * f_out.unsqueeze(-2)


def fused_neighborhood_attention(query, key, value, kernel_size=7, dilation=1, scale=None):
    size = query.shape[-2]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    places = torch.arange(size, device=query.device)
    apart = places[None, :] - places[:, None]
    near = (apart.abs() <= kernel_size // 2 * dilation) & (apart % dilation == 0)
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~near, float("-inf"))
    return torch.softmax(scores, -1) @ value
