"""References of the sixth draw, one a function, written before the first try. Run by library_draws.py.

The packages are those of PyPI whose summary has "triton" and one of kernel, fused, attention, cuda, gpu, torch or
implementation, no inference server's nor client's, and in no draw before: 63 names, sorted, in the order of
`random.Random(2026113006).sample`. Of each the first function in the order of `library_draws.py list --seed 6` that a
reference of up to 20 lines can say. Left out: packages that this Python does not install, or in which `list` finds
nothing; cupydiff, which needs CUDA's binaries; geak-eval, whose functions are copies of other libraries';
jvp-flash-attention-lucidrains-fork, a copy of one drawn; triton-submodular and turboadam, whose only functions take a
kernel, and round by a hash. A copy of Liger's function in dsalt is passed over.
"""

# ruff: noqa: A002, ARG001, N803, N806
# Names are those of the functions.

import math

import torch
from torch.nn import functional as F  # noqa: N812


def local_corr(feature0, feature1, warp, mode="bilinear", normalized_coords=True):
    sampled = F.grid_sample(feature1.float().permute(0, 3, 1, 2), warp.float(), mode=mode, align_corners=False)
    return torch.einsum("bnc,bcnk->bnk", feature0.float(), sampled)


def schur_matvec(x, y, f, g, z, diag_x, denom, *, eps, x2=None, y2=None, **_):
    x, y = x.float(), y.float()
    x2, y2 = x.square().sum(1) if x2 is None else x2, y.square().sum(1) if y2 is None else y2
    plan = torch.exp((f[:, None] + g - x2[:, None] - y2 + 2 * x @ y.mT) / eps)
    moved = plan @ z.float()
    return denom * z - plan.mT @ (moved / diag_x.clamp(min=1e-40)), moved


def down(a, b, b_k_dim):
    return a @ (b.mT if b_k_dim else b)


def jvp_attention(q, k, v, q_t, k_t, v_t, attn_mask=None, dropout_p=0.0, causal=False, sm_scale=None, *_, **__):
    s = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    if attn_mask is not None:
        s = s.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else s + attn_mask
    return (s.softmax(-1) @ v.float()).to(q.dtype)


def swiglu_mlp(input, gate_weight, up_weight, down_weight, gate_multiplier, down_multiplier):
    gate = input.float() @ gate_weight.float().mT * gate_multiplier
    hidden = F.silu(gate) * (input.float() @ up_weight.float().mT)
    return (hidden @ down_weight.float().mT * down_multiplier).to(input.dtype)


def grouped_2d2d(mat_a, mat_b, offs, out):
    places = torch.arange(mat_a.shape[1], device=offs.device)
    starts = torch.cat([offs.new_zeros(1), offs[:-1]])
    for group, (start, end) in enumerate(zip(starts, offs, strict=True)):
        inside = ((places >= start) & (places < end)).float()
        out[group] = ((mat_a.float() * inside) @ mat_b.float()).to(out.dtype)


def ebt_attention(q_o, k_o, v_o, q_p, k_p, v_p, q_o_t, k_o_t, v_o_t, q_p_t, k_p_t, v_p_t,
                  attn_mask=None, causal=False, sm_scale=None, *_, **__):  # fmt: skip
    scale, kind = q_o.shape[-1] ** -0.5 if sm_scale is None else sm_scale, q_o.dtype
    q_o, k_o, v_o, q_p, k_p, v_p = (x.float() for x in (q_o, k_o, v_o, q_p, k_p, v_p))
    later = torch.ones(q_o.shape[-2:-1] * 2, dtype=torch.bool, device=q_o.device).triu(1)
    hidden, following = later & causal, later & ~later.triu(2)
    own = (q_p * k_p).sum(-1, keepdim=True) * scale
    s = (q_o @ k_o.mT * scale).masked_fill(hidden, -math.inf)
    t = (q_p @ k_o.mT * scale).masked_fill(hidden | following, -math.inf)
    if attn_mask is not None:
        s, t = s.masked_fill(~attn_mask[:-1, :-1], -math.inf), t.masked_fill(~attn_mask[1:, :-1], -math.inf)
        own = own.masked_fill(~attn_mask[1:].diagonal(1)[:, None], -math.inf)
    both = torch.cat([t, own], -1).softmax(-1)
    return (s.softmax(-1) @ v_o).to(kind), (both[..., :-1] @ v_o + both[..., -1:] * v_p).to(kind)


