"""References of the fourth draw, one a function, written before the first try. Run by library_draws.py."""

# ruff: noqa: A002, ARG001, N803
# Names are those of the functions.

import math

import torch
from torch.nn import functional as F  # noqa: N812


def kda_intra(q, k, gk, beta, Aqk, Akk, scale, cu_seqlens=None, chunk_size=64, sub_chunk_size=16):
    batch, length, heads, gates = *q.shape[:3], gk.shape[2]
    cuts = cu_seqlens.tolist() if cu_seqlens is not None else [b * length for b in range(batch + 1)]
    q, k = (x.reshape(batch * length, heads, -1).float().repeat_interleave(gates // heads, 1) for x in (q, k))
    g, b = gk.reshape(batch * length, gates, -1).float(), beta.reshape(batch * length, gates).float()
    qk, kk = Aqk.view(batch * length, gates, -1), Akk.view(batch * length, gates, -1)
    for i in range(batch * length):
        begin = max(cut for cut in cuts if cut <= i)
        first = i - (i - begin) % chunk_size % sub_chunk_size
        for j in range(first, i + 1):
            decayed = k[j] * torch.exp2(g[i] - g[j])
            qk[i, :, (j - begin) % chunk_size] = (q[i] * decayed).sum(-1) * scale
            kk[i, :, j - first] = (k[i] * decayed).sum(-1) * b[i] * (j < i)
    return Aqk, Akk


def gate_correction(o, r, k, r_k, v, g):
    correction = ((r.float() * k.float() * r_k.float()).sum(-1, keepdim=True) * v.float()).view(o.shape)
    return ((o.float() + correction) * g.float()).to(o.dtype)


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // size, slot % size] = key[token]
            value_cache[slot // size, slot % size] = value[token]


def sparse_product(k, v):
    return (k.float() @ v.float()).to(k.dtype)


def prefix_indices(num_compressed, block_offsets, block_size, compress_ratio, max_topk=None, block=128):
    entries = block_size // compress_ratio
    top = max(block_offsets.shape[1] * block_size // compress_ratio, 1) if max_topk is None else max_topk
    at = torch.arange(-(-top // block) * block, device=block_offsets.device)
    of = at * compress_ratio // block_size
    physical = block_offsets[:, of.clamp(max=block_offsets.shape[1] - 1)].long() * entries + at % entries
    keep = (at < num_compressed[:, None]) & (of < block_offsets.shape[1])
    return torch.where(keep, physical, -1).to(torch.int32)[:, None]


def copy_to(K, DestLoc, Out):
    Out[DestLoc.long()] = K


def rotary(q, k, cos, sin, k_cache=None, block_tables=None, kv_lengths=None):
    for x in (q, k):
        half = x.shape[-1] // 2
        c, s = cos[: len(x), None, :half], sin[: len(x), None, :half]
        a, b = x[..., :half].clone(), x[..., half:].clone()
        x[..., :half], x[..., half:] = a * c - b * s, a * s + b * c
    if k_cache is not None:
        for token, length in enumerate(kv_lengths.tolist()):
            block = block_tables[token, (length - 1) // k_cache.shape[2]]
            k_cache[block, :, (length - 1) % k_cache.shape[2]] = k[token]


def sinkgd(p, grad, lr, weight_decay, iters, eps):
    x = grad.float()
    for _ in range(iters):
        x = x * x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True).clamp(min=eps)
        x = x * x.shape[-2] ** 0.5 / x.norm(dim=-2, keepdim=True).clamp(min=eps)
    p.copy_(p.float() * (1 - lr * weight_decay) - lr * x)


def diversity(embeddings):
    products = embeddings.float() @ embeddings.float().mT
    others = products.sum(-1) - products.diagonal(dim1=-2, dim2=-1)
    return others / max(embeddings.shape[1] - 1, 1)


def reversed_cumsum(s, dtype=None):
    return s.float().flip(2).cumsum(2).flip(2).to(dtype or s.dtype)


def rms_norm(x, weight, eps):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def norm_residual(a, input_bias, residual, weight, bias, eps):
    x = a.float() + residual.float() + (0 if input_bias is None else input_bias.float())
    return F.layer_norm(x, x.shape[-1:], weight.float(), bias.float(), eps).to(a.dtype)


def scatter_wgrad(x, grad, indices, bin_ids, bins, padded_bins, top_k):
    out = torch.empty(len(indices) // top_k * top_k, dtype=x.dtype, device=x.device)
    for i, (place, b) in enumerate(zip(indices.tolist(), bin_ids.tolist(), strict=True)):
        row = i - (int(bins[b - 1]) if b else 0) + (int(padded_bins[b - 1]) if b else 0)
        out[place] = (x[row].float() * grad[place // top_k].float()).sum()
    return out


NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
FP4 = (0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)


def dequant_4bit(A, absmax, blocksize, quant_type, dtype, out):
    values = (*FP4, *(-one for one in FP4)) if quant_type == "fp4" else NF4
    codes = torch.stack([A.flatten() >> 4, A.flatten() & 15], -1).flatten().long()[: out.numel()]
    table = torch.tensor(values, device=A.device)
    scale = absmax.float().repeat_interleave(blocksize)[: out.numel()]
    out.copy_((table[codes] * scale).view_as(out))


def scan(forget, inputs):
    state, out = torch.zeros_like(inputs[..., 0]), []
    for t in range(inputs.shape[-1]):
        state = forget[..., t] * state + inputs[..., t]
        out.append(state)
    return torch.stack(out, -1)


def skinny_attention(q, k, v, output, sm_scale, is_causal, attention_mask=None):
    s = q.float() @ k.float().mT * sm_scale
    if attention_mask is not None:
        s = s + attention_mask.float()
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
    return output.copy_(s.softmax(-1) @ v.float())


def segsum(da, chunk_size):
    chunks = da.float().unflatten(-1, (-1, chunk_size))
    sums = chunks.cumsum(-1)
    rest = sums[..., -1:] - sums
    below = torch.ones(chunk_size, chunk_size, device=da.device).tril(-1)
    pairs = (chunks[..., None] * below).cumsum(-2)
    return tuple(x.clamp(max=0).to(da.dtype) for x in (sums.view(da.shape), rest.view(da.shape), pairs))


def tutorial_norm(x, normalized_shape, weight, bias, eps):
    return F.layer_norm(x, normalized_shape, weight, bias, eps)


def kl_div(y_pred, y_true, log_target, reduction, eps):
    y, t = y_pred.float(), y_true.float()
    loss = t.exp() * (t - y) if log_target else t * (t.clamp(min=eps).log() - y)
    if reduction == "none":
        return loss
    return {"sum": loss.sum(), "mean": loss.mean(), "batchmean": loss.sum() / len(loss)}[reduction]


def csr_to_dense(kv_indices, kv_indptr, dense_table, max_ctx, bs):
    for b in range(bs):
        row = kv_indices[int(kv_indptr[b]) : int(kv_indptr[b + 1])]
        dense_table[b, : len(row)] = row


def sage_causal(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, q_scale, k_scale, cu_seqlens_q_scale, cu_seqlens_k_scale,
    output_dtype=torch.float16,
):  # fmt: skip
    out, group = torch.zeros(q.shape, dtype=output_dtype, device=q.device), q.shape[1] // k.shape[1]
    for i in range(len(cu_seqlens_q) - 1):
        a, b, c, d = (int(x) for x in (*cu_seqlens_q[i : i + 2], *cu_seqlens_k[i : i + 2]))
        qs = q_scale.view(-1, q.shape[1])[int(cu_seqlens_q_scale[i]) :].repeat_interleave(128, 0)[: b - a, :, None]
        ks = k_scale.view(-1, k.shape[1])[int(cu_seqlens_k_scale[i]) :].repeat_interleave(64, 0)[: d - c, :, None]
        kk = (k[c:d].float() * ks).repeat_interleave(group, 1).transpose(0, 1)
        s = (q[a:b].float() * qs).transpose(0, 1) @ kk.mT * math.log(2)
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=q.device).tril(), -math.inf)
        vv = v[c:d].float().repeat_interleave(group, 1).transpose(0, 1)
        out[a:b] = (s.softmax(-1) @ vv).transpose(0, 1).to(output_dtype)
    return out


def weight_dequant(x, s, block_size=128, dtype=torch.bfloat16):
    scale = s.float().repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
    return (x.float() * scale[: x.shape[0], : x.shape[1]]).to(dtype)


def activation(input, act_func, drop_p, training):
    name, _, number = act_func.rpartition("_")
    if act_func == "geluapprox":
        return F.gelu(input, approximate="tanh")
    if name:
        return getattr(F, name)(input, float(number))
    return getattr(F, act_func)(input)


DRAWN = {
    "fla_kda_intra": (
        "flash-linear-attention",
        "fla.ops.kda.chunk_intra_token_parallel:chunk_kda_fwd_intra_token_parallel",
        "kda_intra",
    ),
    "fla_gate": (
        "flash-linear-attention",
        "fla.ops.rwkv7.gate_output_correction:GateOutputCorrection",
        "gate_correction",
    ),
    "fg_cache": (
        "FlagGems/src",
        "flag_gems.fused.reshape_and_cache_flash:reshape_and_cache_flash",
        "reshape_and_cache",
    ),
    "fg_sparse": ("FlagGems/src", "flag_gems.fused.rwkv_mm_sparsity:rwkv_mm_sparsity", "sparse_product"),
    "lm_prefix": (
        "lmdeploy",
        "lmdeploy.pytorch.kernels.cuda.v4_sparse_indices:build_decode_prefix_compressed_sparse_indices",
        "prefix_indices",
    ),
    "ll_copy_kv": (
        "lightllm",
        "lightllm.common.basemodel.triton_kernel.destindex_copy_kv:destindex_copy_kv",
        "copy_to",
    ),
    "ca_rotary": ("ColossalAI", "colossalai.kernel.triton.no_pad_rotary_embedding:rotary_embedding", "rotary"),
    "ax_sinkgd": ("axolotl/src", "axolotl.utils.optimizers.sinkgd_triton:fused_sinkgd_step", "sinkgd"),
    "ax_diversity": ("axolotl/src", "axolotl.core.trainers.ebft.kernels:fused_diversity_penalty", "diversity"),
    "ml_cumsum": (
        "mlstm_kernels",
        "mlstm_kernels.baselines.flash_linear_attention.fla_utils:chunk_reversed_cumsum_fwd",
        "reversed_cumsum",
    ),
    "gr_rms_norm": (
        "generative-recommenders",
        "generative_recommenders.ops.triton.triton_layer_norm:RMSNormFunction",
        "rms_norm",
    ),
    "ds_norm": (
        "DeepSpeed",
        "deepspeed.ops.transformer.inference.triton.layer_norm:layer_norm_residual",
        "norm_residual",
    ),
    "mb_scatter_wgrad": ("megablocks", "megablocks.backend.kernels:padded_scatter_wgrad", "scatter_wgrad"),
    "bnb_dequant4": ("bitsandbytes", "bitsandbytes.backends.triton.kernels_4bit:dequantize_4bit_impl", "dequant_4bit"),
    "as_scan": ("accelerated-scan", "accelerated_scan.scalar:Scan", "scan"),
    "kl_skinny": ("kernl/src", "kernl.implementations.attention_skinny:SkinnyAttention", "skinny_attention"),
    "ma_segsum": ("mamba", "mamba_ssm.ops.triton.mamba3.mamba3_mimo_utils:compute_dacs_segsum_triton", "segsum"),
    "tb_norm": ("tritonbench", "tritonbench.operators.layer_norm.tutorial:LayerNorm", "tutorial_norm"),
    "li_kl_div": ("Liger-Kernel/src", "liger_kernel.ops.kl_div:kldiv_forward_triton", "kl_div"),
    "ai_csr": ("aiter", "aiter.ops.triton.attention.mla_decode:csr_to_dense_block_table", "csr_to_dense"),
    "sage_causal": (
        "SageAttention",
        "sageattention.triton.attn_qk_int8_per_block_causal_varlen:forward",
        "sage_causal",
    ),
    "un_dequant": ("unsloth", "unsloth.kernels.fp8:weight_dequant_block", "weight_dequant"),
    "at_act": ("attorch", "attorch.act_layers:ActFuncAutoGrad", "activation"),
}
"""name -> folder to import from, function, reference: one of this file, or a path"""
