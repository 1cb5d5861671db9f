"""cross_entropy_backward in PyTorch: what the op means, and PyTorch's kernels."""

import torch


def cross_entropy_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    logsumexp: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """(exp(x - logsumexp) - smoothed target) * grad of each row, divided by the rows that count if it is a mean."""
    wide = torch.promote_types(x.dtype, torch.float32)
    classes = x.shape[-1]
    counted = target != ignore_index
    strays = (target < 0) | (target >= classes)
    weight = grad.to(wide) / counted.sum() if reduction == "mean" else grad.to(wide)
    weight = torch.where(strays, float("nan"), weight)
    hit = torch.arange(classes, device=x.device) == target[..., None]
    y = torch.exp(x.to(wide) - logsumexp[..., None]) - label_smoothing / classes
    y = torch.where(hit, y - (1 - label_smoothing), y) * weight[..., None]
    return torch.where(counted[..., None], y, 0).to(x.dtype)


def fastest(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    logsumexp: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """PyTorch's kernels of its two steps, nll_loss and log_softmax, of whose answer they need more than its sums."""
    logarithms = (x - logsumexp[..., None]).to(x.dtype)
    counted = target != ignore_index
    total = counted.sum().to(x.dtype)
    code = ("none", "mean", "sum").index(reduction)
    one = grad * (1 - label_smoothing)
    of_logarithms = torch.ops.aten.nll_loss_backward(one, logarithms, target, None, code, ignore_index, total)
    if label_smoothing:
        weight = torch.where(counted, grad / total if reduction == "mean" else grad, 0)
        of_logarithms = of_logarithms - (weight * (label_smoothing / x.shape[-1]))[..., None]
    return torch.ops.aten._log_softmax_backward_data(of_logarithms, logarithms, -1, x.dtype)


def make_inputs(
    rows: int | tuple[()],
    cols: int,
    reduction: str,
    smoothing: float,
    ignored: float,
    dtype: torch.dtype,
    device: str,
    seed: int,
) -> dict[str, torch.Tensor | int | str | float]:
    """Inputs of one case. `rows` is a number, or () for one row of rank 1; `ignored` is the share of rows left out.

    Those are of a class in the middle, so that a kernel which ignores nothing gives a number that looks right. The grad
    of a mean is as large as the rows are many: what the answer is made of are numbers around 1.
    """
    generator = torch.Generator(device).manual_seed(seed)
    lead = rows if isinstance(rows, tuple) else (rows,)
    x = torch.randn((*lead, cols), generator=generator, dtype=dtype, device=device).mul_(3)
    target = torch.randint(0, cols, lead, generator=generator, device=device)
    shape = lead if reduction == "none" else ()
    grad = torch.randn(shape, generator=generator, dtype=dtype, device=device)
    made = {"x": x, "target": target, "reduction": reduction, "label_smoothing": smoothing}
    if ignored:
        target.masked_fill_(torch.rand(lead, generator=generator, device=device) < ignored, cols // 2)
        made["ignore_index"] = cols // 2
    grad = grad * max(target.numel(), 1) if reduction == "mean" else grad
    return {"grad": grad, **made, "logsumexp": torch.logsumexp(x.float(), -1)}
