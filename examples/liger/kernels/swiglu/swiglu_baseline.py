"""swiglu in PyTorch: what the op means."""

import torch


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """silu(a) * b."""
    return torch.nn.functional.silu(a) * b


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"a": normal(rows, cols), "b": normal(rows, cols)}
