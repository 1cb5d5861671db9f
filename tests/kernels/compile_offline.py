"""Compiles the ops for an H200 without one, through their own wrappers, and prints what became of them as JSON.

A stub stands in for the driver: it names the target, loads nothing and launches nothing. The tensors are on the meta
device, so that large shapes need no memory; their address is 0, as well aligned as a fresh allocation. It runs as a
process of its own, since the driver is one a process and Triton must not be in interpreter mode.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)
os.environ["KERNELS_AS_DEVICE"] = "nvidia-h200"
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
DTYPES = ("float32", "float16", "bfloat16")
SHAPES = {
    "broadcast": ((256, 256), (4096, 1024), (4001, 1024), (32768, 4096), (262144, 768)),
    "bias_relu": ((256, 256), (4096, 1024), (4001, 1024), (32768, 4096), (262144, 768)),
    "softmax": ((4096, 512), (4096, 1024), (4001, 1024), (16384, 4096), (4096, 32768), (1024, 131072)),
    "matmul": ((16, 8192, 8192), (64, 8192, 8192), (8192, 64, 1024), (1024, 1024, 1024), (512, 4096, 4096),
               (4096, 4096, 4096), (4095, 4096, 4100)),
}  # fmt: skip


def main():
    import torch
    from triton.runtime import driver

    compiled = []
    driver.set_active(_stub(compiled))
    sys.path.insert(0, str(KERNELS))
    report = []
    for op, shapes in SHAPES.items():
        sys.path.insert(0, str(KERNELS / op))
        module = importlib.import_module(f"{op}_triton")
        for shape in shapes:
            for dtype in DTYPES:
                compiled.clear()
                getattr(module, op)(*_arguments(op, shape, getattr(torch, dtype)))
                report += [{"op": op, "shape": shape, "dtype": dtype} | facts for facts in compiled]
    print(json.dumps(report))


def _arguments(op, shape, dtype):
    import torch

    def meta(*sizes):
        return torch.empty(sizes, dtype=dtype, device="meta")

    if op == "matmul":
        m, n, k = shape
        return meta(m, k), meta(k, n)
    return (meta(*shape),) if op == "softmax" else (meta(*shape), meta(shape[-1]))


def _stub(compiled):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import CompiledKernel

    class Launcher:
        def __init__(self, src, metadata):
            pass

        def __call__(self, *arguments):
            pass

    class Utils:
        def get_device_properties(self, device):
            return {"max_shared_mem": 232448}

        def load_binary(self, name, binary, shared, device):
            return None, None, 0, 0, 1024

    class Driver:
        launcher_cls = Launcher
        utils = Utils()

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

    launch = CompiledKernel.launch_metadata

    def seen(kernel, grid, *rest):
        compiled.append(_facts(kernel, grid))
        return launch(kernel, grid, *rest)

    CompiledKernel.launch_metadata = seen
    return Driver()


def _facts(kernel, grid):
    ptx = kernel.asm["ptx"]
    usage = _resource_usage(kernel.asm["cubin"])
    return {
        "kernel": kernel.metadata.name,
        "binary": kernel.hash,
        "grid": list(grid),
        "warps": kernel.metadata.num_warps,
        "shared": kernel.metadata.shared,
        "registers": usage["REG"],
        "spilled": usage["STACK"] + usage["LOCAL"],
        "loads": _widths(ptx, r"ld\.global\S*"),
        "stores": _widths(ptx, r"st\.global\S*"),
        "copies": sorted(set(re.findall(r"cp\.async\.c[ag]\.\S+ \[.*?\], \[.*?\], (\w+)", ptx))),
        "tensor_cores": "wgmma" in ptx or "mma.sync" in ptx,
    }


def _widths(ptx, instruction):
    """Bytes a thread of every such access, each once."""
    widths = set()
    for text in re.findall(instruction, ptx):
        vector, bits = re.search(r"\.v(\d)", text), re.search(r"\.[bfsu](\d+)", text)
        widths.add(int(vector[1] if vector else 1) * int(bits[1]) // 8)
    return sorted(widths)


def _resource_usage(cubin):
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text.stdout)}


if __name__ == "__main__":
    main()
