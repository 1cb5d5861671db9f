"""Liger's layer_norm in cuTile."""

import torch
from liger_kernel.ops.backends._cutile.layer_norm import layer_norm_cutile


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return layer_norm_cutile(x, weight, bias, eps)
