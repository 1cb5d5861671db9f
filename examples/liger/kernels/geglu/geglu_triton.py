"""Liger's geglu in Triton."""

import torch
from liger_kernel.ops.backends._triton.geglu import geglu_triton


def geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return geglu_triton(a, b)
