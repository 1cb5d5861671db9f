"""The ops with accuracy suites that are run here."""

import importlib

import torch

OPS = (
    "broadcast", "bias_relu", "softmax", "matmul", "fp8_matmul", "attention", "attention_backward",
    "vector_add", "gelu", "layer_norm", "rms_norm", "cross_entropy",
    "conv2d", "fp8_attention", "add_rms_norm", "rotary",
    "softmax_backward", "rms_norm_backward", "layer_norm_backward", "cross_entropy_backward",
)  # fmt: skip


def module_of(op):
    return importlib.import_module(f"{op}_triton")


def suite_of(op):
    return importlib.import_module(f"{op}_accuracy").accuracy


def widen(inputs):
    """Floating-point tensors of a call in float64."""
    return {
        name: value.float().double() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
