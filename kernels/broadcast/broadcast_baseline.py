"""broadcast in PyTorch: what the op means."""

import torch


def broadcast(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """out[p, d] = bias[d] in x's shape and dtype; x is never read."""
    # clone, as contiguous() would hand back the bias itself for a single row
    return bias.to(x.dtype).expand(x.shape).clone(memory_format=torch.contiguous_format)


def make_inputs(
    rows: int | tuple[int, ...], cols: int, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor]:
    """Inputs of one case. `rows` is a number, or the leading dimensions: () gives x rank 1."""
    generator = torch.Generator(device).manual_seed(seed)
    lead = rows if isinstance(rows, tuple) else (rows,)
    return {
        "x": torch.randn((*lead, cols), generator=generator, dtype=dtype, device=device),
        "bias": torch.randn(cols, generator=generator, dtype=dtype, device=device),
    }