def cconv_backward(x, w, dy):
    leaves = [one.detach().float().requires_grad_() for one in (x, w)]
    with torch.enable_grad():
        padded = F.pad(leaves[0].mT, (w.shape[1] - 1, 0))
        y = F.silu(F.conv1d(padded, leaves[1][:, None], groups=w.shape[0])).mT
    dx, dw = torch.autograd.grad(y, leaves, dy.float())
    return dx.to(x.dtype), dw.to(w.dtype)


def keep_mask(dropout_seed, *, stream_start, streams, length, dropout_p):
    place = torch.arange(length, device=dropout_seed.device)
    low = 0xFFFFFFFF
    seed = dropout_seed.reshape(1, 1, 1) + stream_start + torch.arange(streams, device=place.device)[:, None, None]
    c0 = (place[:, None] * 65536 + place).expand(streams, -1, -1) & low
    c1, c2, c3 = (torch.zeros_like(c0) for _ in range(3))
    k0, k1 = seed & low, seed >> 32 & low
    for _ in range(10):
        (ah, al), (bh, bl) = (_multiply(0xD2511F53, c0), _multiply(0xCD9E8D57, c2))
        c0, c1, c2, c3 = bh ^ c1 ^ k0, bl, ah ^ c3 ^ k1, al
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    signed = torch.where(c0 >= 1 << 31, c0 - (1 << 32), c0)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10 >= dropout_p


def _multiply(a, b):
    """The high and the low 32 bits of a product of numbers of 32 bits."""
    low, high = a * (b & 0xFFFF), a * (b >> 16)
    whole = (low >> 16) + high
    return whole >> 16, (whole & 0xFFFF) << 16 | low & 0xFFFF


def int4_gemm(a, qweight, scales, qzeros, bias=None, groupsize=32):
    shifts = torch.arange(0, 32, 4, device=a.device)
    codes = (qweight[:, None] >> shifts[:, None] & 15).flatten(0, 1)
    zeros = ((qzeros[..., None] >> shifts & 15).flatten(-2) + 1) & 15
    weights = (codes - zeros.repeat_interleave(groupsize, 0)) * scales.float().repeat_interleave(groupsize, 0)
    out = a.float() @ weights
    return (out if bias is None else out + bias).to(a.dtype)


def gru_blockdiag(gi, h0, Wh_struct, bh_cat, h_in_quant, h_out_quant):
    h, out = h0.float(), []
    for now in gi.float().chunk(gi.shape[0]):
        blocks = h.unflatten(-1, Wh_struct.shape[1:3])
        gates = torch.einsum("bni,gnoi->gbno", blocks, Wh_struct.float()).flatten(-2)
        gates = gates + bh_cat.float().unflatten(0, (3, 1, -1)).flatten(1, 2)[:, None]
        r, z, n = now[0].chunk(3, -1)
        r, z = torch.sigmoid(r + gates[0]), torch.sigmoid(z + gates[1])
        h = (1 - z) * torch.tanh(n + r * gates[2]) + z * h
        out.append(h)
    return torch.stack(out).to(gi.dtype)


def landmark_attention(q, k, v, lmk_pos, lmk_logw, w_cont, cu_seqlens, tau_win, win_edge, n_max, cu_list=None):
    out = torch.zeros(q.shape, device=q.device)
    for one, (start, end) in enumerate(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True)):
        places, at = torch.arange(end - start, device=q.device), slice(start, end)
        qs, ks, vs = (x[at].half().float().transpose(0, 1) for x in (q, k, v))
        width, marks = w_cont[at, None].float(), lmk_pos[:, one]
        distance = places[:, None] - places
        edge = F.logsigmoid((width - distance) / tau_win)
        s = qs @ ks.mT * q.shape[-1] ** -0.5 + torch.where(distance <= width - win_edge, 0.0, edge)
        s = s.masked_fill((distance < 0) | (distance > width), -math.inf)
        rows = marks.clamp(min=0).long()[..., None].expand(-1, -1, q.shape[-1])
        t = qs @ ks.gather(1, rows).mT * q.shape[-1] ** -0.5 + lmk_logw[:, one, None].float()
        far = (marks[:, None] >= 0) & (marks[:, None] < places[:, None] - width)
        both = torch.cat([s, t.masked_fill(~far, -math.inf)], -1).softmax(-1)
        out[at] = (both @ torch.cat([vs, vs.gather(1, rows)], 1)).transpose(0, 1)
    return out


