"""jsd in PyTorch: what the op means."""

import torch


def jsd(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Jensen-Shannon divergence of two rows of logarithms of probabilities, halved, by rows."""
    mean = (student.exp() + teacher.exp()).div(2).log()
    both = [torch.nn.functional.kl_div(mean, x, reduction="batchmean", log_target=True) for x in (student, teacher)]
    return sum(both) / 2


def make_inputs(rows: int, cols: int, dtype: torch.dtype, device: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {"student": normal(rows, cols).log_softmax(-1), "teacher": normal(rows, cols).log_softmax(-1)}
