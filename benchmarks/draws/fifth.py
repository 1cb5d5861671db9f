"""References of the fifth draw, one a function, written before the first try. Run by library_draws.py."""

# ruff: noqa: ARG001, N803
# Names are those of the functions.

import math

import torch
from torch.nn import functional as F  # noqa: N812


def int4_linear(x, packed_q_2d, scale_2d, group_size=64):
    codes = torch.stack([packed_q_2d & 15, packed_q_2d >> 4], -1).flatten(-2)[:, : x.shape[-1]].float() - 8
    scales = scale_2d.float().repeat_interleave(group_size, -1)[:, : x.shape[-1]]
    return (x.float() @ (codes * scales).mT).half()


def swiglu(gate, up):
    return F.silu(gate) * up


def sigmoid_backward(Q, K, V, dO, bias, score_mod, sm_scale, is_causal):
    q, k, v, do = (x.float().transpose(1, 2) for x in (Q, K, V, dO))
    s = q @ k.mT * sm_scale + bias[:, None, None, None]
    if score_mod is not None:
        s = s + score_mod[:, None, None, :]
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    p = s.sigmoid()
    ds = do @ v.mT * p * (1 - p) * sm_scale
    return tuple(x.transpose(1, 2).to(Q.dtype) for x in (ds @ k, ds.mT @ q, p.mT @ do))


def missing_stats(X_binned, g, h, node_id, num_nodes):
    out = torch.zeros(2, num_nodes, X_binned.shape[1], device=g.device)
    missing = X_binned < 0
    for sums, values in zip(out, (g, h), strict=True):
        sums.index_add_(0, node_id.long(), missing * values[:, None].float())
    return out[0], out[1]


def entmax(x, alpha=1.5, n_iter=10, use_histogram=True, fast_math=False):
    z = x.float() * (alpha - 1)
    low, high = z.amax(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(50):
        middle = (low + high) / 2
        above = (z - middle).clamp(min=0).pow(1 / (alpha - 1)).sum(-1, keepdim=True) >= 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    y = (z - low).clamp(min=0).pow(1 / (alpha - 1))
    return (y / y.sum(-1, keepdim=True)).to(x.dtype)


def maxsim_8bit(queries_codes, queries_meta, docs_codes, docs_meta):
    products = torch.einsum("asd,btd->abst", queries_codes.float(), docs_codes.float())
    q, d, dim = queries_meta[:, None, :, None], docs_meta[None, :, None], queries_codes.shape[-1]
    similar = dim * q[..., 1] * d[..., 1] + d[..., 0] * d[..., 2] * q[..., 1]
    similar = similar + q[..., 0] * q[..., 2] * d[..., 1] + q[..., 0] * d[..., 0] * products
    return similar.amax(-1).sum(-1)


def int8_attention(q, k, v, sm_scale, qkv_scale, out_scale):
    s = q.float() @ k.float().mT * (qkv_scale * qkv_scale * sm_scale)
    return (s.softmax(-1) @ (v.float() * qkv_scale) / out_scale).round().to(torch.int8)


def swiglu_halves(X):
    a, b = X.chunk(2, -1)
    return (a.float() * F.silu(b.float())).to(X.dtype)


def saga(x, tx, gx, temperature):
    gate = torch.sigmoid(gx / temperature)
    return x + gate * (tx - x).relu(), gate


def scale_grads(logits_with_grads, grad_output):
    return logits_with_grads * (grad_output if grad_output.ndim == 0 else grad_output[:, None])


def gated_rms_norm(x, z, weight, eps):
    xf = x.float()
    return (xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + eps) * weight.float() * F.silu(z.float())).to(x.dtype)


