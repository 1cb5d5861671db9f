"""References of the eleventh draw, one a function, written before the first try. Run by library_draws.py.

Of ten libraries as of 2026-12-01 two functions each: the first two in the order of `library_draws.py list CLONE
--seed 11` that a reference of up to 20 lines can say. CLONE is named as in DRAWN. lmdeploy and generative-recommenders
had other functions in earlier draws, and scattermoe's `scatter2scatter_compileable` was in the first, as axolotl's,
which was seen only afterwards. Of TransformerEngine none, as it can't be imported without its compiled part. Of
native-sparse-attention-pytorch none, as its three functions take more than 20 lines. Passed over: lmdeploy's
`build_prefill_sparse_indices`, as it is long.
"""

# ruff: noqa: ARG001
# Names are those of the functions.

from itertools import pairwise

import torch
from torch.nn import functional as F  # noqa: N812


def ordinal_lut(block_map):
    order = torch.argsort((block_map == 0).int(), dim=-1, stable=True)
    count = (block_map != 0).sum(-1)
    inside = torch.arange(block_map.shape[-1], device=block_map.device) < count[..., None]
    return torch.where(inside, order, 0).int(), count.int()


def qkv_pre(q, k, v, world_size, block_size=None, head_index=None):
    x = torch.stack([q, k, v], 1).unflatten(2, (world_size, -1)).permute(2, 0, 1, 3, 4)
    return x.contiguous() if head_index is None else x[:, :, :, head_index : head_index + 1].contiguous()


def ep_gather(input_tensor, recv_topk_ids, recv_topk_weight, input_index, output_tensor):
    picked = input_tensor[input_index.clamp(min=0).long()].float() * recv_topk_weight[..., None].float()
    output_tensor.copy_(torch.where((recv_topk_ids >= 0)[..., None], picked, 0.0).sum(1))


def rms_norm_quant(x, w, eps, residual=None, quant_dtype=torch.int8):
    if residual is not None:
        x = added = x + residual
    top = torch.finfo(quant_dtype).max if quant_dtype.is_floating_point else torch.iinfo(quant_dtype).max
    y = x.float() * (x.float().square().mean(-1, keepdim=True) + eps).rsqrt() * w.float()
    scale = y.abs().amax(-1, keepdim=True) / top
    codes = y / scale
    codes = (codes if quant_dtype.is_floating_point else codes.round()).clamp(-top, top).to(quant_dtype)
    return (codes, scale) if residual is None else (codes, scale, added)


