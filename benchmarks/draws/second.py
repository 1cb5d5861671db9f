"""References of the second draw, one a function, written before the first try. Run by library_draws.py."""

# ruff: noqa: A002, ARG001, N803, N806
# Names are those of the functions.

from itertools import pairwise

import torch
from torch.nn import functional as F  # noqa: N812


def gather(x, indices, bin_ids, weights, bins, top_k):
    out = x[indices // top_k].float()
    if weights is not None:
        out = out * weights[indices].float()[:, None]
    return out.to(x.dtype)


def window_indices(kv_seqlens, start_pos, is_padded, window_size, block=128):
    bsz, padded = kv_seqlens.numel(), -(-window_size // block) * block
    offs = torch.arange(padded, device=kv_seqlens.device)
    window = kv_seqlens.clamp(max=window_size)
    ring = (kv_seqlens - window)[:, None] + offs
    rows = torch.arange(bsz, device=kv_seqlens.device)[:, None]
    indices = torch.where(offs < window[:, None], rows * window_size + ring % window_size, -1).to(torch.int32)
    pad = is_padded.bool()
    disabled = torch.full((bsz, 1, block), -1, dtype=torch.int32, device=kv_seqlens.device)
    return (
        indices[:, None],
        torch.where(pad, 1, window).to(torch.int32),
        (start_pos % window_size).to(torch.int32),
        disabled,
        pad.to(torch.int32),
    )


def quantize_nf4(A, blocksize, quant_type, blocks, absmax, num_elements, quantized_out):
    table = torch.tensor(
        [
            -1.0,
            -0.6961928,
            -0.5250731,
            -0.3949175,
            -0.2844414,
            -0.1847734,
            -0.0910500,
            0.0,
            0.0795803,
            0.1609302,
            0.2461123,
            0.3379152,
            0.4407098,
            0.5626170,
            0.7229568,
            1.0,
        ]
    )
    flat = F.pad(A.flatten().float(), (0, blocks * blocksize - num_elements)).view(blocks, blocksize)
    scale = flat.abs().amax(1)
    codes = (flat / scale[:, None]).unsqueeze(-1).sub(table).abs().argmin(-1).flatten()[:num_elements]
    absmax.copy_(scale)
    quantized_out.copy_((codes[0::2] << 4 | codes[1::2]).to(torch.uint8).view_as(quantized_out))
    return quantized_out, absmax


def group_mean(q):
    B, H, L, D = q.shape
    groups = q.view(B, H, L // 128, 128, D)
    mean = groups.float().mean(3, keepdim=True)
    return (groups - mean).to(q.dtype).view_as(q), mean.squeeze(3).to(q.dtype)


def jagged_bmm(max_seq_len, seq_offsets, jagged, dense):
    pieces = [jagged[int(seq_offsets[b]) : int(seq_offsets[b + 1])] @ dense[b] for b in range(dense.shape[0])]
    return torch.cat(pieces)


def xine_cache(lengths, cos_cache, sin_cache, is_prompts=False):
    if is_prompts:
        places = torch.cat([torch.arange(n, device=lengths.device) for n in lengths.tolist()])
    else:
        places = lengths.long()
    return cos_cache[places], sin_cache[places]


def collapse(pre, streams):
    return (pre.unsqueeze(-1).float() * streams.float()).sum(1)


def dropout(x, p):
    return F.dropout(x, p, training=True)


def attention_vec_mat(q, k, v, output, sm_scale):
    s = (q.float() @ k.float().mT * sm_scale).softmax(-1)
    return output.copy_(s @ v.float())


def batched_gemm(XQ, WQ, bias=None, dtype=torch.bfloat16):
    out = XQ.float() @ WQ.float().mT
    return (out if bias is None else out + bias).to(dtype)


def swiglu_fg(e, g):
    return F.silu(e) * g


def glu(input, dim, act_func):
    a, b = input.chunk(2, dim=dim)
    return a * getattr(torch, act_func, getattr(F, act_func, None))(b)


def group_norm_forward(X, num_channels, num_groups, W, B, eps):
    return F.group_norm(X, num_groups, W, B, eps)


def rotary_half(q, k, cos, sin):
    for x in (q, k):
        half = x.shape[-1] // 2
        a, b = x[..., :half:2].clone(), x[..., 1:half:2].clone()
        x[..., :half:2] = a * cos[:, None] - b * sin[:, None]
        x[..., 1:half:2] = a * sin[:, None] + b * cos[:, None]


def causal_attention(q, k, v, sm_scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=sm_scale)


def group_gemm(mat_a, mat_b, offs, trans_b):
    b = mat_b.mT if trans_b else mat_b
    begins = [0, *offs.tolist()]
    return torch.cat([mat_a[x:y] @ b[e] for e, (x, y) in enumerate(pairwise(begins))])


def sdpa(arg0_1, arg1_1, arg2_1):
    return F.scaled_dot_product_attention(arg0_1, arg1_1, arg2_1)


DRAWN = {
    "mb_gather": ("megablocks", "megablocks.backend.kernels:gather", "gather"),
    "lm_window": (
        "lmdeploy",
        "lmdeploy.pytorch.kernels.cuda.v4_sparse_indices:build_decode_window_sparse_indices",
        "window_indices",
    ),
    "bnb_quant4": (
        "bitsandbytes",
        "bitsandbytes.backends.triton.kernels_4bit:quantize_4bit_blockwise_triton",
        "quantize_nf4",
    ),
    "sage_group_mean": ("SageAttention/sageattention3_blackwell", "sageattn3.api:triton_group_mean", "group_mean"),
    "gr_jagged_mm": (
        "generative-recommenders",
        "generative_recommenders.ops.triton.triton_jagged:_JaggedDenseBmmFunction",
        "jagged_bmm",
    ),
    "ca_xine": ("ColossalAI", "colossalai.kernel.triton.rotary_cache_copy:get_xine_cache", "xine_cache"),
    "ax_collapse": ("axolotl/src", "axolotl.integrations.kernels.libs.dsv4.mhc:_Collapse", "collapse"),
    "tt_dropout": ("triton-transformer", "triton_transformer.dropout:dropout_", "dropout"),
    "kl_vecmat": ("kernl/src", "kernl.implementations.attention_vec_mat:AttentionVecMat", "attention_vec_mat"),
    "ai_bgemm": ("aiter", "aiter.ops.triton.gemm.batched.batched_gemm_bf16:batched_gemm_bf16", "batched_gemm"),
    "un_swiglu": ("unsloth", "unsloth.kernels.swiglu:swiglu_fg_kernel", "swiglu_fg"),
    "at_glu": ("attorch", "attorch.glu_layer:GLUAutoGrad", "glu"),
    "li_gn": ("Liger-Kernel/src", "liger_kernel.ops.group_norm:group_norm_forward", "group_norm_forward"),
    "ll_rotary": ("lightllm", "lightllm.models.chatglm2.triton_kernel.rotary_emb:rotary_emb_fwd", "rotary_half"),
    "fa_og": ("flash-attention", "flash_attn.flash_attn_triton_og:_attention", "causal_attention"),
    "ds_group_gemm": ("DeepSpeed", "deepspeed.ops.triton_ops.group_gemm_triton:_GroupGemmFn", "group_gemm"),
    "tb_attn": (
        "tritonbench",
        "tritonbench.operators.template_attention.triton_attention:triton_attention_no_exp2",
        "sdpa",
    ),
}
"""name -> folder to import from, function, reference: one of this file, or a path"""
