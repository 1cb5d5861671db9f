"""References of the tenth draw, one a function, written before the first try. Run by library_draws.py.

Of the libraries that the issue itself names, two functions each: the first two in the order of `library_draws.py list
CLONE --seed 10` that are in no earlier draw nor named in docs/, and that a reference of up to 20 lines can say, with
all options. Repositories of fla-org, BobMcDear, state-spaces, Dao-AILab, unslothai, ModelTC, meta-pytorch and pytorch
as of 2026-11-30; sglang 0.5.23 and vllm 0.33.0 of PyPI. CLONE is named as the folder in DRAWN. Liger's are in docs/.

Passed over, in that order. flash-linear-attention: `chunk_precond_kda_bwd_intra`, reference longer than 20 lines.
attorch: `ActFuncAutoGrad` and `CrossEntropyLossAutoGrad`, of earlier draws; `LayerNormAutoGrad` and `PLossAutoGrad`
(smooth L1), named in docs/library-histories.md; `DropoutAutoGrad`, random numbers. mamba: `compute_dqkv`, reference
longer than 20 lines. flash-attention: `flash_attn_triton_og._attention`, of the second draw. tritonbench:
`generalized_dot_product_attention`, whose 25 parameters take more than 20 lines. Of unsloth, sglang, vLLM, lightllm and
torchao none.
"""

# ruff: noqa: ARG001
# Names are those of the functions.

from itertools import pairwise

import torch
from torch.nn import functional as F  # noqa: N812


