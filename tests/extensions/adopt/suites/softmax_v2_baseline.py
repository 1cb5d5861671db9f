import torch
import torch.nn.functional as F


def torch_softmax(input: torch.Tensor) -> torch.Tensor:
    return F.softmax(input, dim=-1)
