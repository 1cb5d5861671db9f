"""References of the seventh draw, one a function, written before the first try. Run by library_draws.py.

The packages are those of PyPI whose name or summary has "triton" since 2024, no server's, client's, backend's or
compiler's, and in no draw nor among the names of the sixth before: 45 names, sorted, in the order of
`random.Random(2026113007).sample`; then the first 30 in its next sample of those whose summary has torch, a GPU and a
kernel, and no "triton". Of each the first two functions in the order of `library_draws.py list --seed 7` that a
reference of up to 20 lines can say. Left out: packages that this Python does not install, or in which `list` finds
nothing; xjh-gems, a copy of FlagGems. Passed over: functions that take objects of the package's own classes, modules
that are made with arguments, and what draws its seed itself.
"""

# ruff: noqa: A002, ARG001, N803
# Names are those of the functions.

import torch
from torch.nn import functional as F  # noqa: N812

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _unpack(codes):
    """Two numbers of 4 bits in each byte, the low one first."""
    table = torch.tensor(E2M1, device=codes.device)
    return torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], -1).flatten(-2)


def mxfp4_quant(x):
    groups = x.float().unflatten(-1, (-1, 32))
    most = groups.abs().amax(-1)
    power = most.log2().floor()
    power = power + (most / power.exp2() >= 1.75)
    scale = (power - 2).clamp(-127, 127)
    scaled = groups * torch.exp2(-scale)[..., None]
    steps = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=x.device)
    codes = (scaled.abs()[..., None] >= steps).sum(-1) + 8 * scaled.signbit()
    codes = codes.flatten(-2)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), (scale + 127).to(torch.uint8)


def fp4_matmul(a, b, c, a_scales, b_scales, **_):
    sides = ((a, a_scales), (b, b_scales))
    left, right = (_unpack(x) * torch.exp2(s.float() - 127).repeat_interleave(32, -1) for x, s in sides)
    return c.copy_(left @ right.mT)


def apply_lut(image, lut, *, strength=1.0, clamp=True):
    x = image.float()
    table = lut.float().permute(0, 4, 1, 2, 3).expand(x.shape[0], -1, -1, -1, -1)
    places = (x.clamp(0, 1) * 2 - 1).flip(1).permute(0, 2, 3, 1)[:, None]
    y = F.grid_sample(table, places, padding_mode="border", align_corners=True)[:, :, 0]
    y = x + strength * (y - x)
    return y.clamp(0, 1) if clamp else y


def adain(source, reference, *, eps=1e-5, correction=1, strength=1.0, clamp=True):
    x, r = source.float(), reference.float()
    means = [one.mean((2, 3), keepdim=True) for one in (x, r)]
    parts = [one.shape[2] * one.shape[3] for one in (x, r)]
    sums = [(one - mean).square().sum((2, 3), keepdim=True) for one, mean in zip((x, r), means, strict=True)]
    own, other = (total / max(count - correction, 1) for total, count in zip(sums, parts, strict=True))
    y = (x - means[0]) * ((other + eps) / (own + eps)).sqrt() + means[1]
    y = x + strength * (y - x)
    return y.clamp(0, 1) if clamp else y


def avgpool_backward(grad_out, pair_bwd, count):
    at = pair_bwd.clamp(min=0).long()
    grads = grad_out.float()[at] * count[at][..., None]
    return (grads * (pair_bwd >= 0)[..., None]).sum(0).to(grad_out.dtype)


def maxpool_forward(features, pair_fwd, n_out):
    values = features[pair_fwd.clamp(min=0).long()]
    return values.masked_fill((pair_fwd < 0)[..., None], 0).amax(0).clamp(min=0)[:n_out]


def apply_gate(state_vec, U, n_qubits, target_qubit, in_place=False):
    gate = U if U.ndim == 3 else U.expand(state_vec.shape[0], 2, 2)
    parts = state_vec.reshape(state_vec.shape[0], -1, 2, 1 << target_qubit)
    made = torch.einsum("bij,bxjy->bxiy", gate, parts).reshape(state_vec.shape)
    return state_vec.copy_(made) if in_place else made


def fwht_scale(x, rot_scale, block):
    h = torch.ones(1, 1, device=x.device)
    while h.shape[0] < block:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    scaled = (x.float() * rot_scale.float()).unflatten(-1, (-1, block))
    return (scaled @ (h / block**0.5)).flatten(-2).half()


def attention(q, k, v, causal=False, sm_scale=None, *_):
    s = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -torch.inf)
    return (s.softmax(-1) @ v.float()).to(q.dtype)


def linear(input, weight, bias=None, activation=""):
    y = input.float() @ weight.float().mT
    y = F.leaky_relu(y, 0.01) if activation == "leaky_relu" else y
    return (y if bias is None else y + bias.float()).half()


def chacha20(states, *, step=0, block_size=128):
    whole, first = 0xFFFFFFFF, [*states.to(torch.int64).unbind(1)]
    x = [*first]
    for turn in range(20):
        for at in range(4):
            a, b, c, d = (4 * row + (at + row * (turn % 2)) % 4 for row in range(4))
            for one, other, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[one] = (x[one] + x[other]) & whole
                mixed = x[third] ^ x[one]
                x[third] = (mixed << by | mixed >> (32 - by)) & whole
    if step:
        low = first[12] + step
        states[:, 12] = (low & whole).to(states.dtype)
        states[:, 13] = ((first[13] + (low >> 32)) & whole).to(states.dtype)
    return torch.stack([(one + other) & whole for one, other in zip(x, first, strict=True)], 1).to(torch.uint32)


