"""Arithmetic of NVIDIA GPUs where numpy's differs, bit by bit, and CUDA's libdevice for Triton's interpreter.

Exact up to the rounding, while the hardware's libdevice is off by some units in the last place. A function without a
counterpart here raises NotInterpretedError, so that the case is left unchecked.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from perfci.device.seam import NotInterpretedError

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


FORMATS = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
"""Floating-point formats that numpy does not have, by Triton's names."""


def decode(codes: Array, name: str) -> Array:
    """The values of codes, in float32."""
    signed = np.array(codes, order="C").view(f"i{codes.itemsize}")
    return np.asarray(torch.from_numpy(signed).view(FORMATS[name]).float().numpy())


def encode(values: Array, name: str) -> Array:
    """The codes of values, rounded to the nearest and on ties to even. Values out of range as the hardware does."""
    kind, size = FORMATS[name], FORMATS[name].itemsize
    near = torch.from_numpy(np.array(values, np.float32, order="C"))
    if size == 1:  # cvt.rn.satfinite: infinities are cut too
        near = near.clamp(-torch.finfo(kind).max, torch.finfo(kind).max)
    codes = near.to(kind).view(torch.int8 if size == 1 else torch.int16).numpy().view(f"u{size}")
    return np.where(np.isnan(values), np.iinfo(f"i{size}").max, codes).astype(codes.dtype)


def encode_towards_zero(values: Array, name: str) -> Array:
    """The codes of values, cut: cvt.rz.bf16.f32, or the upper byte of cvt.rz.f16.f32."""
    if name == "bf16":
        codes = np.asarray(values, np.float32).view(np.uint32) >> 16
        return np.where(np.isnan(values), 0x7FFF, codes).astype(np.uint16)
    if name == "fp8e5":
        return (cut(values).view(np.uint16) >> 8).astype(np.uint8)
    raise TypeError(f"Triton compiles no conversion to {name} that rounds towards zero")


def cut(values: Array) -> Array:
    """Float16, rounded towards zero."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float16)
    away = np.abs(near.astype(values.dtype)) > np.abs(values)
    return np.where(away, np.nextafter(near, np.float16(0)), near)


def to_integer(values: Array, target: np.dtype[Any]) -> Array:
    """Conversion by cvt.rzi: towards zero, and to the nearest end where out of range. One of 8 bits goes through 16."""
    wide = np.dtype(f"{target.kind}{max(target.itemsize, 2)}")
    info, whole = np.iinfo(wide), np.trunc(values.astype(np.float64))
    # float64 has no 2**63 - 1: the comparison is with the next power of two.
    above, below = whole >= float(info.max) + 1, whole < float(info.min)
    unknown = np.isnan(whole)
    plain = np.where(above | below | unknown, 0, whole).astype(wide)
    result = np.where(above, wide.type(info.max), np.where(below, wide.type(info.min), plain))
    if values.dtype == np.float64 or wide.itemsize == 8:
        top = np.array(1 << (8 * wide.itemsize - 1), f"u{wide.itemsize}").view(wide)
        result = np.where(unknown, top, result)
    return result.astype(target)


def max_number(left: Array, right: Array, pick: Any = np.fmax) -> Array:
    """The larger one: max.f32 gives the number if the other is NaN, and +0 of the two zeros."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((left == 0) & (right == 0), left + right, pick(left, right))


def min_number(left: Array, right: Array, pick: Any = np.fmin) -> Array:
    """The smaller one: min.f32 gives the number if the other is NaN, and -0 of the two zeros."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((left == 0) & (right == 0), -(-left - right), pick(left, right))


def fuse(x: Array, y: Array, z: Array) -> Array:
    """X * y + z rounded once. In float64, which numpy cannot, twice."""
    if z.dtype == np.float64:
        return np.asarray(x * y + z)
    product, addend = x.astype(np.float64) * y, z.astype(np.float64)
    # The sum is rounded to odd, so that rounding it again to fewer bits cannot go wrong.
    with np.errstate(invalid="ignore", over="ignore"):
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        inexact = np.isfinite(error) & (error != 0) & (total.view(np.int64) % 2 == 0)
        odd = np.where(inexact, np.nextafter(total, np.copysign(np.inf, error)), total)
        return np.asarray(odd.astype(z.dtype))


def remainder(left: Array, right: Array) -> Array:
    """X - trunc(x / y) * y, as compiled code computes it: in float32, with an error for large quotients."""
    if left.dtype == np.float64:
        return np.fmod(left, right)
    x, y = left.astype(np.float32), right.astype(np.float32)
    with np.errstate(all="ignore"):
        result = np.where(np.isinf(y), x, fuse(-np.trunc(x / y), y, x))
        return result.astype(left.dtype)


def tf32(values: Array) -> Array:
    """The bits of float32 that tensor cores read of TF32: the lower 13 are cut off, not rounded."""
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def exp(values: Array) -> Array:
    """In float32 ex2.approx of x times log2(e), rounded: results of large x are less precise."""
    if values.dtype != np.float32:
        return np.asarray(np.exp(values))
    with np.errstate(over="ignore", under="ignore"):
        return np.exp2((values * np.float32(np.log2(np.e))).astype(np.float64)).astype(np.float32)


def exp2(values: Array) -> Array:
    """ex2.approx.ftz.f32."""
    with np.errstate(over="ignore", under="ignore"):
        return _flush_subnormals(np.exp2(_flush_subnormals(values)))


def sqrt(values: Array) -> Array:
    """sqrt.approx.ftz.f32."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(_flush_subnormals(values)))


