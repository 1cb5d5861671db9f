"""Liger's jsd in Triton."""

import torch
from liger_kernel.ops.backends._triton.jsd import jsd_triton


def jsd(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return jsd_triton(student, teacher)
