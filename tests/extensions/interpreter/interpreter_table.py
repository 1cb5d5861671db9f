"""Expressions of Triton, their arguments and what an NVIDIA GPU answers: run in Triton's interpreter, or compiled.

`python interpreter_table.py cpu` (with TRITON_INTERPRET=1) or `... cuda` prints this process's answers by row.
"""

import importlib.util
import json
import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = 32
NAN, INF = math.nan, math.inf
INT32, INT64 = 2**31, 2**63
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
ONE = "(places[:, None] == places[None, :]).to(tl.float32).to(x.dtype)"
DOT = f"tl.max(tl.dot(tl.broadcast_to(x[None, :], (32, 32)), {ONE}, input_precision='{{}}'), axis=0)"
"""each element times 1, by tensor cores"""


@dataclass(frozen=True)
class Row:
    """The result of an expression of x, y, scale and count."""

    code: str
    dtype: str
    x: tuple[float, ...]
    """goes on with zeros"""
    answer: tuple[float, ...]
    """in its first places"""
    y: tuple[float, ...] = ()
    out: str = ""
    """the answer's dtype if it is not that of the arguments"""
    scale: float = 0.0
    count: int = 0
    ulps: int = 0
    """units in the last place that the hardware's function may be off"""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.code, self.dtype, self.out)))


def _conversions() -> tuple[Row, ...]:
    """Floats out of range, of every type of integer."""
    x = (2.9, -2.9, 300.0, -5.0, 1e30, -1e30, NAN, INF, -INF)
    ends = {
        kind: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in (("int16", 16), ("int32", 32), ("int64", 64))
    }
    rows = [
        Row("x.to(OUT)", "float32", x, (2, -2, 300, -5, high, low, low if kind == "int64" else 0, high, low), out=kind)
        for kind, (low, high) in ends.items()
    ]
    return (
        *rows,
        Row("x.to(OUT)", "float32", x, (2, 0, 300, 0, 2**32 - 1, 0, 0, 2**32 - 1, 0), out="uint32"),
        Row("x.to(OUT)", "float32", x, (2, -2, 44, -5, -1, 0, 0, -1, 0), out="int8"),
        Row("x.to(OUT)", "float32", x, (2, 0, 44, 0, 255, 0, 0, 255, 0), out="uint8"),
        Row("x.to(OUT)", "float16", (NAN, INF, -INF, -1.5), (0, INT32 - 1, -INT32, -1), out="int32"),
        Row("x.to(OUT)", "bfloat16", (NAN, 1e30, -1.5), (0, INT32 - 1, -1), out="int32"),
        Row("x.to(OUT)", "float64", (NAN, 1e30, -1.5), (-INT32, INT32 - 1, -1), out="int32"),
        Row("x.to(OUT)", "float64", (NAN, 1e30, -1.5), (-INT64, INT64 - 1, -1), out="int64"),
    )


