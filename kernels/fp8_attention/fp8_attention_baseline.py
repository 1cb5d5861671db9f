"""fp8_attention in PyTorch: what the op means."""

import torch

import _quant
from _attention_reference import seen


def fp8_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_v: torch.Tensor,
    scale_q: torch.Tensor | None = None,
    scale_k: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """Attention of the tensors dequantised to `out_dtype`; with float64 operands everything stays float64."""
    kind = torch.float64 if v.dtype is torch.float64 else out_dtype
    if q.numel() == 0 or k.numel() == 0:
        return torch.zeros(q.shape, dtype=kind, device=q.device)
    # What all keys share is applied to the sum: an infinite scale would else make NaN of sums that it makes infinite.
    shared = scale_v.ndim == 0 or scale_v.shape[3] == v.shape[3] > 1
    parts = (q, scale_q), (k, scale_k), (v, None if shared else scale_v)
    q, k, v = (_dequantised(*part, kind) for part in parts)
    queries, keys = q.shape[2], k.shape[2]
    square = causal and queries == keys
    alone = causal and queries == 1  # sees every key
    hidden = None if square else seen(queries, keys, None, causal and not alone, (None, None), q.device)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=hidden, is_causal=square, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    if shared:
        of_heads = scale_v.repeat_interleave(q.shape[1] // k.shape[1], 1) if scale_v.ndim else scale_v
        out = (out * of_heads).to(kind)
    return out if hidden is None else torch.where(hidden.any(-1, keepdim=True), out, 0)


def _dequantised(values: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Returns values * scale, which is of the whole, of tokens, of channels or of groups of tokens.

    Contiguous: with keys as neighbours in memory PyTorch's attention takes 3 to 41 times as long on an H200.
    """
    wide = (values.to(torch.float32) if values.element_size() == 1 else values).contiguous()
    if scale is None:
        return wide.to(dtype)
    by_group = scale.ndim and scale.shape[2] not in {1, values.shape[2]}
    spread = scale.repeat_interleave(_quant.GROUP, 2)[:, :, : values.shape[2]] if by_group else scale
    return (wide * spread).to(dtype)


def make_inputs(
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    width: int,
    scaling: str,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    device: str,
    seed: int,
    *,
    parts: str = "qkv",
    along_keys: bool = True,
    causal: bool = False,
) -> dict[str, object]:
    """Inputs of one case: normal values, heads, tokens and channels of unlike size, quantised to `dtype` by `scaling`.

    scaling: tensor; channel, which for q and k is token; or group, of 128 tokens. parts: "qkv", or "v" if q and k
    stay in `out_dtype`. along_keys: v's keys are neighbours in memory, in rows of whole 16 bytes.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    def sizes(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, device=device) + 0.5

    q = drawn(batch, heads, queries, width) * sizes(batch, heads, 1, 1) * sizes(1, 1, queries, 1)
    k = drawn(batch, key_heads, keys, width) * sizes(1, 1, keys, 1)
    # Then the weights' absolute rounding errors are equal in both formats; groups differ in size, so that
    # one's scale is wrong for another.
    size = 0.0625 / torch.finfo(dtype).eps
    v = drawn(batch, key_heads, keys, width) * sizes(1, key_heads, 1, width) * size
    v = v * sizes(1, 1, -(-keys // _quant.GROUP), 1).repeat_interleave(_quant.GROUP, 2)[:, :, :keys]
    values, scale_v = quantised(v, dtype, scaling, "column")
    if along_keys:
        padded = torch.zeros((batch, key_heads, width, -(-keys // 16) * 16), device=device).to(dtype)
        padded[..., :keys].copy_(values.transpose(2, 3))
        values = padded[..., :keys].transpose(2, 3)
    made = {"v": values, "scale_v": scale_v, "causal": causal, "out_dtype": out_dtype}
    if parts == "v":
        return {"q": q.to(out_dtype), "k": k.to(out_dtype), **made}
    (q, scale_q), (k, scale_k) = quantised(q, dtype, scaling, "row"), quantised(k, dtype, scaling, "row")
    return {"q": q, "k": k, **made, "scale_q": scale_q, "scale_k": scale_k}


def quantised(x: torch.Tensor, dtype: torch.dtype, scaling: str, fine: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and scales; of groups each is quantised as one row."""
    if scaling != "group":
        values, scale, _ = _quant.quantize(x, dtype, "tensor" if scaling == "tensor" else fine)
        return values, scale
    batch, heads, tokens, width = x.shape
    padded = torch.nn.functional.pad(x, (0, 0, 0, -tokens % _quant.GROUP))
    rows = padded.reshape(batch, heads, padded.shape[2] // _quant.GROUP, _quant.GROUP * width)
    values, scale, _ = _quant.quantize(rows, dtype, "row")
    return values.view(padded.shape)[:, :, :tokens], scale