def nsa_compression(
    q, k, v, TK, block_size, scale, cu_seqlens_q=None, cu_seqlens_k=None, token_indices_q=None  # noqa: N803
):  # fmt: skip
    if cu_seqlens_q is not None:
        parts, begin = [], 0
        for (a, b), (c, d) in zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True):
            blocks = slice(begin, begin - (c - d) // block_size)
            parts.append(nsa_compression(q[:, a:b], k[:, blocks], v[:, blocks], d - c, block_size, scale))
            begin = blocks.stop
        return torch.cat([o for o, _ in parts], 1), torch.cat([lse for _, lse in parts], 1)
    groups = q.shape[2] // k.shape[2]
    key, value = (x.float().repeat_interleave(groups, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bqhk", q.float() * scale, key)
    visible = (torch.arange(q.shape[1], device=q.device) + TK - q.shape[1] + 1) // block_size
    hidden = torch.arange(k.shape[1], device=q.device) >= visible[:, None]
    scores = scores.masked_fill(hidden[None, :, None], -torch.inf)
    lse = scores.logsumexp(-1)
    none = lse == -torch.inf
    weights = scores.softmax(-1).masked_fill(none[..., None], 0.0)
    return torch.einsum("bqhk,bkhd->bqhd", weights, value).to(v.dtype), lse.masked_fill(none, 0.0)


def addcmul_backward(
    d_xr, d_xw, d_xk, d_xv, d_xa, d_xg, x_r, x_w, x_k, x_v, x_a, x_g, hidden_states, delta, use_xg, inplace=True
):
    count = 6 if use_xg else 5
    grads = [x.float() for x in (d_xr, d_xw, d_xk, d_xv, d_xa, d_xg)[:count]]
    hidden = sum(grads).to(hidden_states.dtype)
    if inplace:
        hidden = hidden_states.copy_(hidden)
    weights = (x_r, x_w, x_k, x_v, x_a, x_g)[:count]
    return hidden, sum(d * x.float() for d, x in zip(grads, weights, strict=True)).to(delta.dtype)


def linear(input, weight, bias=None, act_func=None):  # noqa: A002
    out = input.float() @ weight.float()
    if bias is not None:
        out = out + bias.float()
    if act_func == "geluapprox":
        out = F.gelu(out, approximate="tanh")
    elif act_func is not None:
        name, _, number = act_func.rpartition("_")
        parameters = [float(number)] if name else []
        out = getattr(F, name or act_func)(out, *parameters)
    return out.to(input.dtype)


def softmax(input, neg, log):  # noqa: A002
    x = -input.float() if neg else input.float()
    return (x.log_softmax(-1) if log else x.softmax(-1)).to(input.dtype)


def angle_dt_backward(
    grad_out, angle, dt, has_init_state=False, chunk_size=64, grad_output_state=None, cu_seqlens=None
):
    ends = [0, angle.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
    grad = torch.zeros_like(grad_out, dtype=torch.float32)
    states = []
    for place, (begin, end) in enumerate(pairwise(ends)):
        after = grad_out[:, begin:end].float().flip(1).cumsum(1).flip(1)
        if grad_output_state is not None:
            state = grad_output_state.float() if cu_seqlens is None else grad_output_state[place : place + 1].float()
            after = after + state[:, None]
        grad[:, begin:end] = after
        states.append(after[:, 0])
    tanh, steps = angle.float().tanh(), dt.float().transpose(1, 2)[..., None]
    grad_angle = (grad * steps * torch.pi * (1 - tanh.square())).to(angle.dtype)
    grad_dt = (grad * tanh * torch.pi).sum(-1).transpose(1, 2).to(dt.dtype)
    return grad_angle, grad_dt, torch.cat(states) if has_init_state else None


def reduce_grouped(dq_raw, dk_raw, num_qk_groups, block_m=64, block_n=None):
    grouped = [x.float().unflatten(3, (num_qk_groups, -1)).sum(4).to(x.dtype) for x in (dq_raw, dk_raw)]
    biases = [x.float().sum((0, 1)).transpose(0, 1) for x in (dq_raw, dk_raw)]
    return *grouped, *biases


def dgrad_act(grad_output, weight, activation="id", act_input=None):
    grad = grad_output.float() @ weight.float()
    if activation != "id":
        x = act_input.float().reshape(grad.shape).detach().requires_grad_()
        with torch.enable_grad():
            if activation == "squared_relu":
                out = F.relu(x).square()
            else:
                out = F.gelu(x, approximate="tanh" if activation == "gelu_approx" else "none")
            grad = torch.autograd.grad(out, x, grad)[0]
    return grad.to(grad_output.dtype)


def attention_kv_packed(q, kv, bias=None, causal=False, softmax_scale=None):
    key, value = kv.float().unbind(2)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), key) * scale
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value).to(q.dtype)


def rope(Q, cos, sin):  # noqa: N803
    half = Q.shape[-1] // 2
    cos, sin = (x.squeeze()[: Q.shape[1], None, :half].float() for x in (cos, sin))
    first, second = Q.float().split(half, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(Q.dtype)


def act_quant(x, block_size=128):
    blocks = x.float().unflatten(-1, (-1, block_size))
    scale = blocks.abs().amax(-1) / 448.0
    scale = torch.where(scale == 0, 1.0, scale)
    return (blocks / scale[..., None]).flatten(-2).to(torch.float8_e4m3fn), scale


def stage_commit(
    *,
    cache_loc_dst,
    positions_dst,
    commit_lens_dst,
    state_slot_dst,
    cache_loc,
    positions,
    commit_lens,
    state_slot,
    rows,
):
    cache_loc_dst[:rows] = cache_loc[:rows]
    positions_dst[:rows] = positions[:rows]
    if state_slot is not None:
        state_slot_dst[:rows] = state_slot[:rows]
    commit_lens_dst.zero_()
    commit_lens_dst[: commit_lens.shape[0]] = commit_lens


def last_loc(req_to_token, req_pool_indices_tensor, prefix_lens_tensor):
    places = (prefix_lens_tensor.long() - 1).clamp(min=0)
    tokens = req_to_token[req_pool_indices_tensor.long(), places]
    return torch.where(prefix_lens_tensor > 0, tokens.int(), -1).to(prefix_lens_tensor.dtype)


def update_drafts(
    draft_tokens, current_draft_step, hidden_states, output_draft_tokens, next_input_hidden_states, input_buffers,
    sample_src_positions, num_reqs, max_model_len, num_speculative_steps, advance_draft_positions=True,
):  # fmt: skip
    step = int(current_draft_step)
    output_draft_tokens[:num_reqs, step] = draft_tokens[:num_reqs]
    if step >= num_speculative_steps - 1:
        return
    sample_src_positions[:num_reqs] += 1
    input_buffers.input_ids[:num_reqs] = draft_tokens[:num_reqs]
    next_input_hidden_states[:num_reqs] = hidden_states[:num_reqs]
    if advance_draft_positions:
        positions, lengths = input_buffers.positions[:num_reqs], input_buffers.seq_lens[:num_reqs]
        positions.copy_((positions + 1).clamp(max=max_model_len - 1))
        lengths.copy_((lengths + 1).clamp(max=max_model_len))


def mtp_input(positions, inputs_embeds, previous_hidden_states, enorm_weight, hnorm_weight, eps):
    embeds = inputs_embeds.float() * (positions != 0)[:, None]
    pairs = ((embeds, enorm_weight), (previous_hidden_states.float(), hnorm_weight))
    normed = [x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.float() for x, weight in pairs]
    return torch.cat(normed, -1).to(inputs_embeds.dtype)


def rotary(q, k, cos, sin, partial_rotary_factor=1.0):
    dim = int(q.shape[2] * partial_rotary_factor)
    cos, sin = cos.float()[:, None, :dim], sin.float()[:, None, :dim]
    for x in (q, k):
        part = x[..., :dim].float()
        turned = torch.stack([-part[..., 1::2], part[..., ::2]], -1).flatten(-2)
        x[..., :dim] = part * cos + turned * sin


def int8_product(a, a_scale, b, b_scale, out=None):
    product = (a.double() @ b.double()).float() * a_scale.float()[:, None] * b_scale.float()
    return product.half() if out is None else out.copy_(product)


def int2(input_tensor):
    x = input_tensor.float().unflatten(-1, (-1, 4))
    codes = torch.where(x == -2, 0, torch.where(x == -1, 1, torch.where(x == 0, 2, 3)))
    return (codes << torch.arange(0, 8, 2, device=x.device)).sum(-1).to(torch.uint8).view(torch.int8)


def sum_1d(x, reduce_dim, sum_then_buffer):
    return x.float().sum(reduce_dim).to(x.dtype)


def hadamard_rope_quantize(q, k, v, cos, sin, num_chunks=None, rope_interleaved=False, v_only=False):
    size, sign, dtype = q.shape[3], torch.ones(1, 1, device=q.device), q.dtype
    while sign.shape[0] < size:
        sign = torch.cat([torch.cat([sign, sign], 1), torch.cat([sign, -sign], 1)])
    turned = []
    for x in (q.float(), k.float()):
        first, second = (x[..., ::2], x[..., 1::2]) if rope_interleaved else x.chunk(2, -1)
        other = torch.stack([-second, first], -1).flatten(-2) if rope_interleaved else torch.cat([-second, first], -1)
        turned.append(x * cos.float()[:, None] + other * sin.float()[:, None])
    parts = [x if v_only else x @ sign * size**-0.5 for x in turned] + [v.float() @ sign * size**-0.5]
    codes, scales = [], []
    for x, groups in zip((part.transpose(1, 2) for part in parts), (q.shape[2] // k.shape[2], 1, 1), strict=True):
        most = x.abs().unflatten(1, (-1, groups)).amax((2, 3, 4))
        scale = torch.where(most > 1e-12, 448.0 / most, 1.0).repeat_interleave(groups, 1)
        codes.append((x.to(dtype).float() * scale[..., None, None]).to(torch.float8_e4m3fn))
        scales.append(torch.where(most > 1e-12, most / 448.0, 1.0))
    return *codes, *scales


def weight_quant(x, block_size=128, dtype=torch.float8_e4m3fn):
    blocks = x.float().unflatten(0, (-1, block_size)).unflatten(2, (-1, block_size))
    top = torch.finfo(dtype).max
    scale = (top / blocks.abs().amax((1, 3)).clamp(min=1e-12).double()).float()
    codes = (blocks * scale[:, None, :, None]).clamp(-top, top).flatten(2).flatten(0, 1)
    return codes.to(dtype).T, (1.0 / scale).T


_MAMBA, _SGLANG, _TORCHAO = "mamba_ssm.ops.triton.mamba3", "sglang.kernels.ops", "torchao.prototype"
DRAWN = {
    "fla_nsa": ("flash-linear-attention", "fla.ops.nsa.compression:parallel_nsa_compression_fwd", "nsa_compression"),
    "fla_addcmul": ("flash-linear-attention", "fla.ops.rwkv7.fused_addcmul:addcmul_bwd1", "addcmul_backward"),
    "at_linear": ("attorch", "attorch.linear_layer:LinearAutoGrad", "linear"),
    "at_softmax": ("attorch", "attorch.softmax_layers:SoftmaxAutoGrad", "softmax"),
    "ma_angle": ("mamba", f"{_MAMBA}.angle_dt:angle_dt_bwd", "angle_dt_backward"),
    "ma_grouped": (
        "mamba",
        f"{_MAMBA}.grouped_head_reduction:reduce_grouped_qk_grads_and_bias_triton",
        "reduce_grouped",
    ),
    "fa_dgrad": ("flash-attention", "flash_attn.ops.triton.linear:triton_dgrad_act", "dgrad_act"),
    "fa_packed": ("flash-attention", "flash_attn.flash_attn_triton:FlashAttnKVPackedFunc", "attention_kv_packed"),
    "un_rope": ("unsloth", "unsloth.kernels.rope_embedding:Fast_RoPE_Embedding", "rope"),
    "un_quant": ("unsloth", "unsloth.kernels.fp8:act_quant", "act_quant"),
    "sg_commit": ("sglang", f"{_SGLANG}.speculative.dspark.stage_commit:stage_commit", "stage_commit"),
    "sg_last": ("sglang", f"{_SGLANG}.memory.common:get_last_loc_triton_safe", "last_loc"),
    "vl_drafts": (
        "vllm",
        "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator:update_draft_inputs",
        "update_drafts",
    ),
    "vl_mtp": ("vllm", "vllm.models.kimi_k3.common.mtp:fused_mtp_input", "mtp_input"),
    "ll_cohere": ("lightllm", "lightllm.models.cohere.triton_kernels.rotary_emb:rotary_emb_fwd", "rotary"),
    "ll_int8": ("lightllm", "lightllm.common.basemodel.triton_kernel.quantize_gemm_int8:matmul_int8", "int8_product"),
    "tb_int2": ("tritonbench", "tritonbench.operators.mixed_gemm.quantize:quantize_bf16_to_int2", "int2"),
    "tb_sum": ("tritonbench", "tritonbench.operators.sum.operator:execute_kernel_1D_result", "sum_1d"),
    "ao_hadamard": (
        "torchao",
        f"{_TORCHAO}.attention.quantization.triton_hadamard_rope_qkv_quantization:"
        "triton_fp8_hadamard_rope_sdpa_quantize",
        "hadamard_rope_quantize",
    ),
    "ao_weight": (
        "torchao",
        f"{_TORCHAO}.blockwise_fp8_training.kernels:triton_fp8_blockwise_weight_quant_transposed_rhs",
        "weight_quant",
    ),
}
"""name -> folder to import from, function, reference: one of this file"""
