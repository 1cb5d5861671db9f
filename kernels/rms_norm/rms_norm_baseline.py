"""rms_norm in PyTorch: what the op means."""

import torch


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, stats: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Returns x / sqrt(mean(x**2) + eps) * weight; with `stats` 1 / sqrt(mean(x**2) + eps) too."""
    if not stats:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    if hasattr(torch.ops.aten, "_fused_rms_norm"):  # since PyTorch 2.8; has no public name
        return torch.ops.aten._fused_rms_norm(x, x.shape[-1:], weight, eps)
    wide = torch.promote_types(x.dtype, torch.float32)
    rstd = torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide).square_() / x.shape[-1] + eps)
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps), rstd


def make_inputs(
    rows: int | tuple[int, ...], cols: int, weighted: bool, stats: bool, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | bool | None]:
    """Inputs of one case; each row has a separate spread, some so small that eps counts, none beyond float16.

    `rows` is a number, or the leading dimensions: () gives x rank 1.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    lead = rows if isinstance(rows, tuple) else (rows,)
    x = normal(*lead, cols).mul_(normal(*lead, 1).mul_(3).sub_(2).exp_().clamp_(max=1000))
    weight = normal(cols)
    return {"x": x, "weight": weight if weighted else None, "stats": stats}
