"""conv2d in PyTorch: what the op means."""

import torch

Pair = int | tuple[int, int]


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(x convolved with weight, plus bias); by cuDNN on a GPU, in the order of memory that x has."""
    out = torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    return torch.relu_(out) if activation == "relu" else out


def make_inputs(
    images: int,
    channels: int,
    size: Pair,
    outputs: int,
    taps: Pair,
    dtype: torch.dtype,
    device: str,
    seed: int,
    *,
    last: bool = False,
    bias: bool = False,
    **how: Pair | str,
) -> dict[str, object]:
    """Inputs of one case; `size` and `taps` are one side or (height, width), `last`: channels-last.

    Weights are of such a size that answers are about 1. `how` are further arguments of the op.
    """
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.channels_last if last else torch.contiguous_format

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    high, wide = (size, size) if isinstance(size, int) else size
    of_kernel = (taps, taps) if isinstance(taps, int) else taps
    of_group = channels // how.get("groups", 1)
    terms = of_group * of_kernel[0] * of_kernel[1]
    inputs = {
        "x": normal(images, channels, high, wide).contiguous(memory_format=order),
        "weight": (normal(outputs, of_group, *of_kernel) * terms**-0.5).contiguous(memory_format=order),
        **how,
    }
    return inputs | {"bias": normal(outputs)} if bias else inputs
