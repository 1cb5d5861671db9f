"""cross_entropy in PyTorch: what the op means."""

import torch


def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """-log softmax(x)[target] of each row of x, smoothed and reduced."""
    return torch.nn.functional.cross_entropy(
        x, target, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


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

    Those are of a class in the middle, so that a kernel which ignores nothing gives a number that looks right.
    """
    generator = torch.Generator(device).manual_seed(seed)
    lead = rows if isinstance(rows, tuple) else (rows,)
    x = torch.randn((*lead, cols), generator=generator, dtype=dtype, device=device).mul_(3)
    target = torch.randint(0, cols, lead, generator=generator, device=device)
    chosen = {"reduction": reduction, "label_smoothing": smoothing}
    if not ignored:
        return {"x": x, "target": target, **chosen}
    target.masked_fill_(torch.rand(lead, generator=generator, device=device) < ignored, cols // 2)
    return {"x": x, "target": target, "ignore_index": cols // 2, **chosen}
