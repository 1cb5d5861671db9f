"""matmul in PyTorch: what the op means."""

import torch


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The matrix product a @ b; float32 in full precision, which is PyTorch's default on every device."""
    return torch.matmul(a, b)


def make_inputs(m: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Inputs of one case: a is (m, k), b is (k, n)."""
    generator = torch.Generator(device).manual_seed(seed)
    return {
        "a": torch.randn((m, k), generator=generator, dtype=dtype, device=device),
        "b": torch.randn((k, n), generator=generator, dtype=dtype, device=device),
    }
