"""References of the first draw, one a function, written before the first try. Run by library_draws.py."""

# ruff: noqa: ARG001, N803
# Names are those of the functions.

import math
from itertools import pairwise

import torch


def padded_scatter(x, indices, bin_ids, weights, bins, padded_bins, top_k):
    out = torch.zeros(len(indices), x.shape[1], dtype=torch.float32, device=x.device)
    for i in range(len(indices)):
        b = int(bin_ids[i])
        row = i - (int(bins[b - 1]) if b else 0) + (int(padded_bins[b - 1]) if b else 0)
        scale = weights[indices[i]].float() if weights is not None else 1.0
        out[indices[i]] = x[row].float() * scale
    return out.to(x.dtype).view(-1, top_k, x.shape[1]).sum(1)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, softmax_scale=None, causal=False
):
    # q: (total, heads, dim); k, v: (kv_heads, total, dim)
    scale = softmax_scale or q.shape[-1] ** -0.5
    out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)
    cuts = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    for (a, b), (c, d) in cuts:
        group = q.shape[1] // k.shape[0]
        kk, vv = k[:, c:d].repeat_interleave(group, 0), v[:, c:d].repeat_interleave(group, 0)
        s = q[a:b].transpose(0, 1).float() @ kk.float().mT * scale
        if causal:
            mask = torch.ones(b - a, d - c, dtype=torch.bool, device=q.device).tril((d - c) - (b - a))
            s = s.masked_fill(~mask, -math.inf)
        out[a:b] = (s.softmax(-1) @ vv.float()).transpose(0, 1).to(q.dtype)
    return out


def dequant_8bit_blockwise(a, absmax, quant_state_code, quant_blocksize=64, dtype=torch.float32):
    scale = absmax.repeat_interleave(quant_blocksize)[: a.numel()].reshape(a.shape)
    return (quant_state_code[a.long()] * scale).to(dtype)


def sage_forward(q, k, v, q_scale, k_scale, output_dtype=torch.float16):
    # q, k: int8 (batch, heads, length, dim), scales for 128 and 64 rows; softmax to the base 2
    qs = q_scale.repeat_interleave(128, -1)[..., : q.shape[2], None]
    ks = k_scale.repeat_interleave(64, -1)[..., : k.shape[2], None]
    group = q.shape[1] // k.shape[1]
    kk = (k.float() * ks).repeat_interleave(group, 1)
    s = (q.float() * qs) @ kk.mT * math.log(2)
    return (s.softmax(-1) @ v.float().repeat_interleave(group, 1)).to(output_dtype)


def jagged_bmm_add(max_seq_len, seq_offsets, jagged, dense, bias):
    out = []
    for b in range(dense.shape[0]):
        begin, end = int(seq_offsets[b]), int(seq_offsets[b + 1])
        out.append(jagged[begin:end] @ dense[b] + bias[b])
    return torch.cat(out)


