"""Compiles the ops for an H200 without one, through their wrappers, and prints what became of them as JSON.

It runs as a separate process, since that process is useless for anything else.
"""

import functools
import importlib
import itertools
import re

from launches import launched, print_report

DTYPES = ("float32", "bfloat16")
"""float16 takes the same ways as bfloat16."""
SHAPES = {
    "broadcast": ((256, 256), (4001, 1024), (32768, 4096)),
    "bias_relu": ((256, 256), (4001, 1024), (32768, 4096)),
    "softmax": ((4001, 1024), (16384, 4096), (1024, 131072)),
    "matmul": ((16, 8192, 8192), (8192, 64, 1024), (4096, 4096, 4096), (4095, 4096, 4100)),
}  # fmt: skip
FINISHED = ((4096, 4096, 4096), (4095, 4096, 4100))
"""shapes of matmul with bias and activation"""
ACTIVATIONS = {"float32": "gelu_tanh", "float16": "gelu", "bfloat16": "silu"}
FP8 = {"tensor": ((8192, 8192, 8192), (64, 8192, 8192), (4095, 4096, 1000)),
       "row": ((8192, 8192, 8192), (65, 4096, 1001)), "block": ((4096, 4096, 4096), (4095, 4096, 1000))}  # fmt: skip
"""scaling -> shapes of fp8_matmul"""


def report_all():
    import torch

    report = []
    for op, shapes in SHAPES.items():
        function = getattr(importlib.import_module(f"{op}_triton"), op)
        for shape in shapes:
            for dtype in DTYPES:
                launches = _facts(lambda: function(*_arguments(op, shape, getattr(torch, dtype))))  # noqa: B023
                report += [{"op": op, "shape": shape, "dtype": dtype} | facts for facts in launches]
    return [*report, *_finished_matmuls(), *_fp8_matmuls()]


def _finished_matmuls():
    import matmul_triton
    import torch

    for shape in FINISHED:
        for dtype, activation in ACTIVATIONS.items():
            kind = getattr(torch, dtype)
            a, b = _arguments("matmul", shape, kind)
            bias = torch.empty(shape[1], dtype=kind, device="cuda")
            call = functools.partial(matmul_triton.matmul, a, b, bias, activation)
            yield from ({"op": "finished_matmul", "shape": shape, "dtype": dtype} | facts for facts in _facts(call))


def _fp8_matmuls():
    import torch
    from fp8_matmul_triton import fp8_matmul

    for scaling, shapes in FP8.items():
        for (m, n, k), out_dtype in itertools.product(shapes, ("bfloat16", "float32")):
            a = torch.empty((m, k), dtype=torch.float8_e4m3fn, device="cuda")
            b = torch.empty((n, k), dtype=torch.float8_e4m3fn, device="cuda").t()
            blocks = ((m, -(-k // 128)), (-(-k // 128), -(-n // 128)))
            sides = {"tensor": ((), ()), "row": ((m, 1), (1, n)), "block": blocks}
            scales = [torch.empty(side, device="cuda") for side in sides[scaling]]
            call = functools.partial(fp8_matmul, a, b, *scales, getattr(torch, out_dtype))
            told = {"op": "fp8_matmul", "shape": (m, n, k), "dtype": f"float8 {scaling} {out_dtype}"}
            yield from (told | facts for facts in _facts(call))


def _arguments(op, shape, dtype):
    import torch

    def tensor(*sizes):
        return torch.empty(sizes, dtype=dtype, device="cuda")

    if op == "matmul":
        m, n, k = shape
        return tensor(m, k), tensor(k, n)
    return (tensor(*shape),) if op == "softmax" else (tensor(*shape), tensor(shape[-1]))


def _facts(call):
    for _, told, ptx, facts in launched(call):
        yield facts | {
            "binary": told.artefact,
            "warps": told.warps,
            "loads": _widths(ptx, r"ld\.global\S*"),
            "stores": _widths(ptx, r"st\.global\S*"),
            "copies": sorted(set(re.findall(r"cp\.async\.c[ag]\.\S+ \[.*?\], \[.*?\], (\w+)", ptx))),
            "descriptors": len(re.findall(r"cp\.async\.bulk\.tensor", ptx)),
            "tensor_cores": "wgmma" in ptx or "mma.sync" in ptx,
        }


def _widths(ptx, instruction):
    """Bytes a thread of every such access, each once."""
    widths = set()
    for text in re.findall(instruction, ptx):
        vector, bits = re.search(r"\.v(\d)", text), re.search(r"\.[bfsu](\d+)", text)
        widths.add(int(vector[1] if vector else 1) * int(bits[1]) // 8)
    return sorted(widths)


if __name__ == "__main__":
    print_report(report_all, "broadcast", "bias_relu", "softmax", "matmul", "fp8_matmul")
