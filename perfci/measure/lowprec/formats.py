"""The formats that count as low precision: 8 bits and less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Host = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Format:
    """A number format."""

    largest: float
    """finite magnitude"""
    mantissa: int = 0
    """bits after the leading one; of no meaning for integers"""
    exponent: int = 0
    """of the least normal number, to base 2"""
    integer: bool = False

    def half_step(self, size: float, scale: float) -> float:
        """Greatest rounding error, times the scale, of a stored number whose product with the scale is of this size.

        >>> FORMATS["float8_e4m3fn"].half_step(1.0, 1 / 448), FORMATS["float8_e5m2"].half_step(1.0, 1 / 57344)
        (0.03571428571428571, 0.07142857142857142)
        """
        if self.integer:
            return scale / 2
        if not size or not scale:
            return 0.0
        exponent = max(int(np.floor(np.log2(min(size / scale, self.largest)))), self.exponent)
        return float(2.0 ** (exponent - self.mantissa - 1) * scale)

    def unheld(self, values: Host) -> int:
        """How many finite values are not numbers of the format."""
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        if self.integer:
            return int(((sizes > self.largest + 1) | (sizes != np.round(sizes))).sum())
        exponents = np.maximum(np.frexp(sizes)[1] - 1, self.exponent)
        steps = np.ldexp(sizes, self.mantissa - exponents)
        return int(((sizes > self.largest) | (steps != np.round(steps))).sum())


FORMATS: Mapping[str, Format] = {
    "float8_e4m3fn": Format(448.0, 3, -6),
    "float8_e5m2": Format(57344.0, 2, -14),
    "float8_e4m3fnuz": Format(240.0, 3, -7),
    "float8_e5m2fnuz": Format(57344.0, 2, -15),
    "float6_e2m3fn": Format(7.5, 3, 0),
    "float6_e3m2fn": Format(28.0, 2, -2),
    "float4_e2m1fn": Format(6.0, 1, 0),
    "int8": Format(127.0, integer=True),
    "int4": Format(7.0, integer=True),
}
"""By name. float8_e4m3fn has no infinity and a NaN at the top exponent, so its largest is 1.75 * 2^8 = 448; float8_e5m2
is a short float16 with 1.75 * 2^15 = 57344 (OCP 8-bit floating point specification, 2023; the 6 and 4 bits of OCP
microscaling formats, 2023)."""
