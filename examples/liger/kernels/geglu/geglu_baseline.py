"""geglu in PyTorch: what the op means."""

import torch


def geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """gelu(a) * b, with gelu's approximation by tanh."""
    return torch.nn.functional.gelu(a, approximate="tanh") * b


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"a": normal(rows, cols), "b": normal(rows, cols)}
