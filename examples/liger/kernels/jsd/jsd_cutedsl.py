"""Liger's jsd in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.jsd import jsd_cutedsl


def jsd(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return jsd_cutedsl(student, teacher)
