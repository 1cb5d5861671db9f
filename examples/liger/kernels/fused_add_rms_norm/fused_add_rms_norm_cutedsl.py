"""Liger's fused_add_rms_norm in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.fused_add_rms_norm import fused_add_rms_norm_cutedsl


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    return fused_add_rms_norm_cutedsl(x, residual, weight, eps)