def dynamic_quantize(out, input, scale):
    most = input.float().abs().amax(-1)
    scaled = input.float() * (127.0 / most)[:, None]
    out.copy_((scaled + torch.where(input > 0, 0.5, -0.5)).trunc())
    scale.copy_((most / 127.0).reshape(scale.shape))


def contrastive_grad(a, b, pos, sum_exp_row, dA, dB, inv_temperature, margin, grad_scale,
                     exclude_diag=False, row_offset=0, col_offset=0, *, two_sided):  # fmt: skip
    s = a.float() @ b.float().mT
    keep = s <= pos[:, None] + margin
    if exclude_diag:
        rows, columns = (torch.arange(size, device=a.device) for size in s.shape)
        keep = keep & (rows[:, None] + row_offset != columns + col_offset)
    grad = torch.exp2(s * inv_temperature - inv_temperature) * keep / sum_exp_row[:, None] * grad_scale
    dA += grad @ b.float()
    if two_sided:
        dB += grad.mT @ a.float()


def verify(draft_logprobs, target_logprobs, u, draft_token_ids):
    at = draft_token_ids[..., None].long()
    ratio = (target_logprobs.gather(-1, at) - draft_logprobs.gather(-1, at))[..., 0].float()
    accepted = u.float() < ratio.exp().clamp(max=1)
    return accepted, accepted.int().cumprod(-1).sum(-1).int()


def rotary(x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None,
           interleaved=False, inplace=False, conjugate=False):  # fmt: skip
    rows = torch.arange(x.shape[1], device=x.device) + torch.as_tensor(seqlen_offsets, device=x.device).reshape(-1, 1)
    c, s = cos.float()[rows][:, :, None], sin.float()[rows][:, :, None] * (-1 if conjugate else 1)
    turned = x[..., : 2 * cos.shape[1]].float()
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    both = (a * c - b * s, a * s + b * c)
    made = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    made = torch.cat([made.to(x.dtype), x[..., 2 * cos.shape[1] :]], -1)
    return x.copy_(made) if inplace else made


def mlstm_hidden(matQ, matK, matV, vecI, vecF, matC_states, vecN_states, scaMinter_states,
                 qk_scale=None, chunk_size=64, **_):  # fmt: skip
    q, k, v, i = (x.float().unflatten(2, (-1, chunk_size)) for x in (matQ, matK, matV, vecI))
    (chunks, size), scale = q.shape[2:4], q.shape[-1] ** -0.5 if qk_scale is None else qk_scale
    b = F.logsigmoid(vecF.float()).unflatten(2, (-1, chunk_size)).cumsum(-1)
    gates = (b[..., None] - b[..., None, :] + i[..., None, :]).masked_fill(
        torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1), -math.inf
    )
    states = matC_states.float().unflatten(2, (chunks + 1, -1))[:, :, :-1]
    sums, most = vecN_states.float().unflatten(2, (chunks + 1, -1))[:, :, :-1], scaMinter_states[:, :, :-1].float()
    top = torch.maximum(b + most[..., None], gates.amax(-1).clamp(min=-10))
    s = q @ k.mT * scale * (gates - top[..., None]).exp()
    old = q * (b + most[..., None] - top).exp()[..., None] * scale
    total = torch.maximum(((old * sums[..., None, :]).sum(-1) + s.sum(-1)).abs(), (-top).exp())
    h = (old @ states + s @ v) / (total[..., None] + 1e-6)
    return h.flatten(2, 3).to(matQ.dtype), total.flatten(2), top.flatten(2)


