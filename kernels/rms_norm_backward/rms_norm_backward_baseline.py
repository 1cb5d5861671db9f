"""rms_norm_backward in PyTorch: what the op means, and PyTorch's kernel."""

import torch

Gradients = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def rms_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None = None
) -> Gradients:
    """By the chain rule: rstd * (g - y * mean(g * y)), where y = x * rstd and g = grad * weight; sum of grad * y."""
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide) * rstd
    g = grad.to(wide) if weight is None else grad.to(wide) * weight.to(wide)
    of_x = ((g - y * (g * y).mean(-1, keepdim=True)) * rstd).to(x.dtype)
    if weight is None:
        return of_x
    return of_x, (grad.to(wide) * y).reshape(-1, x.shape[-1]).sum(0).to(x.dtype)


def fastest(grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None = None) -> Gradients:
    """PyTorch's fused kernel if it has one for the device (since 2.8, without a public name), else the same."""
    on_accelerator = hasattr(getattr(torch, x.device.type), "get_device_name")
    if not on_accelerator or not hasattr(torch.ops.aten, "_fused_rms_norm_backward"):
        return rms_norm_backward(grad, x, rstd, weight)
    wanted = [True, weight is not None]
    of_x, of_weight = torch.ops.aten._fused_rms_norm_backward(grad, x, x.shape[-1:], rstd, weight, wanted)
    return of_x if weight is None else (of_x, of_weight)


def make_inputs(
    rows: int | tuple[int, ...], cols: int, weighted: bool, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | None]:
    """Inputs of one case; each row has a separate spread, and the rstd that belongs to it.

    `rows` is a number, or the leading dimensions: () gives x rank 1.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    lead = rows if isinstance(rows, tuple) else (rows,)
    x = normal(*lead, cols).mul_(normal(*lead, 1).exp_())
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_()
    grad, weight = normal(*lead, cols), normal(cols)
    rstd = torch.rsqrt(square / max(cols, 1) + 1e-6)
    return {"grad": grad, "x": x, "rstd": rstd, "weight": weight if weighted else None}
