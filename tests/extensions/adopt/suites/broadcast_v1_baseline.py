import torch


def broadcast_baseline(x, bias):
    # x only gives the shape
    return bias.unsqueeze(0).expand(x.shape[0], -1).contiguous()
