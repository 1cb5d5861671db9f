"""References of the ninth draw, one a function, written before the first try. Run by library_draws.py.

23 packages and repositories, of which no function was ever tried. Those of PyPI with "triton" in name or summary, in no
draw before, in which `library_draws.py list` finds functions: torch-fps and cuda-triton-multiarch. The others are known
to ship Triton kernels, and were listed by hand before their functions were read: axolotl, exllamav3, fouroversix,
lightning-thunder, megatron-core, protenix, rwkv-ops, torchmd-net (`list` finds nothing in it), trifast and verl, of
PyPI or as repositories; and the repositories accelerated-model-architectures, applied-ai, FastVideo, FBGEMM,
GPTQ-for-LLaMa, lightplane, native-sparse-attention-triton, SpargeAttn, Sparse-VideoGen, torchft, TransformerEngine.
Sorted, in the order of `random.Random(2026120109).sample`, until there were 18 functions: of each the first two in the
order of `library_draws.py list --seed 9` that a reference of up to 20 lines can say. So 10 of them are here. Left out:
lightning-thunder, which cannot be imported beside torch 2.13; lightplane's renderer, which takes objects of the
package's classes, and its random numbers; verl's `STEFP4QuantTriton`, which only calls the function before it;
axolotl's and applied-ai's that take tables of a layout or pointers; backward passes of attention (applied-ai, trifast);
torchft's, which takes lists of tensors and packs scales into their bytes; fouroversix', which searches its scales.
GPTQ-for-LLaMa's file says that it is based on gptq-triton, of an earlier draw.
"""

# ruff: noqa: ARG001, N803
# Names are those of the functions.

from itertools import pairwise

import torch
from torch.nn import functional as F  # noqa: N812


def tri_attention(Q, K, V, Bias1, Bias2, deterministic=False):
    scores = torch.einsum("bnqhd,bnkhd->bnhqk", Q.float(), K.float()) + Bias1.float() + Bias2.float()
    return torch.einsum("bnhqk,bnkhd->bnqhd", scores.softmax(-1), V.float()).to(Q.dtype)


def fp4_fake_quant(weight, global_amax=None, block_size=16, tile_rows=16, tile_cols=64):
    x = weight.float()
    scale = (x.abs().max() if global_amax is None else global_amax.float()) / (6.0 * 448.0)
    blocks = F.pad(x, (0, -x.shape[-1] % block_size)).unflatten(-1, (-1, block_size))
    most = blocks.abs().amax(-1, keepdim=True) / (6.0 * torch.where(scale > 0, scale, 1e-12))
    most = most.clamp(max=448.0).to(torch.float8_e4m3fn).float() * scale
    most = torch.where(most >= 1e-5, most, 1.0)
    middles, up = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), (0, 1, 0, 1, 0, 1, 0)
    size, least, up = ((blocks.abs() / most)[..., None], *(torch.tensor(y, device=x.device) for y in (middles, up)))
    place = ((size > least) | ((size == least) & (up == 1))).sum(-1)  # ties go to the even code
    values = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), device=x.device)[place] * most
    return values.copysign(blocks).flatten(-2)[..., : x.shape[-1]].to(weight.dtype)


def entropy_forward(hidden, weight, labels, reduction=2, temperature=1.0, dist_process_group=None):
    logits = hidden.float() @ weight.float().T / temperature
    maximum = logits.amax(-1).clamp(min=0)  # as the kernel begins with 0
    parts = (logits - maximum[:, None]).exp()
    total = parts.sum(-1)
    mean = (parts * logits).sum(-1) / total
    logprobs = logits.gather(-1, labels[:, None])[:, 0] - maximum - total.log()
    logprobs = (logprobs, logprobs.sum(), logprobs.mean())[reduction]
    return logprobs, total.log() + maximum - mean, maximum, total, mean


def _gptq_weight(qweight, scales, qzeros, g_idx, bits, maxq):
    shifts = torch.arange(0, 32, bits, device=qweight.device)
    codes = (qweight[:, None] >> shifts[:, None] & maxq).flatten(0, 1)
    zeros = (qzeros[..., None] >> shifts & maxq).flatten(1) + 1
    return (codes - zeros[g_idx]) * scales.float()[g_idx]


