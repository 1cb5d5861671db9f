"""Liger's geglu in CuTe DSL."""

import torch
from liger_kernel.ops.backends._cutedsl.geglu import geglu_cutedsl


def geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return geglu_cutedsl(a, b)
