"""Rehearsals of sketches and functions, all in one process, which imports torch once."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from perfci.core import settings
from perfci.core.codec import decode
from perfci.extensions.adopt.files import find_files
from perfci.extensions.adopt.sketch import Sketch, SketchFiles

HERE = Path(__file__).parent


def rehearse(wanted: Mapping[str, tuple[str, SketchFiles]]) -> dict[str, Sketch | str]:
    """name -> the findings, or the sentence with the reason for none."""
    asked = {name: (op, dataclasses.asdict(files)) for name, (op, files) in wanted.items()}
    command = [sys.executable, "-W", "ignore", str(HERE / "rehearsed.py")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    return {
        name: answer.get("reason") or decode(json.dumps(answer["sketch"]).encode(), Sketch)
        for name, answer in answers.items()
    }


def of_file(path: Path) -> SketchFiles:
    """A kernel's file with what lies beside it: baseline and tests."""
    return find_files(str(path), None, settings.load(HERE.parents[2]))


def interpreted(root: Path, pattern: str, *ops: str) -> dict[str, tuple[int, list[str]]]:
    """How many checks each op had in Triton's interpreter, and which failed."""
    command = [sys.executable, "-W", "ignore", str(HERE / "interpreted.py"), str(root / "kernels"), pattern, *ops]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


KERNEL = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

    def op(x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
    """
PARTS = {
    "triton": KERNEL,
    "baseline": "import torch\n\ndef op(x):\n    return x.clone()\n",
    "test_op_accuracy": """
        import torch
        from op_v1_baseline import op as reference
        from op_v1_triton import op

        def test_accuracy():
            N = 100
            x = torch.randn(N, device="cuda")
            torch.testing.assert_close(op(x), reference(x))
        """,
    "test_op_performance": """
        import torch
        from op_v1_triton import op

        def test_performance():
            N = 4096
            op(torch.randn(N, device="cuda"))
        """,
}


def sketch(folder: Path, *edits: tuple[str, str, str], **parts: str) -> Path:
    """A small sketch, right in every way; parts replace whole files, edits (part, before, after) some text."""
    texts = {part: textwrap.dedent(text) for part, text in {**PARTS, **parts}.items()}
    for part, before, after in edits:
        assert before in texts[part]
        texts[part] = texts[part].replace(before, after)
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in texts.items():
        (folder / f"op_v1_{part}.py").write_text(text, encoding="utf-8")
    return folder


def accuracy(call: str, imports: str = "") -> str:
    """An accuracy test with this body."""
    lines = f"import torch\nfrom op_v1_baseline import op as reference\nfrom op_v1_triton import op\n{imports}\n"
    return f"{lines}\ndef test_accuracy():\n{textwrap.indent(textwrap.dedent(call).strip(), '    ')}\n"


CUBES = {
    "triton": """
        import torch
        import triton
        import triton.language as tl

        @triton.jit
        def op(bias_ptr, out_ptr, P, D, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
            rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
            inside = (rows < P)[:, None] & (cols < D)[None, :]
            row = tl.load(bias_ptr + cols, mask=cols < D, other=0.0)
            tile = tl.broadcast_to(row[None, :], (BLOCK_M, BLOCK_N))
            tl.store(out_ptr + rows[:, None] * D + cols[None, :], tile, mask=inside)

        def op(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            assert x.is_npu and bias.is_npu
            D = bias.numel()
            assert x.shape[-1] == D
            P = x.numel() // D
            out = torch.empty_like(x)
            grid = lambda meta: (triton.cdiv(P, meta["BLOCK_M"]), triton.cdiv(D, meta["BLOCK_N"]))
            op[grid](bias, out, P, D, BLOCK_M=16, BLOCK_N=64)
            return out
        """,
    "baseline": """
        import torch

        def op(x, bias):
            assert x.is_npu
            return bias.expand(x.shape).contiguous()
        """,
    "test_op_accuracy": accuracy("""
        for shape in [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048)]:
            x, bias = torch.randn(shape).npu(), torch.randn(shape[-1]).npu()
            difference = torch.max(torch.abs(op(x, bias) - reference(x, bias))).item()
            assert difference < 1e-3, f"{difference}"
        """),
    "test_op_performance": accuracy("""
        import time
        for shape in [(512, 512, 512), (2048, 2048, 2048)]:
            x, bias = torch.randn(shape).npu(), torch.randn(shape[-1]).npu()
            torch.npu.synchronize()
            start = time.time()
            for _ in range(100):
                op(x, bias)
            torch.npu.synchronize()
            print(f"{(time.time() - start) / 100:.3f} ms")
        """),
}
"""A wrapper that hides its kernel and demands an NPU; cubes, whose equal sides do not tell what belongs together."""

HARNESS = {
    "test_op_accuracy": """
        import absent_harness
        import torch
        from absent_harness.config import DEVICE as device
        from absent_harness.marks import label, parametrize
        from absent_harness.utils import close, to_reference

        @label("op")
        @parametrize("shape", [(512,), (64, 128), (2, 4, 8, 16)])
        @parametrize("dtype", [torch.float16, torch.float32])
        def test_op(shape, dtype):
            x = torch.randn(shape, dtype=dtype, device=device)
            close(absent_harness.triton.op(x), absent_harness.op(to_reference(x, True)), dtype)
        """,
    "test_op_performance": """
        import absent_harness
        import torch
        import triton
        from absent_harness.marks import label, parametrize

        @label("op_benchmark")
        @parametrize("shape", [(1 << 20,)])
        def op_benchmark(shape):
            x = torch.randn(shape, device="cuda")
            ms, _, _ = triton.testing.do_bench(lambda: absent_harness.triton.op(x), quantiles=[0.5, 0.2, 0.8])
            return absent_harness.Result(ms=ms)
        """,
}
"""Tests for a harness that is not installed and supplies the functions itself."""