def correlation(f1, f2, md, dilation_patch=1):
    (h, w), pad = f1.shape[2:], md * dilation_patch
    padded = F.pad(f2.float(), (pad,) * 4)
    rows = []
    for dy in range(0, 2 * pad + 1, dilation_patch):
        shifted = [padded[:, :, dy : dy + h, dx : dx + w] for dx in range(0, 2 * pad + 1, dilation_patch)]
        rows.append(torch.stack([(f1.float() * one).sum(1) for one in shifted], 1))
    return torch.stack(rows, 1).to(f1.dtype)


def attention(q, k, v, causal=False, sm_scale=None):
    s = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        ones = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
        s = s.masked_fill(ones.triu(1 + s.shape[-1] - s.shape[-2]), -math.inf)
    return (s.softmax(-1) @ v.float()).to(q.dtype)


def attention_mlm(q, k, v, scale, **_):
    return attention(q, k, v, False, scale)


def matmul4(groupsize, a, qweight, scales, qzeros, bias=None):
    shifts = torch.arange(0, 32, 4, device=a.device)
    codes = (qweight[:, None] >> shifts[:, None] & 15).flatten(0, 1)
    zeros = (qzeros[..., None] >> shifts & 15).flatten(-2) + 1
    weights = (codes - zeros.repeat_interleave(groupsize, 0)) * scales.float().repeat_interleave(groupsize, 0)
    out = (a.float() @ weights).half()
    return out if bias is None else out + bias


def compose_minifloat(elements, minifloat_meta, output_dtype):
    e, f = minifloat_meta.exp_bits, minifloat_meta.frac_bits
    x = elements.int()
    power, fraction = (x >> f) & ((1 << e) - 1), (x & ((1 << f) - 1)) / (1 << f)
    bias = (1 << (e - 1)) - 1
    small, large = fraction * 2.0 ** (1 - bias), (1 + fraction) * torch.exp2((power - bias).float())
    y = torch.where(power == 0, small, large)
    return torch.where(x >> (e + f) & 1 == 1, -y, y).to(output_dtype)


