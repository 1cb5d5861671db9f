"""softmax_backward in PyTorch: what the op means."""

import torch


def softmax_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns y * (grad - sum(grad * y)) over the last dimension, where y is softmax's answer."""
    return torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)


def make_inputs(
    rows: int | tuple[int, ...], cols: int, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor]:
    """Inputs of one case. `rows` is a number, or the leading dimensions: () gives rank 1."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (*(rows if isinstance(rows, tuple) else (rows,)), cols)
    x, grad = (torch.randn(shape, generator=generator, dtype=dtype, device=device) for _ in range(2))
    return {"grad": grad, "y": torch.softmax(x, dim=-1)}