def grouped_gemm(A, B, offsets, trans_b=True):
    ends = offsets if offsets.numel() == B.shape[0] else offsets[1:]
    places, start, out = torch.arange(A.shape[0], device=A.device), 0, 0
    for weights, end in zip(B.float(), ends, strict=True):
        inside = ((places >= start) & (places < end))[:, None]
        out, start = out + inside * (A.float() @ (weights.mT if trans_b else weights)), end
    return out.to(A.dtype)


def kl_poly(M, M2, out=None):
    made = (15 * torch.eye(M.shape[0], device=M.device) - 10 * M + 3 * M2) / 8
    return made if out is None else out.copy_(made)


def siglip_loss(img_features, txt_features, log_temperature, bias, use_fp8=False):
    logits = img_features.float() @ txt_features.float().mT * log_temperature.float().exp() + bias.float()
    target = torch.eye(logits.shape[0], device=logits.device)
    return (F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / logits.shape[0]).to(
        img_features.dtype
    )


DRAWN = {
    "ll_corr": ("local-corr-lumi", "local_corr.kernel:local_corr", "local_corr"),
    "si_schur": (
        "flash-sinkhorn",
        "flash_sinkhorn.kernels.sinkhorn_triton_apply_fused_sqeuclid:fused_schur_matvec_sqeuclid",
        "schur_matvec",
    ),
    "ei_down": ("eigentune", "eigentune.kernels.triton_backend:down", "down"),
    "jv_attention": ("jvp-flash-attention", "jvp_flash_attention.jvp_attention:JVPAttn", "jvp_attention"),
    "sw_mlp": ("flash-swiglu-mlp", "flash_swiglu_mlp.ops:_FlashSwiGLUFunction", "swiglu_mlp"),
    "gm_2d2d": ("grouped-mm-bf16", "grouped_mm_bf16.kernels:grouped_mm_2d2d", "grouped_2d2d"),
    "eb_attention": ("ebt-flash-attention", "ebt_flash_attention.ebt_attention:EBTAttn", "ebt_attention"),
    "kf_cconv": ("kernel-fun", "kernel_fun.cconv._kernels.strip:cconv_bwd", "cconv_backward"),
    "df_keep": ("disentangled-flash", "disentangled_flash.training._kernels:dropout_keep_mask", "keep_mask"),
    "oc_int4": ("onecomp-runtime", "onecomp_runtime.layers.fused_int4_linear:fused_int4_gemm", "int4_gemm"),
    "gq_blockdiag": (
        "gru-qat",
        "gru_qat.triton_kernels.scan_blockdiag:GRUScanBlockdiagFunction",
        "gru_blockdiag",
    ),
    "dl_train": ("dsalt", "dsalt.kernels.dsalt_triton_train:DSALTTrainFunction", "landmark_attention"),
    "fn_quantize": ("flashnn", "flashnn.triton_kernels.dynamic_quant:triton_dynamic_quantize", "dynamic_quantize"),
    "me_grad": ("memeff", "memeff._common:launch_qwen3_grad", "contrastive_grad"),
    "fs_verify": ("flashspec", "flashspec.kernels.verify_kernel:verify_tokens", "verify"),
    "ft_rotary": ("flash-attn-triton", "flash_attn.ops.triton.rotary:apply_rotary", "rotary"),
    "xl_hidden": (
        "flash-xlstm-exp",
        "fsp.vendor.torch_fw.fw_parallel:mlstm_chunkwise__parallel_fw_Hintra",
        "mlstm_hidden",
    ),
    "mo_gemm": ("moe-ops", "moe_ops.grouped_gemm_ops_sm90:group_gemm_tma_fn", "grouped_gemm"),
    "fl_poly": ("flashlib", "flashlib.linalg.gemm.triton.fused_kernels:fused_kl_poly", "kl_poly"),
    "sl_loss": ("siglip-kernel", "siglip_kernel.hopper_kernel:HopperFusedSigLIPLoss", "siglip_loss"),
}
"""name -> folder to import from, function, reference: one of this file"""
