"""layer_norm in PyTorch: what the op means."""

import torch

Answer = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    stats: bool = False,
) -> Answer:
    """(x - mean) / sqrt(variance + eps) * weight + bias; with `stats` mean and 1 / sqrt(variance + eps) too."""
    if not stats:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    out, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
    wide = torch.promote_types(x.dtype, torch.float32)
    if mean.dtype != wide:  # if PyTorch rounded them to x's dtype, as it does on the host
        _, mean, rstd = torch.native_layer_norm(x.to(wide), x.shape[-1:], None, None, eps)
    return out, mean, rstd


def make_inputs(
    rows: int | tuple[int, ...], cols: int, affine: str, stats: bool, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | bool | None]:
    """Inputs of one case; each row has a mean and a separate spread.

    `rows` is a number, or the leading dimensions: () gives x rank 1. `affine` is "both", "weight", "bias" or "none".
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    lead = rows if isinstance(rows, tuple) else (rows,)
    x = normal(*lead, cols).mul_(normal(*lead, 1).exp_()).add_(normal(*lead, 1), alpha=2)
    weight, bias = normal(cols), normal(cols)
    return {
        "x": x,
        "weight": weight if affine in {"both", "weight"} else None,
        "bias": bias if affine in {"both", "bias"} else None,
        "stats": stats,
    }
