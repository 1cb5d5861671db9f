"""References of the eighth draw, one a function, written before the first try. Run by library_draws.py.

PyPI has few packages left with "triton" in their summary, so these are of two other kinds, and in no draw before. First
22 packages that are known to ship Triton kernels, and of which no function was ever tried: autoawq, cut-cross-entropy,
flashrnn, gemlite, gptqmodel, gpt-oss, heavyball, hipbridge, hqq, hyper-connections, lightning-attn, lion-pytorch,
minference, mlstm-kernels, nanotron, native-sparse-attention-pytorch, nvidia-modelopt, optimum-quanto,
ring-attention-pytorch, torch-dimensions, torch-optimi, torchtitan. hipbridge, ring-attention-pytorch and
torch-dimensions are those of the first 45 of 229 packages with torch, a GPU and a kernel in their summary, in the order
of `random.Random(2026120108).sample`, in which `library_draws.py list` finds functions. Of each package the first two
functions in the order of `library_draws.py list --seed 8` that a reference of up to 20 lines can say. Left out: what
this Python does not install, and where `list` finds nothing; torch-dimensions' copy of mamba's norm; mlstm-kernels'
copies of Triton's tutorial, and its second sum; what chooses blocks of keys, calibrates or searches scales; backward
passes of products and recurrences; torchtitan's rotation, whose text does not say which parts are pairs.
"""

# ruff: noqa: A002, ARG001, N803, N806
# Names are those of the functions.

import torch
from torch.nn import functional as F  # noqa: N812

AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def _unpack(words):
    """Eight numbers of 4 bits in each word of 32, in AWQ's order."""
    shifts = torch.tensor(AWQ_ORDER, device=words.device) * 4
    return (words[..., None] >> shifts & 15).flatten(-2)


def awq_dequantize(qweight, scales, zeros, *_, **__):
    group = qweight.shape[0] // scales.shape[0]
    zero, scale = (x.repeat_interleave(group, 0) for x in (_unpack(zeros), scales.float()))
    return ((_unpack(qweight) - zero) * scale).to(scales.dtype)


def awq_gemm(input, qweight, scales, qzeros, *_, **__):
    return (input.float() @ awq_dequantize(qweight, scales, qzeros).float()).to(scales.dtype)


def flash_forward(q, k, v, bias=None, causal=False, *_, softmax_scale=None, **__):
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    s = q @ k.mT * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    if bias is not None:
        s = s + bias.float()
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -torch.inf)
    weights = (s - s.amax(-1, keepdim=True)).exp()
    return (weights @ v).transpose(1, 2)


def fp4_cast(x, out_dtype=None):
    size, middles = x.float().abs()[..., None], (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
    least, up = (torch.tensor(one, device=x.device) for one in (middles, (0, 1, 0, 1, 0, 1, 0)))
    place = ((size > least) | ((size == least) & (up == 1))).sum(-1)  # ties go to the even code
    values = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), device=x.device)[place]
    return values.copysign(x.float()).to(out_dtype or x.dtype)


def weight_dequant(x, s, block_size=128, dtype=torch.float32):
    scale = s.float().repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
    return (x.float() * scale[: x.shape[0], : x.shape[1]]).to(dtype)