def plif(x_seq, v_init, decay, threshold, *_):
    v, spikes, before = v_init, [], []
    for x in x_seq.unbind(0):
        v = v * decay + x
        before.append(v)
        spikes.append((v >= threshold).to(x_seq.dtype))
        v = torch.where(v >= threshold, 0.0, v)
    return torch.stack(spikes), v, torch.stack(before)


def alif(x_seq, v_init, a_init, decay_v, decay_a, threshold, beta, alpha):
    v, a, spikes, voltages, adapted = v_init, a_init, [], [], []
    for x in x_seq.unbind(0):
        v = v * decay_v + x
        voltages.append(v)
        adapted.append(a)
        spikes.append((v >= threshold + beta * a).to(x_seq.dtype))
        v = torch.where(spikes[-1] > 0, 0.0, v)
        a = a * decay_a + spikes[-1]
    return torch.stack(spikes), v, a, torch.stack(voltages), torch.stack(adapted)


def causal_softmax(inputs, is_causal):
    flat = inputs.float().flatten(0, -2)
    if is_causal:
        row = torch.arange(flat.shape[0], device=flat.device)[:, None] % flat.shape[1]
        flat = flat.masked_fill(torch.arange(flat.shape[1], device=flat.device) > row, -torch.inf)
    return flat.softmax(-1).reshape(inputs.shape).to(inputs.dtype)


def layernorm(X, W, b, eps):
    return F.layer_norm(X.float(), X.shape[-1:], W.float(), b.float(), eps).to(X.dtype)


def upcast_mxfp(tensor, scale, target_dtype, axis):
    moved, factor = tensor.movedim(axis, -1), scale.movedim(axis, -1)
    values = _unpack(moved) if tensor.dtype == torch.uint8 else moved.float()
    is_power = scale.dtype == torch.uint8
    factor = torch.exp2(factor.float() - 127) if is_power else factor.float()
    factor = factor.repeat_interleave(32 if is_power else 16, -1)[..., : values.shape[-1]]
    return (values * factor).to(target_dtype).movedim(-1, axis)


def reduce(x, dim, mask=None, scale=None, **_):
    y = x.float()
    y = y if scale is None else y * scale
    y = y if mask is None else y.masked_fill(mask == 0, 0.0)
    return y.sum(dim).to(x.dtype)


def attention_residual(sources, queries, selected_ids, packed, eps, scale, strategy, output_layout):
    given = sources[0] if packed else torch.stack([*sources])
    values, shape = given.float().flatten(1, -2), given.shape[1:]
    tails = values[..., -queries.shape[-1] :]
    inv = (tails.square().mean(-1) + eps).rsqrt()
    rows = queries.float()[None] if selected_ids is None else queries.float()[selected_ids.flatten(0, -2)]
    rows = rows.expand(values.shape[1], -1, -1)
    logits = torch.einsum("snr,nmr->snm", tails * inv[..., None], rows) * scale
    mixed = torch.einsum("snm,snd->nmd", logits.softmax(0), values)
    most = logits.amax(0)
    stats = torch.stack([most, 1 / (logits - most).exp().sum(0)])
    by_query = mixed.transpose(0, 1).reshape(-1, *shape)
    out = by_query if output_layout == "query_major" else mixed.reshape(*shape[:-1], -1, shape[-1])
    return out.to(queries.dtype), mixed, inv, logits, stats


_MX, _TETHER = "triton_kernels.numerics_details.mxfp", "tether.functional"
DRAWN = {
    "tb_quant": ("tokenspeed-tritonblas", "tritonblas.utils:dynamic_mxfp4_quant", "mxfp4_quant"),
    "tb_matmul": ("tokenspeed-tritonblas", "tritonblas.matmul:matmul_fp4", "fp4_matmul"),
    "ct_lut": ("colortransfer-triton", "colortransfer_triton.ot:apply_lut", "apply_lut"),
    "ct_adain": ("colortransfer-triton", "colortransfer_triton.api:adain", "adain"),
    "sc_avgpool": ("spconv-triton", "spconv_triton.pytorch._impl.pool:avgpool_backward", "avgpool_backward"),
    "sc_maxpool": ("spconv-triton", "spconv_triton.pytorch._impl.pool:maxpool_forward", "maxpool_forward"),
    "qm_gate": ("triton-qml", "triton_qml.gate_triton_kernel:functional_apply_gate_triton", "apply_gate"),
    "tp_fwht": ("turbopress", "turbopress.triton_kernel:fwht_scale", "fwht_scale"),
    "pl_attention": ("ply-ai", "ply.flash_attn:PlyFlashAttention", "attention"),
    "pl_linear": ("ply-ai", "ply.linear:PlyLinearFunction", "linear"),
    "tr_attention": ("triton-runner", "triton_runner.bench.attn.triton_fused_attention:_attention_opt", "attention"),
    "cs_chacha": ("triton-csprng", "triton_csprng.chacha20:chacha20_blocks", "chacha20"),
    "te_plif": ("tetherpy", f"{_TETHER}.plif:PLIFSubFunction", "plif"),
    "te_alif": ("tetherpy", f"{_TETHER}.alif:ALIFSubFunction", "alif"),
    "tf_softmax": ("triformer", "triformer.softmax:SoftmaxFunction", "causal_softmax"),
    "tf_layernorm": ("triformer", "triformer.layernorm:Fast_Layernorm", "layernorm"),
    "tk_upcast": ("tokenspeed-triton-kernels", f"{_MX}:upcast_from_mxfp", "upcast_mxfp"),
    "tk_reduce": ("tokenspeed-triton-kernels", "triton_kernels.reduce:reduce_forward", "reduce"),
    "ar_forward": ("fast-attnres", "attnres._kernels.multiquery:forward", "attention_residual"),
}
"""name -> folder to import from, function, reference: one of this file"""
