"""What scale means: x times a factor."""

import torch


def scale(x, factor):
    return x * factor


def make_inputs(rows, cols, dtype, device, seed):
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return {"x": torch.randn(rows, cols, generator=generator, dtype=dtype).to(device), "factor": 0.5}
