"""allgather_matmul in PyTorch: what the op means."""

import torch
import torch.distributed as dist

ALL_GATHER = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
"""Its name since torch 2.13, and before."""


def allgather_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The rows of a of all ranks of the default group, one below the other, times this rank's b."""
    return torch.matmul(gather(a), b)


def gather(a: torch.Tensor) -> torch.Tensor:
    """The communication alone: the rows of all ranks. Without a group there is one rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return a
    rows = a.new_empty((dist.get_world_size() * a.shape[0], a.shape[1]))
    ALL_GATHER(rows, a.contiguous())
    return rows


def make_inputs(
    m: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int, *, rank: int = 0, ranks: int = 1
) -> dict[str, torch.Tensor]:
    """Inputs of one rank: of a (m, k) its part of the rows, and of b (k, n) its part of the columns.

    m and n are of all ranks together, and multiples of their number.
    """
    generator = torch.Generator(device).manual_seed(seed * ranks + rank)
    shapes = {"a": (m // ranks, k), "b": (k, n // ranks)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype, device=device) for name, shape in shapes.items()}
