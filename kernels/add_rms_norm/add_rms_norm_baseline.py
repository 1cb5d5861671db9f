"""add_rms_norm in PyTorch: what the op means."""

import torch


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rms_norm of x + residual over the last dimension, and the sum, rounded before its norm."""
    total = x + residual
    return torch.nn.functional.rms_norm(total, total.shape[-1:], weight, eps), total


def make_inputs(
    rows: int | tuple[int, ...], cols: int, weighted: bool, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | None]:
    """Inputs of one case; each row has a separate spread, some so small that eps counts.

    `rows` is a number, or the leading dimensions: () gives x rank 1.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    lead = rows if isinstance(rows, tuple) else (rows,)
    spread = normal(*lead, 1).mul_(3).sub_(2).exp_().clamp_(max=1000)
    x, residual = (normal(*lead, cols).mul_(spread) for _ in range(2))
    weight = normal(cols)
    return {"x": x, "residual": residual, "weight": weight if weighted else None}