def copy_kv_to_blocked_cache(k, v, k_cache, v_cache, kv_lengths, block_tables):
    size = k_cache.shape[2]
    for b in range(k.shape[0]):
        last = int(kv_lengths[b]) - 1
        block = block_tables[b, last // size]
        k_cache[block, :, last % size] = k[b]
        v_cache[block, :, last % size] = v[b]


def scatter2scatter(output, W, X, k, sorted_expert_idxs, sorted_scattered_idxs, b, x_grouped, y_grouped):
    for row, (expert, place) in enumerate(
        zip(sorted_expert_idxs.tolist(), sorted_scattered_idxs.tolist(), strict=True)
    ):
        value = X[row if x_grouped else place // k] @ W[expert]
        output[row if y_grouped else place] = value if b is None else value + b[expert]


def kernl_attention(q, k, v, output, sm_scale, is_causal=False, attention_mask=None):
    s = q.float() @ k.float().mT * sm_scale
    if attention_mask is not None:
        s = s + attention_mask.float()
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
    output.copy_(s.softmax(-1) @ v.float())
    return output


def moe_align(topk_ids, num_experts, block_size, sorted_token_ids, expert_ids, num_tokens_post_pad):
    at = 0
    for expert in range(num_experts):
        (places,) = torch.where(topk_ids.flatten() == expert)
        sorted_token_ids[at : at + len(places)] = places.to(sorted_token_ids.dtype)
        blocks = -(-len(places) // block_size)
        expert_ids[at // block_size : at // block_size + blocks] = expert
        at += blocks * block_size
    num_tokens_post_pad[0] = at


def mlstm_step(matC_old, vecN_old, scaM_old, vecQ, vecK, vecV, scaI, scaF, eps=1e-6):
    f = torch.nn.functional.logsigmoid(scaF)
    m = torch.maximum(f + scaM_old, scaI)
    fa, ia = torch.exp(f + scaM_old - m), torch.exp(scaI - m)
    q = vecQ * vecQ.shape[-1] ** -0.5
    c = fa[..., None] * matC_old + ia[..., None] * (vecK[..., :, None] * vecV[..., None, :])
    n = fa * vecN_old + ia * vecK
    h = (q[..., None, :] @ c).squeeze(-2) / (torch.maximum((q * n).sum(-1, keepdim=True).abs(), torch.exp(-m)) + eps)
    return h.to(vecV.dtype), c, n, m


def complex_scan(forget, inputs):
    state, out = torch.zeros_like(inputs[..., 0]), []
    for t in range(inputs.shape[-1]):
        state = forget[..., t] * state + inputs[..., t]
        out.append(state)
    return torch.stack(out, -1)


def geglu_approx(gate, up):
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def dyt(x, alpha, gamma, beta):
    return gamma * torch.tanh(alpha * x) + beta


def token_shift(x):
    before = torch.zeros_like(x)
    before[:, 1:] = x[:, :-1]
    return before - x


def mla_context(
    q_nope,
    q_rope,
    kv_nope,
    kv_rope,
    o,
    b_req_idx,
    b_start_loc,
    b_seq_len,
    b_prompt_cache_len,
    max_input_len,
    req_to_token_indexs,
    softmax_scale,
):
    for b in range(len(b_seq_len)):
        total, cached, begin = int(b_seq_len[b]), int(b_prompt_cache_len[b]), int(b_start_loc[b])
        new = total - cached
        places = req_to_token_indexs[b_req_idx[b], :total].long()
        kv, kr = kv_nope[places, 0].float(), kv_rope[places, 0].float()
        qn, qr = (
            q_nope[begin : begin + new].transpose(0, 1).float(),
            q_rope[begin : begin + new].transpose(0, 1).float(),
        )
        s = (qn @ kv.mT + qr @ kr.mT) * softmax_scale
        s = s.masked_fill(~torch.ones(new, total, dtype=torch.bool, device=s.device).tril(cached), -1e8)
        o[begin : begin + new] = (s.softmax(-1) @ kv).transpose(0, 1).to(o.dtype)


def swiglu(xy):
    x, y = xy.chunk(2, dim=-1)
    return torch.nn.functional.silu(x) * y


def flash_attn_func(q, k, v, bias=None, causal=False, softmax_scale=None):
    q, k, v = (t.transpose(1, 2).float() for t in (q, k, v))
    s = q @ k.mT * (softmax_scale or q.shape[-1] ** -0.5)
    if bias is not None:
        s = s + bias
    if causal:
        s = s.masked_fill(
            ~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(s.shape[-1] - s.shape[-2]), -math.inf
        )
    return (s.softmax(-1) @ v).transpose(1, 2)


def layer_norm(primals_1, primals_2, primals_3):
    y = torch.nn.functional.layer_norm(primals_3.float(), primals_3.shape[1:], primals_1, primals_2)
    return y.to(torch.bfloat16)


DRAWN = {
    "mb_padded_scatter": ("megablocks", "megablocks.backend.kernels:padded_scatter", "padded_scatter"),
    "lm_varlen": (
        "lmdeploy",
        "lmdeploy.pytorch.kernels.cuda.flashattention:flash_attn_varlen_func",
        "flash_attn_varlen_func",
    ),
    "bnb_dequant": (
        "bitsandbytes",
        "bitsandbytes.backends.triton.kernels_8bit_quant:dequant_8bit_blockwise",
        "dequant_8bit_blockwise",
    ),
    "sage_forward": ("SageAttention", "sageattention.triton.attn_qk_int8_per_block:forward", "sage_forward"),
    "gr_jagged_bmm": (
        "generative-recommenders",
        "generative_recommenders.ops.triton.triton_jagged:_JaggedDenseBmmBroadcastAddFunction",
        "jagged_bmm_add",
    ),
    "ca_copy_kv": (
        "ColossalAI",
        "colossalai.kernel.triton.kvcache_copy:copy_kv_to_blocked_cache",
        "copy_kv_to_blocked_cache",
    ),
    "ax_scatter2scatter": (
        "axolotl/src",
        "axolotl.integrations.kernels.libs.scattermoe_lora.kernels.ops:scatter2scatter_compileable",
        "scatter2scatter",
    ),
    "tt_bmm": ("triton-transformer", "triton_transformer.bmm:triton_bmm", "torch.bmm"),
    "kl_attention": ("kernl/src", "kernl.implementations.attention:Attention", "kernl_attention"),
    "ai_moe_align": ("aiter", "aiter.ops.triton.moe.moe_align_block_size:moe_align_block_size_triton", "moe_align"),
    "ml_step": (
        "mlstm_kernels",
        "mlstm_kernels.torch.recurrent.triton_step:mlstm_recurrent_step__triton_fw",
        "mlstm_step",
    ),
    "as_complex": ("accelerated-scan", "accelerated_scan.complex:Scan", "complex_scan"),
    "ds_fill": (
        "DeepSpeed",
        "deepspeed.moe.ep_kernels:fill_indices_wrapper",
        "deepspeed.moe.ep_kernels.fill_indices_cpu",
    ),
    "un_geglu": ("unsloth", "unsloth.kernels.geglu:geglu_approx_forward_kernel", "geglu_approx"),
    "at_xent": (
        "attorch",
        "attorch.cross_entropy_loss_layer:CrossEntropyLossAutoGrad",
        "torch.nn.functional.cross_entropy",
    ),
    "li_dyt": ("Liger-Kernel/src", "liger_kernel.ops.dyt:LigerDyTFunction", "dyt"),
    "fla_shift": ("flash-linear-attention", "fla.modules.token_shift:TokenShift", "token_shift"),
    "ll_mla": (
        "lightllm",
        "lightllm.models.deepseek2.triton_kernel.context_flashattention_nopad:context_attention_fwd",
        "mla_context",
    ),
    "ma_swiglu": ("mamba", "mamba_ssm.ops.triton.k_activations:SwiGLU", "swiglu"),
    "fa_attn": ("flash-attention", "flash_attn.flash_attn_triton:FlashAttnFunc", "flash_attn_func"),
    "tb_layer_norm": (
        "tritonbench",
        "tritonbench.operators.welford.triton_welford:fused_native_layer_norm_no_welford",
        "layer_norm",
    ),
}
"""name -> folder to import from, function, reference: one of this file, or a path"""