def scatter_experts(output, W, X, k, sorted_expert_idxs, sorted_scattered_idxs, b, x_grouped, y_grouped):  # noqa: N803
    for place, expert in enumerate(sorted_expert_idxs.tolist()):
        slot = int(sorted_scattered_idxs[place])
        y = X[place if x_grouped else slot // k].float() @ W[expert].float()
        if b is not None:
            y = y + b[expert].float()
        output[place if y_grouped else slot] = y.to(output.dtype)


def group(A, K, N, Y, coeff, has_coeff, fan_out, sorted_expert_idxs):  # noqa: N803
    rows = A[sorted_expert_idxs.long() // fan_out]
    Y.copy_(rows * coeff[sorted_expert_idxs.long()][:, None] if has_coeff else rows)


def per_token(tensor, w_dtype, fp32_scale=True):
    limits = torch.finfo(w_dtype) if w_dtype.is_floating_point else torch.iinfo(w_dtype)
    rows = tensor.reshape(-1, tensor.shape[-1])
    rows = rows.float() if fp32_scale else rows
    scales = (rows.abs().amax(1, keepdim=True) / limits.max).clamp(min=1e-6)
    y = (rows / scales).clamp(limits.min, limits.max)
    y = y if w_dtype.is_floating_point else y.round()
    return y.to(w_dtype).reshape(tensor.shape), scales


def pack_cols(W_q, W_nbits, packing_bitwidth, transpose):  # noqa: N803
    dtype = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[packing_bitwidth]
    count = packing_bitwidth // W_nbits
    shifts = torch.arange(count, device=W_q.device) * W_nbits
    packed = (W_q.long().unflatten(1, (-1, count)) << shifts).sum(-1).to(dtype)
    return (packed.t() if transpose else packed), count


def softmax_grad(grad_output, output, n_rows, n_cols):
    d, y = grad_output.float(), output.float()
    return (y * (d - (d * y).sum(-1, keepdim=True))).to(grad_output.dtype)


def swiglu(a, b):
    flat = [x.reshape(-1, x.shape[-1]) for x in (a, b)]
    return *flat, (F.silu(a.float()) * b).to(a.dtype)


def product_of_codes(group_size, fA, qB, scales, zeros, bits):  # noqa: N803
    shifts = torch.arange(0, 32, bits, device=qB.device)
    codes = ((qB[..., None] >> shifts) & (2**bits - 1)).flatten(-2)
    weights = codes * scales.float().repeat_interleave(group_size, -1) + zeros.float().repeat_interleave(group_size, -1)
    return (fA.float() @ weights).half()


def decode_attention(q, k, v, block_idx, block_size, softmax_scale=None, gqa_interleave=False):
    groups = q.shape[2] // k.shape[2]
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    key, value = (
        x.float().repeat(1, 1, groups, 1) if gqa_interleave else x.float().repeat_interleave(groups, 2) for x in (k, v)
    )
    block = torch.arange(k.shape[1], device=q.device) // block_size
    counts = (block_idx[..., None] == block).sum(2)
    scores = torch.einsum("bqhd,bkhd->bhk", q.float(), key) * scale + counts.float().log()
    return torch.einsum("bhk,bkhd->bhd", scores.softmax(-1), value)[:, None].to(q.dtype)


def index_to_map(index, num_kv_blocks, transpose_map=False):
    shape = (*index.shape[:3], num_kv_blocks)
    return torch.zeros(shape, dtype=torch.bool, device=index.device).scatter_(3, index.long(), True)


def topk_mask(scores, topk):
    order = scores.argsort(dim=-1, descending=True, stable=True)[..., :topk]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, order, True)


def jagged_bmm_add(max_seq_len, seq_offsets, jagged, dense, bias, elementwise=False):
    parts = []
    for place, (begin, end) in enumerate(pairwise(seq_offsets.tolist())):
        added = bias[begin:end] if elementwise else bias[place]
        parts.append(jagged[begin:end].float() @ dense[place].float() + added.float())
    return torch.cat(parts).to(jagged.dtype)


def jagged_backward(max_seq_len, seq_offsets, d_jagged, dense, d_out, K, B, N):  # noqa: N803
    for place, (begin, end) in enumerate(pairwise(seq_offsets.tolist())):
        d_jagged[begin:end] = (d_out[begin:end].float() @ dense[place].float().T).to(d_jagged.dtype)
    return d_jagged


_FAST = "FastVideo/fastvideo-kernel/python"
DRAWN = {
    "lx_lut": ("LightX2V", "lightx2v.common.ops.attn.utils.sparge_util:block_map_ordinal_lut_triton", "ordinal_lut"),
    "lx_qkv": ("LightX2V", "lightx2v.common.ops.attn.kernels.ulysses_layout:qkv_pre", "qkv_pre"),
    "lm_gather": ("lmdeploy", "lmdeploy.pytorch.kernels.cuda.fused_moe_ep:ep_gather", "ep_gather"),
    "lm_norm": (
        "lmdeploy",
        "lmdeploy.pytorch.kernels.cuda.w8a8_triton_kernels:rms_norm_dynamic_quant",
        "rms_norm_quant",
    ),
    "sc_scatter": ("scattermoe", "scattermoe.kernels.ops:scatter2scatter_compileable", "scatter_experts"),
    "sc_group": ("scattermoe", "scattermoe.kernels.ops:group_compileable", "group"),
    "ge_token": ("gemlite", "gemlite.quant_utils:scale_activations_per_token_triton", "per_token"),
    "ge_pack": ("gemlite", "gemlite.bitpack:pack_weights_over_cols_triton", "pack_cols"),
    "of_softmax": (
        "openfold-3",
        "openfold3.core.kernels.triton.triton_softmax:softmax_grad_triton_kernel_wrapper",
        "softmax_grad",
    ),
    "of_swiglu": ("openfold-3", "openfold3.core.kernels.triton.swiglu:swiglu_forward", "swiglu"),
    "mi_product": ("MInference", "minference.modules.kivi:triton_bmm_fA_qB_outer", "product_of_codes"),
    "mi_decode": (
        "MInference",
        "minference.modules.flexprefill:triton_block_wise_decode_attention",
        "decode_attention",
    ),
    "fv_map": (_FAST, "fastvideo_kernel.triton_kernels.index:topk_index_to_map", "index_to_map"),
    "fv_mask": (_FAST, "fastvideo_kernel.triton_kernels.fused_compress_topk:fused_topk_mask", "topk_mask"),
    "gr_bmm": (
        "generative-recommenders",
        "generative_recommenders.ops.triton.triton_jagged:_JaggedDenseBmmAddFunction",
        "jagged_bmm_add",
    ),
    "gr_back": (
        "generative-recommenders",
        "generative_recommenders.ops.triton.triton_jagged:triton_jagged_dense_bmm_add_bwd_jagged",
        "jagged_backward",
    ),
}
"""name -> folder to import from, function, reference: one of this file"""
