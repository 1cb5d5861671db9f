"""Compiles attention and its backward for an H200 without one, and prints what became of each launch as JSON.

It runs as a separate process, since that process is useless for anything else.
"""

from launches import launched, print_report

HOW = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": (100, None)},
    "mask": {"mask": True},
    "dropout": {"causal": True, "dropout": 0.1},
    "mask and dropout": {"causal": True, "mask": True, "dropout": 0.1},
}
CASES = (
    (64, "causal", False),
    *((128, how, False) for how in ("plain", "window", "dropout")),
    (256, "plain", False),
    (128, "causal", True),
)
"""width, how, whether the strides leave gaps"""
FEW = (
    *((1, 4097, 128, how, "bfloat16") for how in ("plain", "window")),
    *((16, 4097, 128, how, "bfloat16") for how in ("causal", "mask and dropout")),
    (16, 4096, 256, "plain", "float16"),
    (1, 4096, 128, "mask and dropout", "float32"),
    (1, 100, 64, "plain", "bfloat16"),
)
"""queries, of each of 4 heads that share a key head, keys, width, how, dtype"""


def report_all():
    import attention_triton

    attention_triton.attention_groups = None  # compile_attention_groups.py is about those
    few = [facts for case in FEW for facts in _few(*case)]
    return [*few, *(facts for case in CASES for facts in _launches(*case))]


def _few(queries, keys, width, how, dtype):
    import torch
    from attention_triton import attention

    def tensor(heads, rows):
        return torch.empty((2, heads, rows, width), dtype=getattr(torch, dtype), device="cuda")

    hiding = dict(HOW[how])
    if "mask" in hiding:
        hiding["mask"] = torch.empty((2, keys), dtype=torch.bool, device="cuda")
    k, v = tensor(2, keys), tensor(2, keys)
    told = {"queries": queries, "keys": keys, "width": width, "how": how, "dtype": dtype, "strided": False}
    return [told | facts for facts in _facts(lambda: attention(tensor(8, queries), k, v, **hiding))]


def _launches(width, how, strided):
    import torch
    from attention_backward_triton import attention_backward
    from attention_triton import attention

    step = 2 if strided else 1
    shape = (2, 4, 1024, width * step)
    tensors = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in range(5))
    q, k, v, out, grad = (tensor[..., ::step] for tensor in tensors)
    sums = torch.empty(shape[:3], dtype=torch.float32, device="cuda")
    hiding = dict(HOW[how])
    if "mask" in hiding:
        hiding["mask"] = torch.empty((2, 1024), dtype=torch.bool, device="cuda")
    for call in (lambda: attention(q, k, v, **hiding), lambda: attention_backward(q, k, v, out, sums, grad, **hiding)):
        for facts in _facts(call):
            yield {"queries": 1024, "width": width, "how": how, "strided": strided} | facts


def _facts(call):
    for _, _, ptx, facts in launched(call):
        yield facts | {
            "warp_groups_multiply": "wgmma" in ptx,
            "tensor_cores": "wgmma" in ptx or "mma.sync" in ptx,
            "descriptors": "cp.async.bulk.tensor" in ptx,
        }


if __name__ == "__main__":
    print_report(report_all, "attention", "attention_backward")
