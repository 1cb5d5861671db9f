"""Liger's rms_norm in cuTile."""

import torch
from liger_kernel.ops.backends._cutile.rms_norm import rms_norm_cutile


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return rms_norm_cutile(x, weight, eps)
