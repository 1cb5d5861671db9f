"""kl_div in PyTorch: what the op means."""

import torch


def kl_div(y_pred: torch.Tensor, y_true: torch.Tensor) -> torch.Tensor:
    """Sum of y_true * (log(y_true) - y_pred), by rows. y_pred are logarithms of probabilities, y_true probabilities."""
    return torch.nn.functional.kl_div(y_pred, y_true, reduction="batchmean")


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"y_pred": normal(rows, cols).log_softmax(-1), "y_true": normal(rows, cols).softmax(-1)}
