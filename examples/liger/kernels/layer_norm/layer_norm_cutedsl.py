"""Liger's layer_norm in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.layer_norm import layer_norm_cutedsl


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return layer_norm_cutedsl(x, weight, bias, eps)
