"""softmax in PyTorch: what the op means."""

import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    """exp(x) / sum(exp(x)) over the last dimension."""
    return torch.softmax(x, dim=-1)


def make_inputs(
    rows: int | tuple[int, ...], cols: int, dtype: torch.dtype, device: str, seed: int, *, hidden: int = 0
) -> dict[str, torch.Tensor]:
    """Inputs of one case. `rows` is a number, or the leading dimensions: () gives x rank 1.

    The first `hidden` columns are -inf, as a mask makes them.
    """
    generator = torch.Generator(device).manual_seed(seed)
    lead = rows if isinstance(rows, tuple) else (rows,)
    x = torch.randn((*lead, cols), generator=generator, dtype=dtype, device=device)
    x[..., :hidden] = -torch.inf
    return {"x": x}
