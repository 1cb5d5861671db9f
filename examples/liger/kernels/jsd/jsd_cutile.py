"""Liger's jsd in cuTile."""

import torch
from liger_kernel.ops.backends._cutile.jsd import jsd_cutile


def jsd(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return jsd_cutile(student, teacher)
