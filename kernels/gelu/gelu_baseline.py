"""gelu in PyTorch: what the op means."""

import torch


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Returns x * Phi(x), exactly or by tanh."""
    return torch.nn.functional.gelu(x, approximate=approximate)


def make_inputs(
    shape: int | tuple[int, ...], approximate: str, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | str]:
    """Inputs of one case: from -12 to 12 or so, with the tails, where gelu is nearly 0 or nearly x."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=dtype, device=device).mul_(3)
    return {"x": x, "approximate": approximate}
