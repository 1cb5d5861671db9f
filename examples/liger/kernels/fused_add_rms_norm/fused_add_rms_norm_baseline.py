"""fused_add_rms_norm in PyTorch: what the op means."""

import torch


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of x and residual, normalised as rms_norm does, and the sum."""
    total = x + residual
    wide = total.to(torch.promote_types(x.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * weight, total


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"x": normal(rows, cols), "residual": normal(rows, cols), "weight": normal(cols)}
