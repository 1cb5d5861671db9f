"""attention_backward in PyTorch: what the op means, and PyTorch's fastest way for the case."""

import torch

from _attention_reference import kept, make_mask, numbers, seen

LONG = 4096
"""Tokens from which on out and sums are those of PyTorch's flash attention, if it takes the case."""


def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    grad: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (dq, dk, dv) by the chain rule, from the given out and sums.

    With weights p = 2^(scale log2(e) q k^T - sums): dv = p^T grad, dk = ds^T q and dq = ds k, where
    ds = scale p (grad v^T - sum(out grad)); dropout drops the same weights from p in dv and from grad v^T.
    """
    mask = None if mask is None else mask.expand(q.shape[0], *mask.shape[1:])
    kept_all = kept(*q.shape[:3], k.shape[2], dropout, seed, q.device) if dropout else None
    parts = [
        _of_one(*(each[i] for each in (q, k, v, out, sums, grad)),
                mask[i : i + 1] if mask is not None else None,
                seen(q.shape[2], k.shape[2], mask[i : i + 1] if mask is not None else None, causal, window, q.device),
                q.shape[3] ** -0.5 if scale is None else scale,
                kept_all[i] / (1 - dropout) if dropout else None)
        for i in range(q.shape[0])
    ]  # fmt: skip
    if not parts:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dq, dk, dv = (torch.stack(each) for each in zip(*parts, strict=True))
    return dq, dk, dv


def _of_one(q, k, v, out, sums, grad, mask, hidden, scale, stays):
    """The gradients of one sequence, as one sequence's heads already need much memory."""
    group = q.shape[0] // max(k.shape[0], 1)
    many_k, many_v = (each.repeat_interleave(group, dim=0) for each in (k, v))
    scores = (q @ many_k.mT) * (scale * 1.4426950408889634)
    if numbers(mask) is not None:
        scores = scores + mask[0] * 1.4426950408889634
    p = torch.exp2(scores - sums[..., None].to(q.dtype))
    if hidden is not None:
        p = torch.where(hidden[0], p, 0)
    dp = grad @ many_v.mT
    dropped = p if stays is None else (p * stays).to(p.dtype)
    dp = dp if stays is None else (dp * stays).to(dp.dtype)
    ds = p * (dp - (out * grad).sum(-1, keepdim=True)) * scale
    dk, dv = (each.unflatten(0, (-1, max(group, 1))).sum(1) for each in (ds.mT @ q, dropped.mT @ grad))
    return ds @ many_k, dk, dv


def fastest(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    grad: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The backward half of scaled_dot_product_attention's flash backend if it supports the case; else the same."""
    if mask is not None or dropout or not _has_flash(q):
        return attention_backward(q, k, v, out, sums, grad, mask, causal, window, scale, dropout, seed)
    rows = [each.transpose(1, 2) for each in (grad, q, k, v, out)]
    left, right = window
    unused = torch.empty(2, dtype=torch.uint64, device=q.device)
    dq, dk, dv = torch.ops.aten._flash_attention_backward(
        *rows, sums * 0.6931471805599453, None, None, q.shape[2], k.shape[2], 0.0, causal, unused, unused, scale=scale,
        window_size_left=left, window_size_right=right,
    )  # fmt: skip
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


def _has_flash(q: torch.Tensor) -> bool:
    """Whether PyTorch's flash attention takes tensors like this one."""
    has_device = hasattr(getattr(torch, q.device.type), "get_device_name")
    return q.element_size() == 2 and q.shape[3] % 8 == 0 and q.numel() > 0 and has_device


def make_inputs(
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    width: int,
    dtype: torch.dtype,
    device: str,
    seed: int,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    padded: bool = False,
    mask: str = "",
    dropout: float = 0.0,
) -> dict[str, object]:
    """Inputs of one case; `padded` hides from none to all of each sequence's last keys.

    out and sums are those of PyTorch's flash attention for long sequences that it takes, else by definition.
    mask: "bool" or "added", or one of these and "-by-head", is a mask of places.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(heads: int, rows: int) -> torch.Tensor:
        return torch.randn((batch, heads, rows, width), generator=generator, dtype=dtype, device=device)

    q, k, v, grad = normal(heads, queries), normal(key_heads, keys), normal(key_heads, keys), normal(heads, queries)
    given = {"causal": causal, "window": window, "dropout": dropout, "seed": seed}
    if queries == keys >= LONG and not (padded or mask or dropout) and _has_flash(q):
        out, sums = _flash(q, k, v, causal, window)
        return {"q": q, "k": k, "v": v, "out": out, "sums": sums, "grad": grad, "mask": None, **given}
    lengths = keys - keys * torch.arange(batch, device=device)[:, None] // max(batch - 1, 1)
    hiding = torch.arange(keys, device=device) < lengths if padded else None
    hiding = make_mask(mask, batch, heads, queries, keys, dtype, generator) if mask else hiding
    stays = kept(batch, heads, queries, keys, dropout, seed, q.device) / (1 - dropout) if dropout else None
    out, sums = torch.empty_like(q), torch.empty((batch, heads, queries), device=device)
    for i in range(batch):
        of_one = hiding[i : i + 1] if hiding is not None else None
        hidden = seen(queries, keys, of_one, causal, window, q.device)
        out[i], sums[i] = _forward(q[i], k[i], v[i], of_one, hidden, stays[i] if dropout else None)
    return {"q": q, "k": k, "v": v, "out": out, "sums": sums, "grad": grad, "mask": hiding, **given}


def _flash(q, k, v, causal, window):
    """Attention of all sequences and its sums, contiguous."""
    rows = [each.transpose(1, 2) for each in (q, k, v)]
    left, right = window
    out, sums, *_ = torch.ops.aten._flash_attention_forward(
        *rows, None, None, q.shape[2], k.shape[2], 0.0, causal, False, window_size_left=left, window_size_right=right
    )
    return out.transpose(1, 2).contiguous(), sums * 1.4426950408889634


def _forward(q, k, v, mask, hidden, stays):
    """Attention of one sequence in float32, and its sums."""
    k, v = (each.float().repeat_interleave(q.shape[0] // max(k.shape[0], 1), dim=0) for each in (k, v))
    scores = (q.float() @ k.mT) * q.shape[-1] ** -0.5
    if numbers(mask) is not None:
        scores = scores + mask[0]
    if hidden is not None:
        scores = scores.masked_fill(~hidden[0], -torch.inf)
    sums = torch.logsumexp(scores, -1)
    weights = torch.where(sums[..., None] == -torch.inf, 0, torch.exp(scores - sums[..., None]))
    weights = weights if stays is None else weights * stays
    return weights @ v, sums * 1.4426950408889634
