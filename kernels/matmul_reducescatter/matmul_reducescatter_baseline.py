"""matmul_reducescatter in PyTorch: what the op means."""

import torch
import torch.distributed as dist

REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)
"""Its name since torch 2.13, and before."""


def matmul_reducescatter(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Part of the rows, the part of this rank, of the sum of all ranks' a @ b, over the default group."""
    return scatter(torch.matmul(a, b))


def scatter(product: torch.Tensor) -> torch.Tensor:
    """The communication alone: this rank's part of the rows of the sum. Without a group there is one rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return product
    rows = product.new_empty((product.shape[0] // dist.get_world_size(), product.shape[1]))
    REDUCE_SCATTER(rows, product)
    return rows


def make_inputs(
    m: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int, *, rank: int = 0, ranks: int = 1
) -> dict[str, torch.Tensor]:
    """Inputs of one rank: of a (m, k) its part of the columns, and of b (k, n) its part of the rows.

    m and k are of all ranks together, and multiples of their number.
    """
    generator = torch.Generator(device).manual_seed(seed * ranks + rank)
    shapes = {"a": (m, k // ranks), "b": (k // ranks, n)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype, device=device) for name, shape in shapes.items()}
