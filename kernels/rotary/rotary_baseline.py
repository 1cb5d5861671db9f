"""rotary in PyTorch: what the op means."""

import torch


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotates pairs of the first values of every head; cos and sin have a row for each token, half as wide."""
    return _turned(q, cos, sin, interleaved), _turned(k, cos, sin, interleaved)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    half = cos.shape[1]
    cos, sin = (table[: x.shape[1], None] for table in (cos, sin))
    part = x[..., : 2 * half]
    left, right = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    pair = left * cos - right * sin, right * cos + left * sin
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    turned = turned.to(x.dtype)
    return turned if 2 * half == x.shape[-1] else torch.cat((turned, x[..., 2 * half :]), -1)


def make_inputs(
    batch: int,
    tokens: int,
    heads: int,
    key_heads: int,
    width: int,
    rotated: int,
    interleaved: bool,
    dtype: torch.dtype,
    device: str,
    seed: int,
    *,
    table: torch.dtype | None = None,
) -> dict[str, torch.Tensor | bool]:
    """Inputs of one case: `rotated` values of each head's `width` are, by tables of `table` or else `dtype`.

    The tables are a model's, of angles position * 10000**(-2 i / rotated), from a position that the seed chooses.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(heads):
        return torch.randn((batch, tokens, heads, width), generator=generator, dtype=dtype, device=device)

    frequency = 10000.0 ** (-torch.arange(0, rotated, 2, dtype=torch.float64, device=device) / rotated)
    angle = (seed % 1000 + torch.arange(tokens + 1, dtype=torch.float64, device=device))[:, None] * frequency
    cos, sin = (table_of.to(table or dtype) for table_of in (angle.cos(), angle.sin()))
    return {"q": normal(heads), "k": normal(key_heads), "cos": cos, "sin": sin, "interleaved": interleaved}


def case_of(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, interleaved: bool = False, **_: object
) -> dict[str, object]:
    """The case that a call is: what `make_inputs` takes for it."""
    batch, tokens, heads, width = q.shape
    of_tables = {} if cos.dtype == q.dtype else {"table": cos.dtype}
    rotated = 2 * cos.shape[-1]
    return {
        "batch": batch, "tokens": tokens, "heads": heads, "key_heads": k.shape[2], "width": width, "rotated": rotated,
        "interleaved": interleaved, "dtype": q.dtype, **of_tables,
    }  # fmt: skip
