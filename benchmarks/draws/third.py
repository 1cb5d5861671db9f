"""References of the third draw, one a function, written before the first try. Run by library_draws.py."""

# ruff: noqa: ARG001, N803
# Names are those of the functions.

import torch


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // size, slot % size] = key[token]
            value_cache[slot // size, slot % size] = value[token]


def copy_blocks(key_caches, value_caches, block_mapping):
    for source, target in block_mapping.tolist():
        for cache in (*key_caches, *value_caches):
            cache[target] = cache[source]


def int8_quant(output_tensor, input_tensor, scale):
    output_tensor.copy_((input_tensor.float() / scale).round().clamp(-128, 127))


def hc_combine_norm(residual, block_output, injection_logits, norm_weight, eps, hc_count):
    rows, dim = residual.shape[0], residual.shape[1] // hc_count
    block = block_output.float()[:, None].expand(rows, hc_count, dim)
    if injection_logits is not None:
        block = block * (2 * torch.sigmoid(injection_logits.float() / hc_count))[..., None]
    out = (residual.float().view(rows, hc_count, dim) + block).to(residual.dtype)
    y = out.float() * torch.rsqrt(out.float().square().mean(-1, keepdim=True) + eps)
    weight = norm_weight.float().view(-1, dim)
    return out.view_as(residual), (y + y * weight).to(residual.dtype).view_as(residual)


def add_argmax(base, bias, out_val, out_idx, blk, block_v=4096):
    blk[:, 1:] = (base.float() + bias.float()).argmax(-1).view(blk.shape[0], -1)


def ragged(indices, lengths, num_rows=-1):
    at = torch.arange(indices.shape[1], device=indices.device)
    keep = (at < lengths[:, None]) & (indices >= 0)
    keep = keep & (indices < num_rows) if num_rows >= 0 else keep
    starts = torch.zeros(len(indices) + 1, dtype=torch.int32, device=indices.device)
    starts[1:] = keep.sum(1).cumsum(0)
    return indices[keep].to(torch.int32), starts


def collapse(x, pre_mix):
    return (x.float() * pre_mix[..., None]).sum(1).to(x.dtype)


def fp8_pad(tensor, scale, skip_scale=False):
    padded = torch.nn.functional.pad(tensor.float(), (0, -tensor.shape[-1] % 16))
    return (padded if skip_scale else padded / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def local_lens(dcp_local_seq_lens, seq_lens, num_reqs, dcp_size, dcp_rank, cp_interleave):
    rounds, rest = seq_lens // (dcp_size * cp_interleave), seq_lens % (dcp_size * cp_interleave)
    local = rounds * cp_interleave + (rest - dcp_rank * cp_interleave).clamp(0, cp_interleave)
    dcp_local_seq_lens.zero_()
    dcp_local_seq_lens[:num_reqs] = local[:num_reqs]
    return dcp_local_seq_lens


def source_to_target(topk_ids):
    order = topk_ids.view(-1).sort(stable=True).indices
    made = torch.empty(len(order), dtype=torch.int32, device=order.device)
    made[order] = torch.arange(len(order), dtype=torch.int32, device=order.device)
    return made


def state_scatter(dst, src, dst_indices_raw, step_indices_raw):
    for i, (to, step) in enumerate(zip(dst_indices_raw.tolist(), step_indices_raw.tolist(), strict=True)):
        if step >= 0:
            dst[:, to] = src[:, i, step]


def ep_gather(input_tensor, recv_topk_ids, recv_topk_weight, input_index, output_tensor):
    rows = input_tensor[input_index.long()].float() * recv_topk_weight[..., None].float()
    output_tensor.copy_(rows.masked_fill(recv_topk_ids[..., None] < 0, 0.0).sum(1))


def l2norm(x, eps=1e-6, output_dtype=None):
    y = x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + eps)
    return y.to(output_dtype or x.dtype)


def mla_scale_buffer(kv_buffer, loc, cache_k_nope, cache_k_rope):
    joined = torch.cat([cache_k_nope.flatten(1), cache_k_rope.flatten(1)], -1)
    kv_buffer.view(len(kv_buffer), -1)[loc.long(), : joined.shape[1]] = joined


def rotate_ids(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    for i, (begin, length) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if length > 0:
            input_ids[begin : begin + length - 1] = input_ids[begin + 1 : begin + length].clone()
            input_ids[begin + length - 1 if select_index is None else select_index[i]] = topk_index[i]
    return input_ids


def int8_matmul(A, B, As, Bs, block_size, output_dtype=torch.float16):
    n, k = block_size
    a = A.float() * As.repeat_interleave(k, -1)[..., : A.shape[-1]]
    b = B.float() * Bs.repeat_interleave(n, 0).repeat_interleave(k, 1)[: B.shape[0], : B.shape[1]]
    return (a @ b.mT).to(output_dtype)


def upscale(hidden_state, hidden_state_scale, recv_token_num, output_dtype):
    scale = hidden_state_scale.repeat_interleave(128, 1)[:, : hidden_state.shape[1]]
    return (hidden_state.float() * scale).to(output_dtype)


def fp8_act_quant(x, block_size=128, dtype=torch.float8_e4m3fn):
    blocks = x.float().view(*x.shape[:-1], -1, block_size)
    scale = blocks.abs().amax(-1) / 448
    return (blocks / scale[..., None]).to(dtype).view_as(x), scale


def fp8_weight_dequant(x, s, block_size=128):
    scale = s.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
    return x.float() * scale[: x.shape[0], : x.shape[1]]


def select_bwd(grad_source, index, grad_output):
    grad_source[index] = grad_output


def scaled_index_add(x, index, source, scaling, alpha):
    x[index] += alpha * (source if scaling is None else source * scaling)
    return x


def select_fwd(output, source, index):
    output.copy_(source[index])
    return output


_ATTENTION = "sglang.srt.layers.attention"
DRAWN = {
    "cn_cache": (
        "conch_triton_kernels",
        "conch.kernels.vllm.reshape_and_cache:reshape_and_cache_launcher",
        "reshape_and_cache",
    ),
    "cn_blocks": ("conch_triton_kernels", "conch.kernels.vllm.copy_blocks:copy_blocks_launcher", "copy_blocks"),
    "cn_int8": (
        "conch_triton_kernels",
        "conch.kernels.quantization.int8:static_scaled_int8_quant_launcher",
        "int8_quant",
    ),
    "vl_combine": ("vllm", "vllm.models.qwen4_exp.nvidia.ops.hc:hc_combine_norm", "hc_combine_norm"),
    "vl_argmax": ("vllm", "vllm.v1.worker.gpu.spec_decode.xpress.kernels:fused_add_argmax_to_blk", "add_argmax"),
    "vl_ragged": ("vllm", "vllm.v1.attention.ops.rocm_aiter_mla_sparse:build_ragged_indices_from_dense", "ragged"),
    "vl_collapse": ("vllm", "vllm.model_executor.kernels.mhc.triton:hc_collapse_triton", "collapse"),
    "vl_fp8_pad": ("vllm", "vllm.kernels.triton.qkv_padded_fp8_quant:quantize_fp8_pad_head_dim_triton", "fp8_pad"),
    "vl_local_lens": ("vllm", "vllm.v1.worker.gpu.cp_utils:prepare_dcp_local_seq_lens", "local_lens"),
    "sg_moe_order": (
        "sglang-0.5.10.post1",
        "sglang.srt.layers.moe.ep_moe.kernels:cutlass_w4_run_moe_ep_preproess",
        "source_to_target",
    ),
    "sg_state_scatter": (
        "sglang-0.5.10.post1",
        f"{_ATTENTION}.mamba.mamba_state_scatter_triton:fused_mamba_state_scatter_with_mask",
        "state_scatter",
    ),
    "sg_ep_gather": ("sglang-0.5.10.post1", "sglang.srt.layers.moe.ep_moe.kernels:ep_gather", "ep_gather"),
    "sg_l2norm": ("sglang-0.5.10.post1", f"{_ATTENTION}.fla.l2norm:l2norm_fwd", "l2norm"),
    "sg_mla_scale": (
        "sglang-0.5.10.post1",
        "sglang.srt.mem_cache.utils:set_mla_kv_scale_buffer_triton",
        "mla_scale_buffer",
    ),
    "sg_rotate": (
        "sglang-0.5.10.post1",
        "sglang.srt.speculative.multi_layer_eagle_utils:rotate_input_ids_triton",
        "rotate_ids",
    ),
    "sg_int8_matmul": (
        "sglang-0.5.10.post1",
        "sglang.srt.layers.quantization.int8_kernel:w8a8_block_int8_matmul",
        "int8_matmul",
    ),
    "sg_upscale": ("sglang-0.5.10.post1", "sglang.srt.layers.moe.rocm_moe_utils:upscale", "upscale"),
    "ao_act_quant": ("torchao", "torchao.kernel.blockwise_quantization:fp8_blockwise_act_quant", "fp8_act_quant"),
    "ao_dequant": (
        "torchao",
        "torchao.kernel.blockwise_quantization:fp8_blockwise_weight_dequant",
        "fp8_weight_dequant",
    ),
    "xf_select_bwd": ("xformers", "xformers.ops._triton.k_index_select_cat:index_select_cat_bwd", "select_bwd"),
    "xf_index_add": ("xformers", "xformers.ops._triton.k_scaled_index_add:scaled_index_add_fwd", "scaled_index_add"),
    "xf_select_fwd": ("xformers", "xformers.ops._triton.k_index_select_cat:index_select_cat_fwd", "select_fwd"),
}
"""name -> folder to import from, function, reference: one of this file, or a path"""
