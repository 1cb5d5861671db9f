"""Compiles fp8_matmul with scales per block for an H200 without one, and prints what became of it as JSON.

A separate process, since that process is useless for anything else.
"""

import functools
import re
import subprocess
import tempfile

from launches import launched, print_report

SHAPES = ((4096, 4096, 4096), (1000, 1040, 1552), (64, 2048, 4096))


def report_all():
    report = [facts for shape in SHAPES for out in ("bfloat16", "float32") for facts in _launches(shape, out)]
    import fp8_matmul_triton

    choose, narrow = fp8_matmul_triton.choose_config, fp8_matmul_triton.Config(128, 128, 128, 8, 12, 6, True, True)
    fp8_matmul_triton.choose_config = lambda *_: narrow
    report += [{**facts, "parts": 2} for facts in _launches(SHAPES[1], "bfloat16")]
    fp8_matmul_triton.choose_config = choose
    fp8_matmul_triton._fp8_blocks = None  # as with a Triton that lacks Gluon
    fp8_matmul_triton.choose_config.cache_clear()
    report += [{**facts, "gluon": False} for facts in _launches(SHAPES[0], "bfloat16")]
    return report


def _launches(shape, out):
    import torch
    from fp8_matmul_triton import fp8_matmul

    m, n, k = shape
    a = torch.empty((m, k), dtype=torch.float8_e4m3fn, device="cuda")
    b = torch.empty((n, k), dtype=torch.float8_e4m3fn, device="cuda").t()
    of_k = -(-k // 128)
    scales = [torch.empty(sides, device="cuda") for sides in ((m, of_k), (of_k, -(-n // 128)))]
    for launch, _, ptx, facts in launched(functools.partial(fp8_matmul, a, b, *scales, getattr(torch, out))):
        yield facts | {
            "m": m,
            "out": out,
            "gluon": True,
            "parts": 4,
            "warps": launch.kernel.metadata.num_warps,
            "products": len(re.findall(r"wgmma\.mma_async", ptx)),
            "additions": len(re.findall(r"^\s*fma\.rn\.f32", ptx, re.MULTILINE)),
            "waited_for": re.findall(r"wgmma\.wait_group\S*\s+(\d+)", ptx),
            "waits": _count_waits(launch.kernel.asm["cubin"]) if facts["kernel"] == "_fp8_block_kernel" else None,
        }


def _count_waits(cubin):
    """Waits in what the assembler made of it."""
    from perfci.extensions.common.binaries import tool

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool("nvdisasm"), "-c", file.name]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return code.count("WARPGROUP.DEPBAR")


if __name__ == "__main__":
    print_report(report_all, "fp8_matmul")
