"""CUDA's libdevice for Triton's interpreter: its functions by numpy and torch, in float64 and then rounded.

The hardware's are off by some units in the last place, which these are not. A function without a counterpart here
raises NotInterpretedError, so that the case is left unchecked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from perfci.device import floats
from perfci.device.seam import NotInterpretedError

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def call(symbol: str, args: Sequence[Array]) -> Array:
    """What a function such as `__nv_tanhf` gives, for the caller to round to its type."""
    name = symbol.removeprefix("__nv_")
    with np.errstate(all="ignore"):
        if conversion := re.fullmatch(r"(?:float|double)2(int|uint|ll|ull)_(rn|rz|ru|rd)", name):
            return _to_integer(args[0], *conversion.groups())
        for known in _spellings(name):
            if known in _AS_GIVEN:
                return np.asarray(_AS_GIVEN[known](*args))
            if known in _IN_FLOAT64:
                wide = (each.astype(np.float64) if each.dtype.kind == "f" else each for each in args)
                return np.asarray(_IN_FLOAT64[known](*wide))
    raise NotInterpretedError(f"libdevice.{name}")


def _spellings(name: str) -> Iterator[str]:
    """A name, then what may be left of it without its type: tanh of tanhf, isnan of isnand, exp of fast_expf."""
    yield name
    if found := re.fullmatch(r"[df](add|sub|mul|div|rcp|sqrt|rsqrt)_rn", name):
        yield found[1]
    bare = name.removeprefix("fast_")
    yield from (bare.removesuffix(ending) for ending in ("f", "d", "ll") if bare.endswith(ending))


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
    return floats.to_integer(rounded(values), target)


def high_product(left: Array, right: Array) -> Array:
    """The upper half of the product of two unsigned integers, in the type of the left one."""
    kind, bits = left.dtype, 8 * left.dtype.itemsize
    unsigned = np.dtype(f"u{kind.itemsize}")
    product = left.view(unsigned).astype(object) * right.view(unsigned).astype(object) >> bits
    return np.asarray(product).astype(unsigned).view(kind)


def _signed_high_product(left: Array, right: Array) -> Array:
    product = left.astype(object) * right.astype(object) >> (8 * left.dtype.itemsize)
    return np.asarray(product).astype(left.dtype)


def _unsigned(value: Array) -> Array:
    return value.view(np.dtype(f"u{value.dtype.itemsize}"))


def _popcount(value: Array) -> Array:
    return np.bitwise_count(_unsigned(value)).astype(np.int32)


def _bit_length(value: Array) -> Array:
    return np.vectorize(int.bit_length, otypes=[np.int32])(_unsigned(value).astype(object))


def _leading_zeros(value: Array) -> Array:
    return np.asarray(8 * value.dtype.itemsize - _bit_length(value))


def _first_set(value: Array) -> Array:
    """1 + the place of the lowest bit that is set, or 0."""
    return _bit_length(value & -value)


def _reversed_bits(value: Array) -> Array:
    width = 8 * value.dtype.itemsize
    texts = np.vectorize(lambda each: int(f"{each:0{width}b}"[::-1], 2), otypes=[object])
    return np.asarray(texts(_unsigned(value).astype(object))).astype(_unsigned(value).dtype).view(value.dtype)


_AS_GIVEN: dict[str, Function] = {
    **{name: getattr(np, name) for name in ("abs", "copysign", "isfinite", "isinf", "isnan", "nextafter", "signbit")},
    "finite": np.isfinite, "llabs": np.abs, "exp2": floats.exp2, "rsqrt": floats.rsqrt, "sqrt": floats.sqrt,
    "fma": floats.fused, "fma_rn": floats.fused, "fmaf_rn": floats.fused,
    "llrint": _to_integer, "llround": lambda x: _to_integer(_round(x)),
    "float_as_int": lambda x: x.view(np.int32), "float_as_uint": lambda x: x.view(np.uint32),
    "int_as_float": lambda x: x.view(np.float32), "uint_as_float": lambda x: x.view(np.float32),
    "double_as_longlong": lambda x: x.view(np.int64), "longlong_as_double": lambda x: x.view(np.float64),
    **{f"{kind}2{real}_rn": np.positive for kind in ("int", "uint", "ll", "ull") for real in ("float", "double")},
    "double2float_rn": np.positive,
    "umulhi": high_product, "umul64hi": high_product, "mulhi": _signed_high_product, "mul64hi": _signed_high_product,
    "brev": _reversed_bits, "clz": _leading_zeros, "ffs": _first_set, "popc": _popcount,
    "hadd": lambda x, y: (x >> 1) + (y >> 1) + (x & y & 1), "uhadd": lambda x, y: (x >> 1) + (y >> 1) + (x & y & 1),
    "rhadd": lambda x, y: (x >> 1) + (y >> 1) + ((x | y) & 1),
    "urhadd": lambda x, y: (x >> 1) + (y >> 1) + ((x | y) & 1),
}  # fmt: skip
"""By the name without type; computed in the type of the arguments."""

_IN_FLOAT64: dict[str, Function] = {
    **{
        name: getattr(np, name)
        for name in (
            "cbrt", "ceil", "cos", "cosh", "exp", "expm1", "fabs", "floor", "fmod", "hypot", "ldexp", "log", "log10",
            "log1p", "log2", "rint", "sin", "sinh", "tan", "tanh", "trunc",
        )
    },
    **{
        name: _torch(getattr(torch.special, other))
        for name, other in (
            ("cyl_bessel_i0", "i0"), ("cyl_bessel_i1", "i1"), ("erf", "erf"), ("erfc", "erfc"), ("erfcx", "erfcx"),
            ("erfinv", "erfinv"), ("j0", "bessel_j0"), ("j1", "bessel_j1"), ("lgamma", "gammaln"), ("normcdf", "ndtr"),
            ("normcdfinv", "ndtri"), ("y0", "bessel_y0"), ("y1", "bessel_y1"),
        )
    },
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "pow": np.power, "powi": np.power, "nearbyint": np.rint,
    "round": _round, "scalbn": np.ldexp, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "fdivide": np.divide,
    "rcp": lambda x: 1 / x,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda *x: 1 / np.hypot(*x),
    "norm3d": lambda *x: np.linalg.norm(np.stack(x), axis=0),
    "norm4d": lambda *x: np.linalg.norm(np.stack(x), axis=0),
    "rnorm3d": lambda *x: 1 / np.linalg.norm(np.stack(x), axis=0),
    "rnorm4d": lambda *x: 1 / np.linalg.norm(np.stack(x), axis=0),
    "exp10": lambda x: np.power(10.0, x),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "logb": lambda x: np.where(np.isinf(x), np.inf, np.frexp(x)[1] - 1.0),
    "erfcinv": lambda x: -_torch(torch.special.ndtri)(x / 2) / np.sqrt(2),
    "tgamma": np.vectorize(_gamma, otypes=[np.float64]),
    "remainder": np.vectorize(_remainder, otypes=[np.float64]),
    "fdim": lambda x, y: np.where(x <= y, 0.0, x - y),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0, 1)),
}  # fmt: skip
"""By the name without type; floats are computed in float64."""
