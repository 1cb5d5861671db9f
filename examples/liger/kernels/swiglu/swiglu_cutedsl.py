"""Liger's swiglu in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.swiglu import swiglu_cutedsl


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return swiglu_cutedsl(a, b)