def srms_norm(x, eps):
    return (x.float() * (x.float().square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def lightning_attention(q, k, v, s):
    at = torch.arange(q.shape[2], device=q.device)
    distance = at[:, None] - at
    decay = (-s.float().reshape(-1, 1, 1) * distance).exp() * (distance >= 0)
    return ((q.float() @ k.float().mT * decay) @ v.float()).to(q.dtype)


def reversed_cumsum(s, dtype=None):
    return s.float().flip(2).cumsum(2).flip(2).to(dtype or s.dtype)


def mlstm_step(matC_old, vecN_old, scaM_old, vecQ, vecK, vecV, scaI, scaF,
               matC_new=None, vecN_new=None, scaM_new=None, qk_scale=None, eps=1e-6, **_):  # fmt: skip
    C, n, m, q, k, v, i, f = (x.float() for x in (matC_old, vecN_old, scaM_old, vecQ, vecK, vecV, scaI, scaF))
    q = q * (q.shape[-1] ** -0.5 if qk_scale is None else qk_scale)
    top = torch.maximum(F.logsigmoid(f) + m, i)
    keep, add = (F.logsigmoid(f) + m - top).exp(), (i - top).exp()
    C = keep[..., None] * C + add[..., None] * k[..., None] * v[..., None, :]
    n = keep * n + add * k
    total = torch.maximum((q * n).sum(-1, keepdim=True).abs(), (-top).exp()) + eps
    return ((q[..., None, :] @ C)[..., 0, :] / total).to(vecV.dtype), (C, n, top)


def sinkhorn(log_alpha, iters=20):
    x = log_alpha.float()
    for _ in range(iters):
        x = x.log_softmax(-2).log_softmax(-1)
    return x.exp().to(log_alpha.dtype)


def lstm_sequence(states_initial, Wx, R, b, output_gates_and_states_initial=False):
    h, c = states_initial.reshape(states_initial.shape[-4:]).float()
    states = []
    for x in Wx.float().unbind(1):
        gates = x.transpose(0, 1) + torch.einsum("gnoi,bni->gbno", R.float(), h) + b.float()[:, None]
        i, f, z, o = gates
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(torch.stack([h, c]))
    return torch.stack(states).to(Wx.dtype), states[-1].to(Wx.dtype)


def silu_and_mul(gate, up, offsets=None):
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)


def silu_and_mul_backward(grad_out, gate, up, offsets=None):
    g, x, u = grad_out.float(), gate.float(), up.float()
    s = x.sigmoid()
    return (g * u * (s + x * s * (1 - s))).to(gate.dtype), (g * x * s).to(up.dtype)


def lse_forward(e, c, valids=None, softcap=None, return_logit_avg=False):
    logits = (e if valids is None else e[valids]).float() @ c.float().mT
    logits = logits if softcap is None else softcap * (logits / softcap).tanh()
    return (logits.logsumexp(-1), logits.mean(0)) if return_logit_avg else logits.logsumexp(-1)


def indexed_neg_dot(e, c, inds, shift=False, valids=None, softcap=None, out_dtype=None):
    rows = torch.arange(e.shape[0], device=e.device) if valids is None else valids
    out = -(e[rows].float() * c[inds[rows + int(shift)]].float()).sum(-1)
    out = out if softcap is None else softcap * (out / softcap).tanh()
    return out.to(out_dtype or e.dtype)


def softmax_into(x, out):
    out.copy_(x.float().softmax(-1))


def layer_norm(x, gamma, beta, eps=1e-5):
    return F.layer_norm(x.float(), x.shape[-1:], gamma.float(), beta.float(), eps).to(x.dtype)


def lion_update(p, grad, exp_avg, lr, wd, beta1, beta2):
    diff = exp_avg - grad
    step = diff * beta1 + grad
    p.copy_(p * (1 - lr * wd) - lr * step.sign())
    exp_avg.copy_(diff * beta2 + grad)


_FP4, _AWQ = "modelopt.torch.kernels.quantization.gemm", "awq.modules.triton.gemm"
DRAWN = {
    "ra_forward": (
        "ring-attention-pytorch",
        "ring_attention_pytorch.triton_flash_attn:flash_attn_forward",
        "flash_forward",
    ),
    "mo_cast": ("nvidia-modelopt", f"{_FP4}.fp4_kernel:static_blockwise_fp4_cast", "fp4_cast"),
    "mo_dequant": ("nvidia-modelopt", f"{_FP4}.fp8_kernel:weight_dequant", "weight_dequant"),
    "la_srms": ("lightning-attn", "lightning_attn.ops.triton.srmsnorm:_SrmsNorm", "srms_norm"),
    "la_attention": (
        "lightning-attn",
        "lightning_attn.ops.triton.lightning_attn2:LightningAttention2",
        "lightning_attention",
    ),
    "ml_cumsum": (
        "mlstm-kernels",
        "mlstm_kernels.baselines.flash_linear_attention.fla_utils:chunk_reversed_cumsum_fwd",
        "reversed_cumsum",
    ),
    "ml_step": (
        "mlstm-kernels",
        "mlstm_kernels.torch.recurrent.triton_step:mlstm_recurrent_step__triton_fw",
        "mlstm_step",
    ),
    "hc_sinkhorn": ("hyper-connections", "hyper_connections.triton_sinkhorn:TritonSinkhornFunction", "sinkhorn"),
    "fr_lstm": ("flashrnn", "flashrnn.flashrnn.triton_fused.lstm_fw:forward_sequence", "lstm_sequence"),
    "tt_silu": ("torchtitan", "torchtitan.overrides.fused_swiglu:silu_and_mul_forward_kernel", "silu_and_mul"),
    "tt_backward": (
        "torchtitan",
        "torchtitan.overrides.fused_swiglu:silu_and_mul_backward_kernel",
        "silu_and_mul_backward",
    ),
    "cc_lse": ("cut-cross-entropy", "cut_cross_entropy.cce_lse_forward:cce_lse_forward_kernel", "lse_forward"),
    "cc_dot": ("cut-cross-entropy", "cut_cross_entropy.indexed_dot:indexed_neg_dot_forward_kernel", "indexed_neg_dot"),
    "hb_softmax": ("hipbridge", "hipbridge.kernels.wide:softmax", "softmax_into"),
    "hb_norm": ("hipbridge", "hipbridge.kernels.norm:layer_norm_affine_rowwise", "layer_norm"),
    "aw_gemm": ("autoawq", f"{_AWQ}:awq_gemm_triton", "awq_gemm"),
    "aw_dequantize": ("autoawq", f"{_AWQ}:awq_dequantize_triton", "awq_dequantize"),
    "li_update": ("lion-pytorch", "lion_pytorch.triton:update_fn", "lion_update"),
}
"""name -> folder to import from, function, reference: one of this file"""
