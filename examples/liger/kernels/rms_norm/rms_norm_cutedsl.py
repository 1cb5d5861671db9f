"""Liger's rms_norm in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.rms_norm import rms_norm_cutedsl


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return rms_norm_cutedsl(x, weight, eps)