def quant_linear(input, qweight, scales, qzeros, g_idx, bits, maxq):  # noqa: A002
    return (input.float() @ _gptq_weight(qweight, scales, qzeros, g_idx, bits, maxq)).half()


def transposed_quant_linear(input, qweight, scales, qzeros, g_idx, bits, maxq):  # noqa: A002
    return (input.float() @ _gptq_weight(qweight, scales, qzeros, g_idx, bits, maxq).T).half()


def cross_entropy(x, labels, reduction, logits_multiplier):
    logits = x.float() if logits_multiplier is None else x.float() * logits_multiplier
    return F.cross_entropy(logits, labels, reduction=reduction)


def group(A, sorted_expert_idxs, out, coeff=None, fan_out=1):
    rows = A[sorted_expert_idxs // fan_out].float()
    out.copy_(rows if coeff is None else rows * coeff.float()[sorted_expert_idxs][:, None])


def jagged_softmax(x, x_offsets, max_seq_len):
    out = torch.zeros_like(x)
    for begin, end in pairwise(x_offsets.tolist()):
        rows = slice(begin, min(end, begin + max_seq_len))
        out[rows] = x[rows].float().softmax(0).to(x.dtype)
    return out


def jagged2_to_padded(values, lengths, offsets, max_length, padding_value):
    shape = (offsets.shape[0] - 1, max_length, max_length)
    out = torch.full(shape, padding_value, dtype=values.dtype, device=values.device)
    for square, length, begin in zip(out, lengths.tolist(), offsets.tolist(), strict=False):
        side = min(length, max_length)
        square[:side, :side] = values[begin : begin + side * side].view(side, side)
    return out


def rms_norm_linear(streams_flat, fn, eps, BM):
    x = streams_flat.float()
    return (x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()) @ fn.float().T


def gated(gu, limit, act_type="silu", bpm=512):
    gate, up = gu.float().chunk(2, -1)
    if act_type == "gelu_tanh":
        return (F.gelu(gate, approximate="tanh") * up).to(gu.dtype)
    return (F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)).to(gu.dtype)


def matmul_half(a, b):
    return (a.float() @ b.float()).half()


def causal_conv1d(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False,
                  final_states_out=None, activation=None):  # fmt: skip
    width = weight.shape[1]
    before = x.new_zeros(*x.shape[:2], width - 1) if initial_states is None else initial_states
    padded = torch.cat([before, x], -1).float()
    out = F.conv1d(padded, weight.float()[:, None], None if bias is None else bias.float(), groups=x.shape[1])
    return (F.silu(out) if activation in ("silu", "swish") else out).to(x.dtype)


def masked_update(states, idx, new_states):
    for place, row in zip(idx.tolist(), new_states, strict=True):
        if place != -1:
            states[place] = row


def rms_norm(x, weight, eps, zero_centered_gamma):
    normed = x.float() * (x.float().square().mean(-1, keepdim=True) + eps).rsqrt()
    return (normed * (weight.float() + float(zero_centered_gamma))).to(x.dtype)


def _int8_blocks(x, size, blocks):
    padded = F.pad(x.float(), (0, 0, 0, blocks * size - x.shape[2])).unflatten(2, (blocks, size))
    scale = padded.abs().amax((-1, -2), keepdim=True) / 127.0 + 1e-7
    codes = padded / scale
    codes = (codes + torch.where(codes >= 0, 0.5, -0.5)).trunc().to(torch.int8)
    return codes.flatten(2, 3)[:, :, : x.shape[2]], scale[..., 0]


