"""vector_add in PyTorch: what the op means."""

import torch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns x + y, of one shape."""
    return torch.add(x, y)


def make_inputs(
    shape: int | tuple[int, ...], transposed: bool, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor]:
    """Inputs of one case. `shape` is the length of two vectors, or the shape of two tensors: () gives rank 0.

    `transposed`: y, of two dimensions, is stored column by column.
    """
    generator = torch.Generator(device).manual_seed(seed)
    x, y = (torch.randn(shape, generator=generator, dtype=dtype, device=device) for _ in range(2))
    return {"x": x, "y": y.t().contiguous().t() if transposed else y}
