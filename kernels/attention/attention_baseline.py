"""attention in PyTorch: what the op means."""

import torch

from _attention_reference import kept, make_mask, numbers, seen


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> torch.Tensor:
    """softmax(scale q k^T) v over the keys that each query sees; 0 for a query that sees none."""
    if q.numel() == 0:
        return torch.empty_like(q, memory_format=torch.contiguous_format)
    if dropout:
        return _by_definition(q, k, v, mask, causal, window, scale, dropout, seed)
    queries, keys = q.shape[2], k.shape[2]
    square = causal and queries == keys and mask is None and window == (None, None)
    limited = causal and queries > 1 and not square  # one query sees every key
    added, hidden = numbers(mask), None
    if limited or window != (None, None) or (mask is not None and added is None):
        hidden = seen(queries, keys, mask, limited, window, q.device)
        added = hidden if added is None else added.masked_fill(~hidden, -torch.inf)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=added, is_causal=square, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out if hidden is None else torch.where(hidden.any(-1, keepdim=True), out, 0)


def _by_definition(q, k, v, mask, causal, window, scale, dropout, seed):
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    k, v = (each.repeat_interleave(heads // max(k.shape[1], 1), dim=1) for each in (k, v))
    scores = (q @ k.transpose(-1, -2)) * (width**-0.5 if scale is None else scale)
    hidden, added = seen(queries, keys, mask, causal, window, q.device), numbers(mask)
    if hidden is None:
        weights = torch.softmax(scores, -1)
    else:
        none = ~hidden.any(-1, keepdim=True)  # softmax of no scores would be NaN, and so would its derivative
        scores = scores if added is None else scores + added.masked_fill(none, 0)
        weights = torch.softmax(scores.masked_fill(~(hidden | none), -torch.inf), -1).masked_fill(none, 0)
    weights = weights * kept(batch, heads, queries, keys, dropout, seed, q.device) / (1 - dropout)
    return weights @ v


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
    padded: bool | tuple[int, ...] = False,
    mask: str = "",
    dropout: float = 0.0,
) -> dict[str, object]:
    """Inputs of one case; `padded` hides from none to all of each sequence's last keys, or lists how many it has.

    mask: "bool" or "added", or one of these and "-by-head", is a mask of places.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(heads: int, rows: int) -> torch.Tensor:
        return torch.randn((batch, heads, rows, width), generator=generator, dtype=dtype, device=device)

    lengths = keys - keys * torch.arange(batch, device=device)[:, None] // max(batch - 1, 1)
    if isinstance(padded, tuple):
        lengths = torch.tensor(padded, device=device)[:, None]
    q, k, v = normal(heads, queries), normal(key_heads, keys), normal(key_heads, keys)
    hiding = torch.arange(keys, device=device) < lengths if padded else None
    hiding = make_mask(mask, batch, heads, queries, keys, dtype, generator) if mask else hiding
    return {
        "q": q,
        "k": k,
        "v": v,
        "mask": hiding,
        "causal": causal,
        "window": window,
        "dropout": dropout,
        "seed": seed,
    }
