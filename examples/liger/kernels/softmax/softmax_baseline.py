"""softmax in PyTorch: what the op means."""

import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    """exp(x) / sum(exp(x)) over the last dimension."""
    return torch.softmax(x, dim=-1)


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"x": normal(rows, cols)}
