"""Liger's rms_norm in Triton."""

import torch
from liger_kernel.ops.backends._triton.rms_norm import rms_norm_triton


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return rms_norm_triton(x, weight, eps)