def qk_scores(q_rotated, key_indices, key_norms, centroids, scale, bits=3):
    dim = q_rotated.shape[-1]
    at = torch.arange(dim, device=key_indices.device) * bits
    padded = F.pad(key_indices.int(), (0, 1))
    codes = (padded[..., at // 8] | padded[..., at // 8 + 1] << 8) >> (at % 8) & ((1 << bits) - 1)
    keys = centroids.float()[codes.long()] * key_norms[..., None]
    keys = keys.repeat_interleave(q_rotated.shape[1] // keys.shape[1], 1)
    return q_rotated.float() @ keys.mT * scale


def attention_n(q, k, v, causal=False, sm_scale=None, sm_n=None):
    s = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        ones = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
        s = s.masked_fill(ones.triu(1 + s.shape[-1] - s.shape[-2]), -math.inf)
    top = s.amax(-1, keepdim=True)
    p = torch.exp(s - top)
    return (p / (p.sum(-1, keepdim=True) + (sm_n or 0) * torch.exp(-top)) @ v.float()).to(q.dtype)


def centroid_update(
    x, cluster_ids, old_centroids, *, BLOCK_N=256, centroid_sums=None, centroid_cnts=None, calculate_new=True
):
    hot = F.one_hot(cluster_ids.long(), old_centroids.shape[1]).float()
    counts = hot.sum(1)[..., None]
    means = hot.mT @ x.float() / counts.clamp(min=1)
    return torch.where(counts == 0, old_centroids.float(), means).to(x.dtype)


def attention_config(q, k, v, softmax_scale, kernels_config):
    return attention(q, k, v, False, softmax_scale)


def newton_schulz(matrix, b, c, out):
    a = matrix.float()
    out.copy_(b * a + c * (a @ a.mT))


def saturation(image, saturation_factor):
    if image.shape[1] == 1:
        return image.clone()
    r, g, b = image.float().unbind(1)
    gray = (0.2989 * r + 0.587 * g + 0.114 * b)[:, None]
    return (image * saturation_factor + gray * (1 - saturation_factor)).clamp(0, 1).to(image.dtype)


def attention_fa2(q, k, v, sm_scale=None):
    return attention(q, k, v, False, sm_scale)


def cond_transition(x, cond, wa, wb, ws, wsc, bsc, length=None):
    h = F.silu(x @ wa.mT) * (x @ wb.mT)
    return torch.sigmoid(cond @ wsc.mT + bsc) * (h @ ws.mT)


DRAWN = {
    "ot_int4": ("otf-llm", "otf_llm.otf_triton_kernel:triton_fused_int4_linear", "int4_linear"),
    "ra_swiglu": ("rotalabs-accel", "rotalabs_accel.kernels.swiglu:swiglu_fused", "swiglu"),
    "ts_sigmoid_bwd": (
        "triton-sigmoid",
        "triton_sigmoid.sigmoid_triton_dense:sigmoid_attention_bwd_op",
        "sigmoid_backward",
    ),
    "ib_missing": ("ibu-boost", "ibu_boost.kernels.screening_split_triton:build_missing_stats_triton", "missing_stats"),
    "ad_entmax": ("adasplash", "adasplash.triton_entmax_v2:_entmax_triton", "entmax"),
    "co_maxsim": ("colsearch", "colsearch._internal.kernels.triton_roq:roq_maxsim_8bit", "maxsim_8bit"),
    "qa_attention": ("qattn", "qattn.nn.functional._flash_attention:_attention", "int8_attention"),
    "tx_swiglu": ("trinix", "trinix.kernels.swigelu_kernel:TritonSwiGLUFunction", "swiglu_halves"),
    "sa_fused": ("saga-activation", "saga.activation:SAGAFusedFunction", "saga"),
    "ce_backward": ("crossentropy-triton", "crossentropy_triton.crossentropy_tl:cross_entropy_backward", "scale_grads"),
    "ch_norm": ("freesolo-chalk", "chalk.ops.arch.sm89.gdn_gated_rmsnorm:_GatedRMSNorm", "gated_rms_norm"),
    "lc_corr": ("localcorr", "localcorr.triton.spatial_corr:TritonSpatialCorrelationFunction", "correlation"),
    "fx_causal": ("flash-attention-x", "flash_attention_x.flash_attention_causal:FlashAttention", "attention"),
    "gq_matmul4": ("gptq-triton", "gptq_triton.quant_linear:triton_matmul4", "matmul4"),
    "ms_compose": (
        "mase-triton",
        "mase_triton.minifloat.kernels.cast:compose_minifloat_component",
        "compose_minifloat",
    ),
    "tq_scores": ("fused-turboquant", "fused_turboquant.kernels.triton_attention:fused_qk_scores_rht", "qk_scores"),
    "fm_mlm": ("flash-mlm", "flash_mlm.host.host:flash_attn_mlm", "attention_mlm"),
    "fn_softmax_n": (
        "flash-attention-softmax-n",
        "flash_attention_softmax_n.core.flash_attn_triton:_FlashAttentionN",
        "attention_n",
    ),
    "km_centroids": (
        "flash-kmeans",
        "flash_kmeans.centroid_update_triton:triton_centroid_update_sorted_euclid",
        "centroid_update",
    ),
    "ft_v2": (
        "flash-attention-triton",
        "flash_attention_triton.flash_attention_2:FlashAttentionV2Function",
        "attention_config",
    ),
    "mu_ns2": ("triton-muon-adamw", "triton_muon_adamw.muon.triton_muon:solve_ns_kernel_2", "newton_schulz"),
    "au_saturation": ("triton-augment", "triton_augment.functional:adjust_saturation", "saturation"),
    "fk_fa2": ("fasterkernels", "fskernels.triton.triton_fa2:flash_attention_2_fwd", "attention_fa2"),
    "mw_transition": (
        "miniworld-engine/src",
        "miniworld_engine.kernels.conditioned_transition.triton.inference:cond_transition_inference",
        "cond_transition",
    ),
}
"""name -> folder to import from, function, reference: one of this file"""