def per_warp_int8(q, k, BLKQ=128, WARPQ=32, BLKK=64, WARPK=64, tensor_layout="HND"):
    heads_first = tensor_layout == "HND"
    q, k = (x if heads_first else x.transpose(1, 2) for x in (q, k))
    blocks = [-(-x.shape[2] // size) * (size // part) for x, size, part in ((q, BLKQ, WARPQ), (k, BLKK, WARPK))]
    (q, q_scale), (k, k_scale) = _int8_blocks(q, WARPQ, blocks[0]), _int8_blocks(k, WARPK, blocks[1])
    q, k = (x if heads_first else x.transpose(1, 2) for x in (q, k))
    return q, q_scale, k, k_scale


def pool_similarity(x, block_size, simthreshd1):
    blocks = x.float().split(block_size, 2)
    pool = torch.stack([block.mean(2) for block in blocks], 2).to(x.dtype)
    units = [block / block.norm(dim=-1, keepdim=True) for block in blocks]
    alike = [unit.sum(2).square().sum(-1) / unit.shape[2] ** 2 for unit in units]
    return pool, torch.stack(alike, -1) > simthreshd1[:, None]


def place_tokens(hidden_states, hidden_states_out, best_mask_idx, context_length, num_frame, frame_size):
    context, video = hidden_states[:, :, :context_length], hidden_states[:, :, context_length:]
    video = video.unflatten(2, (frame_size, num_frame)).transpose(2, 3).flatten(2, 3)
    moved = torch.cat([context, video], 2)
    hidden_states_out.copy_(torch.where(best_mask_idx[:, :, None, None] != 0, moved, hidden_states))
    return hidden_states_out


_AXOLOTL, _MEGATRON = "axolotl.integrations.kernels.libs", "megatron.core"
DRAWN = {
    "px_attention": ("protenix", "protenix.model.tri_attention.op:TriAttentionFunction", "tri_attention"),
    "ve_fp4": ("verl", "verl.utils.qat.linear:fp4_fake_quant_weight", "fp4_fake_quant"),
    "ve_entropy": ("verl", "verl.utils.kernel.kernels:efficient_entropy_forward", "entropy_forward"),
    "gl_linear": ("GPTQ-for-LLaMa", "quant.quant_linear:QuantLinearFunction", "quant_linear"),
    "gl_transposed": ("GPTQ-for-LLaMa", "quant.quant_linear:transpose_matmul248", "transposed_quant_linear"),
    "xm_cross_entropy": (
        "accelerated-model-architectures",
        "xma.functional.cross_entropy.triton_implementation:_CrossEntropyTriton",
        "cross_entropy",
    ),
    "xm_group": (
        "accelerated-model-architectures",
        "xma.layers.moe.triton_implementation.group_kernel:group",
        "group",
    ),
    "fb_softmax": (
        "FBGEMM/fbgemm_gpu",
        "fbgemm_gpu.sll.triton.triton_jagged_softmax:jagged_softmax_",
        "jagged_softmax",
    ),
    "fb_padded": (
        "FBGEMM/fbgemm_gpu",
        "fbgemm_gpu.sll.triton.triton_jagged2_to_padded_dense:jagged2_to_padded_dense_fwd",
        "jagged2_to_padded",
    ),
    "ax_norm": ("axolotl", f"{_AXOLOTL}.dsv4.mhc:_RMSNormLinear", "rms_norm_linear"),
    "ax_gated": ("axolotl", f"{_AXOLOTL}.scattermoe_lora.cutlass_fp4.swiglu:swiglu_fwd", "gated"),
    "aa_matmul": ("applied-ai", "kernels.triton.inference.fp8.splitk_gemm_fp8:gemm_split_k", "matmul_half"),
    "aa_conv": (
        "applied-ai/kernels/triton/inference/mamba/causal_1d_conv",
        "causal_1d_conv.causal_1d_conv:causal_conv1d_fwd",
        "causal_conv1d",
    ),
    "mc_update": (
        "megatron-core",
        f"{_MEGATRON}.inference.contexts.attention_context.triton.tensor_ops:tensor_masked_update",
        "masked_update",
    ),
    "mc_norm": (
        "megatron-core",
        f"{_MEGATRON}.transformer.custom_layers.batch_invariant_kernels:BatchInvariantRMSNormFn",
        "rms_norm",
    ),
    "sp_int8": ("SpargeAttn", "spas_sage_attn.quant_per_block:per_warp_int8", "per_warp_int8"),
    "sp_pool": ("SpargeAttn", "spas_sage_attn.utils:get_pool_sim_triton_simmean", "pool_similarity"),
    "sv_place": ("Sparse-VideoGen", "svg.models.cog.placement:hidden_states_placement", "place_tokens"),
}
"""name -> folder to import from, function, reference: one of this file"""
