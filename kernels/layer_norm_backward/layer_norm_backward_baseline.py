"""layer_norm_backward in PyTorch: what the op means, and PyTorch's kernel."""

import torch

Gradients = torch.Tensor | tuple[torch.Tensor, ...]


def layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: bool = False,
) -> Gradients:
    """By the chain rule: rstd * (g - y * mean(g * y) - mean(g)), where y = (x - mean) * rstd and g = grad * weight.

    Those of weight and bias are the sums over rows of grad * y and of grad.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    y = (x.to(wide) - mean) * rstd
    g = grad.to(wide) if weight is None else grad.to(wide) * weight.to(wide)
    of_x = ((g - y * (g * y).mean(-1, keepdim=True) - g.mean(-1, keepdim=True)) * rstd).to(x.dtype)
    sums = [grad.to(wide) * y] if weight is not None else []
    sums += [grad.to(wide)] if bias else []
    gradients = (of_x, *(each.reshape(-1, x.shape[-1]).sum(0).to(x.dtype) for each in sums))
    return gradients if len(gradients) > 1 else of_x


def fastest(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: bool = False,
) -> Gradients:
    """PyTorch's kernels on an accelerator, else the same: on the host they take no statistics in float32.

    They have no bias without a weight.
    """
    on_accelerator = hasattr(getattr(torch, x.device.type), "get_device_name")
    if not on_accelerator or (bias and weight is None):
        return layer_norm_backward(grad, x, mean, rstd, weight, bias)
    wanted = [True, weight is not None, bias]
    gradients = torch.ops.aten.native_layer_norm_backward(grad, x, x.shape[-1:], mean, rstd, weight, weight, wanted)
    made = tuple(each for each in gradients if each is not None)
    return made if len(made) > 1 else made[0]


def make_inputs(
    rows: int | tuple[int, ...], cols: int, affine: str, dtype: torch.dtype, device: str, seed: int
) -> dict[str, torch.Tensor | bool | None]:
    """Inputs of one case; each row has a mean and a separate spread, and the statistics that belong to it.

    `rows` is a number, or the leading dimensions: () gives x rank 1. `affine` is "both", "weight", "bias" or "none".
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    lead = rows if isinstance(rows, tuple) else (rows,)
    x = normal(*lead, cols).mul_(normal(*lead, 1).exp_()).add_(normal(*lead, 1), alpha=2)
    grad, weight = normal(*lead, cols), normal(cols)
    mean = x.mean(-1, keepdim=True, dtype=torch.float32)
    square = torch.linalg.vector_norm(x - mean, dim=-1, keepdim=True, dtype=torch.float32).square_()
    return {
        "grad": grad,
        "x": x,
        "mean": mean,
        "rstd": torch.rsqrt(square / max(cols, 1) + 1e-5),
        "weight": weight if affine in {"both", "weight"} else None,
        "bias": affine in {"both", "bias"},
    }
