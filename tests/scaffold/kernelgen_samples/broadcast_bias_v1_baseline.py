import torch


def broadcast_bias(x, bias):
    return torch.broadcast_to(bias, x.shape).contiguous()