def rsqrt(values: Array) -> Array:
    """rsqrt.approx.ftz.f32."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 / np.sqrt(_flush_subnormals(values)))


def _flush_subnormals(values: Array) -> Array:
    """Float32 with zeros for subnormals."""
    if values.dtype != np.float32:
        return values
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


# --- libdevice --------------------------------------------------------------------------------------------------------


def call_libdevice(symbol: str, args: Sequence[Array]) -> Array:
    """The value of a function such as `__nv_tanhf`, for the caller to round to its type."""
    name = symbol.removeprefix("__nv_")
    with np.errstate(all="ignore"):
        if conversion := re.fullmatch(r"(?:float|double)2(int|uint|ll|ull)_(rn|rz|ru|rd)", name):
            return _to_integer(args[0], *conversion.groups())
        # Without its type: tanh of tanhf, isnan of isnand, exp of fast_expf.
        bare = name.removeprefix("fast_")
        rounded = re.findall(r"^[df](add|sub|mul|div|rcp|sqrt|rsqrt)_rn$", name)
        for spelling in (name, *rounded, *(bare.removesuffix(end) for end in ("f", "d", "ll") if bare.endswith(end))):
            if spelling in _AS_GIVEN:
                return np.asarray(_AS_GIVEN[spelling](*args))
            if spelling in _IN_FLOAT64:
                wide = (arg.astype(np.float64) if arg.dtype.kind == "f" else arg for arg in args)
                return np.asarray(_IN_FLOAT64[spelling](*wide))
    raise NotInterpretedError(f"libdevice.{name}")


_APPROXIMATE = re.compile(r"\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0,\s*\$1;\s*")
_OF_PTX = {"ex2": "exp2", "lg2": "log2", **{name: name for name in ("cos", "rcp", "rsqrt", "sin", "sqrt", "tanh")}}


def call_ptx(text: str, args: Sequence[Array]) -> Array:
    """The value of assembly that is one approximate instruction, rounded: on a GPU it has fewer right digits."""
    match = _APPROXIMATE.fullmatch(text)
    if match is None or match[1] not in _OF_PTX or [arg.dtype for arg in args] != [np.float32]:
        raise NotInterpretedError("tl.inline_asm_elementwise")
    return call_libdevice(_OF_PTX[match[1]], args)


def _torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    return lambda value: function(torch.tensor(value)).numpy()


def _gamma(value: float) -> float:
    try:
        return math.gamma(value)
    except OverflowError:
        return math.inf
    except ValueError:  # a pole: at 0 with its sign, else NaN
        return math.copysign(math.inf, value) if value == 0 else math.nan


def _remainder(left: float, right: float) -> float:
    try:
        return math.remainder(left, right)
    except ValueError:  # of infinity, or by 0
        return math.nan


def _round(value: Array) -> Array:
    """Halves away from zero."""
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def _to_integer(values: Array, kind: str = "ll", rounding: str = "rn") -> Array:
    target = np.dtype({"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}[kind])
    rounded: Function = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}[rounding]
    return to_integer(rounded(values), target)


def high_product(left: Array, right: Array) -> Array:
    """The upper half of the product of two unsigned integers, in the type of the left one."""
    kind, bits = left.dtype, 8 * left.dtype.itemsize
    unsigned = np.dtype(f"u{kind.itemsize}")
    product = left.view(unsigned).astype(object) * right.view(unsigned).astype(object) >> bits
    return np.asarray(product).astype(unsigned).view(kind)


_AS_GIVEN: dict[str, Function] = {
    **{name: getattr(np, name) for name in ("abs", "copysign", "isfinite", "isinf", "isnan", "nextafter", "signbit")},
    "finite": np.isfinite, "llabs": np.abs, "exp2": exp2, "rsqrt": rsqrt, "sqrt": sqrt,
    "fma": fuse, "fma_rn": fuse, "fmaf_rn": fuse,
    "llrint": _to_integer, "llround": lambda x: _to_integer(_round(x)),
    "float_as_int": lambda x: x.view(np.int32), "float_as_uint": lambda x: x.view(np.uint32),
    "int_as_float": lambda x: x.view(np.float32), "uint_as_float": lambda x: x.view(np.float32),
    "double_as_longlong": lambda x: x.view(np.int64), "longlong_as_double": lambda x: x.view(np.float64),
    **{f"{kind}2{real}_rn": np.positive for kind in ("int", "uint", "ll", "ull") for real in ("float", "double")},
    "double2float_rn": np.positive,
    "umulhi": high_product, "umul64hi": high_product,
}  # fmt: skip
"""By the name without type. Computed in the type of the arguments."""

_IN_FLOAT64: dict[str, Function] = {
    **{name: getattr(np, name) for name in (
        "cbrt", "ceil", "cos", "cosh", "exp", "expm1", "fabs", "floor", "fmod", "hypot", "ldexp", "log", "log10",
        "log1p", "log2", "rint", "sin", "sinh", "tan", "tanh", "trunc",
    )},
    **{name: _torch(getattr(torch.special, name)) for name in ("erf", "erfc", "erfcx", "erfinv")},
    "lgamma": _torch(torch.special.gammaln), "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "pow": np.power, "powi": np.power, "nearbyint": np.rint,
    "round": _round, "scalbn": np.ldexp, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "fdivide": np.divide,
    "rcp": lambda x: 1 / x, "rcbrt": lambda x: 1 / np.cbrt(x), "rhypot": lambda *x: 1 / np.hypot(*x),
    "exp10": lambda x: np.power(10.0, x), "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "tgamma": np.vectorize(_gamma, otypes=[np.float64]),
    "remainder": np.vectorize(_remainder, otypes=[np.float64]),
    "fdim": lambda x, y: np.where(x <= y, 0.0, x - y),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0, 1)),
}  # fmt: skip
"""By the name without type. Floats are computed in float64."""
