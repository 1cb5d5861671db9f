import torch
import torch.nn as nn


class Model(nn.Module):
    """SwiGLU: silu(gate) * up."""

    def __init__(self):
        super().__init__()

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(gate) * up


tokens = 512
hidden = 1536


def get_inputs():
    gate = torch.randn(tokens, hidden).cuda()
    up = torch.randn(tokens, hidden).cuda()
    return [gate, up]


def get_init_inputs():
    return []