ROWS = (
    Row("tl.maximum(x, y)", "float32", (NAN, 1, NAN, -0.0, 0.0), (1, 1, NAN, 0.0, 0.0), y=(1, NAN, NAN, 0.0, -0.0)),
    Row("tl.maximum(x, y)", "float16", (NAN, 1, NAN, -0.0), (1, 1, NAN, 0.0), y=(1, NAN, NAN, 0.0)),
    Row("tl.maximum(x, y)", "bfloat16", (NAN, -1, NAN, -0.0), (1, -1, NAN, 0.0), y=(1, NAN, NAN, 0.0)),
    Row("tl.maximum(x, y)", "float64", (NAN, 1, NAN), (1, 1, NAN), y=(1, NAN, NAN)),
    Row("tl.minimum(x, y)", "float32", (NAN, 1, NAN, -0.0, 0.0), (1, 1, NAN, -0.0, -0.0), y=(1, NAN, NAN, 0.0, -0.0)),
    Row("tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", "float32", (NAN, 1, 2), (NAN, NAN, 2), y=(1, NAN, 1)),
    Row("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)", "float32", (NAN, 1, 2), (NAN, NAN, 1), y=(1, NAN, 1)),
    Row("tl.maximum(x, 0.0)", "float32", (NAN, -1, 2, -0.0), (0, 0, 2, 0.0)),
    Row("tl.clamp(x, y, scale)", "float32", (NAN, -9, 9, 1), (-1, -1, 3, 1), y=(-1, -1, -1, -1), scale=3.0),
    Row("tl.clamp(x, -2.0, 2.0)", "float32", (NAN, -9, 9, 1), (2, -2, 2, 1)),
    Row("tl.clamp(x, -2.0, 2.0, propagate_nan=tl.PropagateNan.ALL)", "float32", (NAN, -9, 9, 1), (NAN, -2, 2, 1)),
    Row("tl.max(tl.where(places < 3, x, -100.0), axis=0) + tl.zeros_like(x)", "float32", (NAN, -3, 2), (2,)),
    # bfloat16 has 8 bits: 257 is a tie, and so is 1 + 2**-8
    Row("x + y", "bfloat16", (256, 258, -1, 1), (256, 260, -2, 1), y=(1, 1, -1, 2**-8)),
    Row("x * y", "bfloat16", (3, -1.5, 1e-30), (-6, 2.25, 2**-133), y=(-2, -1.5, 9.2e-11)),
    Row("-x", "bfloat16", (1, -2.5), (-1, 2.5)),
    Row("(x > y).to(tl.float32)", "bfloat16", (-1, 1, NAN, -0.0), (0, 1, 0, 0), y=(0, -1, 0, 0), out="float32"),
    Row("tl.where(x > 0, x, 0.0)", "bfloat16", (-1, 3, -2), (0, 3, 0)),
    Row("tl.full((32,), 0.1, tl.bfloat16)", "bfloat16", (), (0.1,)),
    Row("x * scale * y", "float16", (1000, 3), (INF, 0.29296875), scale=100.0, y=(1, 2**-10)),
    Row("x * scale / 1000000.0", "float16", (1000, 3), (1000, 3), scale=1000000.0),
    Row("x * scale / 1000000.0", "bfloat16", (1000, 3), (1000, 3), scale=1000000.0),
    Row("tl.fma(x, y, tl.full((32,), -1.0 - 2.0**-11, tl.float32))", "float32", (1 + 2**-12,),
        (2**-24,), y=(1 + 2**-12,)),
    Row("x % y", "float32", (5.5, 1, INF), (1.5, 1, NAN), y=(2, 2, 2)),
    Row("tl.sum(x, axis=0) + tl.zeros_like(x)", "float16", (2048, *[1] * (SIZE - 1)), (2078,)),
    Row("tl.sum(x, axis=0) + tl.zeros_like(x)", "bfloat16", (1.5,) * SIZE, (48,)),
    Row("tl.exp2(x)", "float32", (-127, -126, 0, INF, -INF), (0, 2**-126, 1, INF, 0)),
    Row("tl.exp(x)", "float32", (80.0, -80.0, 1.0), (5.5406224e34, 1.8048514e-35, 2.7182817), ulps=3),
    Row("tl.sqrt(x)", "float32", (1e-40, 0, -0.0, INF, 4, -1), (0, 0, -0.0, INF, 2, NAN)),
    Row("tl.rsqrt(x)", "float32", (1e-40, 0, INF, 4), (INF, INF, 0, 0.5)),
    Row(DOT.format("tf32"), "float32", (1 + 2**-11, 1 + 2**-10 + 2**-11, -1 - 2**-11, 1 + 2**-23),
        (1, 1 + 2**-10, -1, 1)),
    Row(DOT.format("tf32"), "bfloat16", (1.5, -1 - 2**-7, 2**-130), (1.5, -1 - 2**-7, 2**-130), out="float32"),
    Row(DOT.format("tf32"), E4M3, (1.5, -448), (1.5, -448), out="float32"),
    Row(DOT.format("ieee"), "float32", (1 + 2**-11, 1 + 2**-23), (1 + 2**-11, 1 + 2**-23)),
    # conversions between floats: ties to even, subnormals, out of range
    Row("x.to(OUT)", "bfloat16", (2**-133, -11 * 2**-133, NAN, 3.5), (2**-133, -11 * 2**-133, NAN, 3.5), out="float32"),
    Row("x.to(OUT)", "float32", (1 + 2**-8, 1 + 3 * 2**-8, 1e-40, 3.4e38, NAN, -0.0),
        (1, 1 + 2**-6, 9.18355e-41, INF, NAN, -0.0), out="bfloat16"),
    Row("x.to(OUT)", "float32", (17, 19, 449, 1e9, -INF, NAN, 2**-10, 2**-9 * 1.5, -0.0),
        (16, 20, 448, 448, -448, NAN, 0, 2**-8, -0.0), out=E4M3),
    Row("x.to(OUT)", "float32", (9, 11, 1e9, -INF, NAN, 2**-17, 2**-16 * 1.5),
        (8, 12, 57344, -57344, NAN, 0, 2**-15), out=E5M2),
    Row("x.to(OUT)", "float16", (17, 1000, -INF, NAN), (16, 448, -448, NAN), out=E4M3),
    Row("x.to(OUT)", "float16", (9, 65504, INF, NAN), (8, 57344, 57344, NAN), out=E5M2),
    Row("x.to(OUT)", "int32", (1, -3, 257, 300), (1, -3, 256, 300), out="bfloat16"),
    Row("x.to(OUT)", "uint8", (0, 200), (0, 200), out="bfloat16"),
    Row("x.to(OUT)", "bfloat16", (17, 1000, -INF, NAN), (16, 448, -448, NAN), out=E4M3),
    Row("x.to(OUT)", E4M3, (2**-9, 448, NAN, -0.0), (2**-9, 448, NAN, -0.0), out="float32"),
    Row("x.to(OUT)", E5M2, (2**-16, INF, NAN, -0.0), (2**-16, INF, NAN, -0.0), out="float32"),
    Row("x.to(OUT)", E5M2, (2**-16, -INF, NAN), (2**-16, -INF, NAN), out="float16"),
    Row("x.to(OUT, fp_downcast_rounding='rtz')", "float32", (1 + 2**-10 + 2**-11, 1e9, -INF, NAN),
        (1 + 2**-10, 65504, -INF, NAN), out="float16"),
    Row("x.to(OUT, fp_downcast_rounding='rtz')", "float32", (1 + 2**-8, -1 - 2**-8, NAN), (1, -1, NAN), out="bfloat16"),
    Row("x.to(OUT, fp_downcast_rounding='rtz')", "float32", (1.9, -1.9, 1e9, -INF, NAN),
        (1.75, -1.75, 57344, -INF, NAN), out=E5M2),
    *_conversions(),
    # integers
    Row("x // tl.where(places < 4, y, 1)", "int32", (7, -7, 7, -7), (3, -3, -3, 3), y=(2, 2, -2, -2)),
    Row("x % tl.where(places < 4, y, 1)", "int32", (7, -7, 7, -7), (1, -1, 1, -1), y=(2, 2, -2, -2)),
    Row("x >> y", "int32", (-8, 8), (-2, 2), y=(2, 2)),
    Row("x >> y", "uint32", (2**32 - 8,), (2**30 - 2,), y=(2,)),
    Row("x << y", "int32", (1, -1), (16, -16), y=(4, 4)),
    Row("~x", "uint8", (0, 1), (255, 254)),
    Row("tl.umulhi(x, y)", "int32", (-1, 65536), (-2, 1), y=(-1, 65536)),
    Row("tl.umulhi(x, y)", "int64", (-1,), (-2,), y=(-1,)),
    Row("x * count", "int64", (2,), (6_000_000_000,), count=3_000_000_000),
    *(
        Row(f"tl.inline_asm_elementwise('{name}.f32 $0, $1;', '=f,f', [x], tl.float32, True, 1)", "float32", x, right,
            ulps=1024)
        for name, x, right in (
            ("tanh.approx", (0, 1, INF), (0, 0.7615942, 1)), ("ex2.approx.ftz", (-1, 3, -INF), (0.5, 8, 0)),
            ("rcp.approx.ftz", (4, -2, INF), (0.25, -0.5, 0)),
        )
    ),
    # libdevice
    Row("libdevice.isnan(x)", "float32", (NAN, 1, INF), (1, 0, 0), out="int32"),
    Row("libdevice.rint(x)", "float32", (0.5, 1.5, -2.5), (0, 2, -2)),
    Row("add_numbers(x, count)", "int64", (1,), (3 * (INT32 - 1) + 1, 3 * (INT32 - 1)), count=3),
    Row("add_wrapped(x, count)", "int64", (1,), (1 - INT32 + INT32 // 2, INT32 // 2 - INT32), count=3),
    Row("tl.where(~tl.broadcast_to(tl.sum(x, axis=0) > 5, (32,)), x, y)", "float32", (2, 4), (7, 8), y=(7, 8)),
    Row("plain.double(x)", "float32", (1, 2), (2, 4)),
    Row("add_limit(x, x.dtype, 2)", "float32", (1, 2), (65, 66)),
    Row("tl.where((x > 1 and y > 1) or not (x > 0 and True), 1, 0)", "float32", (2, 2, 1, 0), (1, 0, 0, 1), y=(2, 1)),
    Row("libdevice.round(x)", "float32", (0.5, 1.5, -2.5, 0.49999997), (1, 2, -3, 0)),
    Row("libdevice.llrint(x)", "float32", (2.5, -1e30), (2, -INT64), out="int64"),
    Row("libdevice.copysign(x, y)", "float32", (1, 2), (-1, 2), y=(-0.0, 1)),
    Row("libdevice.pow(x, y)", "float32", (2, 9, -2, 0), (8, 3, -8, 1), y=(3, 0.5, 3, 0), ulps=4),
    Row("libdevice.tanh(x)", "float32", (0.5, -9, INF), (0.46211717, -0.99999994, 1), ulps=4),
    Row("libdevice.erf(x)", "float32", (0.5, -1), (0.5204999, -0.8427008), ulps=4),
    Row("libdevice.log1p(x)", "float32", (1e-5, 1), (9.99995e-06, 0.6931472), ulps=4),
    Row("libdevice.expm1(x)", "float32", (1e-5, 1), (1.000005e-05, 1.7182819), ulps=4),
    Row("libdevice.lgamma(x)", "float32", (4.5,), (2.4537365,), ulps=8),
    Row("libdevice.erfinv(x)", "float32", (0.5,), (0.4769363,), ulps=8),
    Row("libdevice.tanh(x)", "float64", (0.5,), (0.46211715726000975,), ulps=4),
)  # fmt: skip


HEAD = """
import plain
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add_numbers(x, count):
    for number in range(1, count):
        x += number.to(tl.int64) * 2147483647
    return x


@triton.jit
def add_wrapped(x, count):
    for number in tl.range(count, num_stages=2):
        x += number * 1073741824
    return x


@triton.jit
def add_limit(x, dtype, times):
    read = dtype.value
    if read.is_floating():
        x += read.primitive_bitwidth * times.value
    return x
"""

PLAIN = """
import triton


@triton.jit
def double(x):
    return x * 2
"""
"""A module of a function that names nothing of triton.language."""

KERNEL = """

@triton.jit
def kernel_{number}(x_ptr, y_ptr, out_ptr, scale, count, OUT: tl.constexpr):
    places = tl.arange(0, 32)
    x = tl.load(x_ptr + places)
    y = tl.load(y_ptr + places)
    result = {code}
    tl.store(out_ptr + places, result)
"""


def answers(rows: tuple[Row, ...], device: str) -> list[Any]:
    """The outputs, as tensors on the CPU."""
    import torch
    import triton.language as tl

    names = {E4M3: "float8e4nv", E5M2: "float8e5"}

    def tensor(row: Row, values: tuple[float, ...]) -> Any:
        filled = torch.zeros(SIZE, dtype=torch.float64 if "float" in row.dtype else torch.int64)
        filled[: len(values)] = torch.tensor(values, dtype=filled.dtype)
        return filled.to(getattr(torch, row.dtype)).to(device)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels_of_the_table.py"
        file.write_text(HEAD + "".join(KERNEL.format(number=at, code=row.code) for at, row in enumerate(rows)))
        (file.parent / "plain.py").write_text(PLAIN)
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        outputs = []
        for at, row in enumerate(rows):
            kind = row.out or row.dtype
            out = torch.zeros(SIZE, dtype=getattr(torch, kind), device=device)
            kernel = getattr(module, f"kernel_{at}")
            target = getattr(tl, names.get(kind, kind))
            kernel[(1,)](tensor(row, row.x), tensor(row, row.y), out, row.scale, row.count, target)
            outputs.append(out.cpu())
    return outputs


REFUSED = {
    "libdevice.byte_perm(x, x, x)": "libdevice.byte_perm",
    "tl.inline_asm_elementwise('not.b32 $0, $1;', '=r,r', [x], tl.int32, True, 1)": "tl.inline_asm_elementwise",
    "tl.atomic_add(out_ptr.to(tl.pointer_type(tl.float16)) + 0 * places, (x * 0 + 4e4).to(tl.float16))": (
        "tl.atomic_add beyond the largest fp16"
    ),
}
"""Expressions that the interpreter cannot run, with the function that it names."""


def refusals() -> list[str | None]:
    """What is named of each of them."""
    from perfci.device.seam import not_interpreted

    named = []
    for code in REFUSED:
        try:
            answers((Row(code, "int32", (), ()),), "cpu")
        except Exception as error:
            named.append(not_interpreted(error))
    return named


def bits(tensor: Any) -> list[int | str]:
    """The bits of each element; all NaNs are one."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    codes = tensor.view(kinds[tensor.element_size()]).tolist()
    unknown = torch.isnan(tensor.double()).tolist() if tensor.is_floating_point() else [False] * len(codes)
    return ["nan" if nan else code for code, nan in zip(codes, unknown, strict=True)]


def main() -> None:
    if sys.argv[1] == "cpu":
        from perfci.device import open_device

        open_device("cpu", seed=0)
    outputs = answers(ROWS, sys.argv[1])
    found: dict[str, Any] = {row.name: bits(out)[: len(row.answer)] for row, out in zip(ROWS, outputs, strict=True)}
    if sys.argv[1] == "cpu":
        import torch

        found["refused"] = refusals()
        with torch.cpu.device(0):  # as a library enters the device of a tensor: torch.cpu has no such manager
            found["processors"] = torch.cuda.get_device_properties(torch.device("cpu")).multi_processor_count
    print(json.dumps(found))


if __name__ == "__main__":
    main()
