"""Compiles conv2d and fp8_attention for an H200 without one, and prints what became of each launch as JSON.

It runs as a separate process, since that process is useless for anything else.
"""

import functools
import re

from launches import launched, print_report

CONVOLUTIONS = {
    "3x3": {"channels": 256, "outputs": 256, "taps": 3, "padding": 1},
    "3x3 by planes": {"channels": 256, "outputs": 256, "taps": 3, "padding": 1, "last": False},
    "odd outputs": {"channels": 256, "outputs": 321, "taps": 3, "padding": 1},
    "1x1 stride 2": {"channels": 256, "outputs": 128, "taps": 1, "stride": 2},
    "3x3 stride 2": {"channels": 128, "outputs": 128, "taps": 3, "padding": 1, "stride": 2},
    "3x3 stride 2 by planes": {"channels": 128, "outputs": 256, "taps": 3, "padding": 1, "stride": 2, "last": False},
    "3x3 stride (1, 2)": {"channels": 64, "outputs": 64, "taps": 3, "padding": 1, "stride": (1, 2)},
    "first layer": {"channels": 3, "outputs": 64, "taps": 7, "padding": 3, "stride": 2},
    "depthwise": {"channels": 384, "outputs": 384, "taps": 7, "padding": 3, "groups": 384},
    "depthwise 5x5 stride 2": {"channels": 36, "outputs": 36, "taps": 5, "padding": 2, "groups": 36, "stride": 2},
    "depthwise float32": {"channels": 64, "outputs": 64, "taps": 3, "padding": 1, "groups": 64, "dtype": "float32"},
    "depthwise by planes": {"channels": 64, "outputs": 64, "taps": 7, "padding": 3, "groups": 64, "last": False},
    "depthwise twice": {"channels": 64, "outputs": 128, "taps": 3, "padding": 1, "groups": 64},
    "float32 by planes": {"channels": 64, "outputs": 64, "taps": 3, "padding": 1, "dtype": "float32", "last": False},
}
ATTENTIONS = {
    "tensor": {"causal": True},
    "channel": {"causal": True, "scaling": "channel"},
    "group": {"causal": True, "scaling": "group"},
    "v alone": {"causal": True, "parts": "v"},
    "256 wide": {"width": 256, "scaling": "channel"},
    "e5m2": {"dtype": "float8_e5m2"},
    "v by rows": {"along_keys": False},
}


def report_all():
    calls = {("conv2d", name): functools.partial(_convolution, **case) for name, case in CONVOLUTIONS.items()}
    calls |= {("fp8_attention", name): functools.partial(_attention, **case) for name, case in ATTENTIONS.items()}
    return [facts for (op, name), call in calls.items() for facts in _facts(op, name, call())]


def _convolution(channels, outputs, taps, dtype="bfloat16", last=True, groups=1, **how):
    import torch
    from conv2d_triton import conv2d

    order = torch.channels_last if last else torch.contiguous_format
    kind = {"dtype": getattr(torch, dtype), "device": "cuda"}
    x = torch.empty((64, channels, 56, 56), **kind).to(memory_format=order)
    weight = torch.empty((outputs, channels // groups, taps, taps), **kind).to(memory_format=order)
    return functools.partial(
        conv2d, x, weight, torch.empty(outputs, **kind), groups=groups, activation="relu", **how
    )  # fmt: skip


def _attention(width=128, scaling="tensor", dtype="float8_e4m3fn", parts="qkv", along_keys=True, causal=False):
    import torch
    from fp8_attention_triton import fp8_attention

    float8 = getattr(torch, dtype)
    batch, heads, tokens = 2, 16, 4096

    def empty(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device="cuda")

    q, k = (empty(batch, heads, tokens, width, dtype=float8 if parts == "qkv" else torch.bfloat16) for _ in "qk")
    v = empty(batch, heads, width, tokens, dtype=float8).transpose(2, 3)
    group = (batch, heads, tokens // 128, 1)
    of_token = {"tensor": (), "channel": (batch, heads, tokens, 1), "group": group}[scaling]
    of_v = {"tensor": (), "channel": (batch, heads, 1, width), "group": group}[scaling]
    scales = [empty(*of_token), empty(*of_token)] if parts == "qkv" else [None, None]
    v = v if along_keys else v.contiguous()
    return functools.partial(fp8_attention, q, k, v, empty(*of_v), *scales, causal=causal)


def _facts(op, name, call):
    for _, _, ptx, facts in launched(call):
        yield facts | {
            "op": op,
            "name": name,
            "warp_groups_multiply": "wgmma.mma_async" in ptx,
            "from_registers": re.search(r"wgmma\.mma_async\S+ \{[^}]*\}, \{", ptx) is not None,
            "float8": "e4m3.e4m3" in ptx or "e5m2.e5m2" in ptx,
            "descriptors": "cp.async.bulk.tensor" in ptx,
            "copies": "cp.async.cg.shared.global [" in ptx or "cp.async.ca.shared.global [" in ptx,
        }


if __name__ == "__main__":
    print_report(report_all, "conv2d", "fp8_attention")
