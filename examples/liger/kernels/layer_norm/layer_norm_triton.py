"""Liger's layer_norm in Triton."""

import torch
from liger_kernel.ops.backends._triton.layer_norm import layer_norm_triton


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return layer_norm_triton(x, weight, bias, eps)
