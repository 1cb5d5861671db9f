"""Liger's swiglu in Triton."""

import torch
from liger_kernel.ops.backends._triton.swiglu import swiglu_triton


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return swiglu_triton(a, b)
