"""Tensors stored in low precision, by numpy alone, for tests: ways to quantise, runs that hold them, histories."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np

from perfci.core.model import OpRun
from perfci.device.numpy_arrays import NumpyArrays
from perfci.extensions.common.accepted_runs import HistoryRun, HistoryStored
from perfci.extensions.lowprec import figures as storage
from perfci.extensions.lowprec.advice import add_history
from perfci.extensions.lowprec.declared import check_stored_tensors
from perfci.extensions.lowprec.figures import FORMATS
from perfci.ops.spec import Accuracy, Quantised, Stored, grid
from tests.history_examples import environment

DEVICE = SimpleNamespace(arrays=NumpyArrays())
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
ROWS, COLS, GROUP = 64, 256, 32


def rounded(values, dtype):
    """To the nearest number of a format, ties to even, saturating: what a cast does that clamps first."""
    form = FORMATS[dtype]
    clipped = np.clip(values, -form.largest, form.largest)
    if form.integer:
        return np.rint(clipped)
    exponent = np.maximum(np.frexp(np.abs(clipped))[1] - 1, form.exponent)
    step = np.ldexp(1.0, exponent - form.mantissa)
    return np.rint(clipped / step) * step


def scales(x, dtype, scaling, group=GROUP):
    """That take each group's amax to the format's largest number, float32; and the widths of the groups."""
    widths = {"tensor": x.shape, "row": (1, x.shape[1]), "column": (x.shape[0], 1), "group": (1, group)}[scaling]
    peaks = storage.group_maxima(np.abs(x), widths)
    scale = (np.where(peaks > 0, peaks, 1) / FORMATS[dtype].largest).astype(np.float32)
    return scale, widths


def stored(x, dtype=E4M3, scaling="tensor", group=GROUP, shrink=1.0):
    """Returns a quantised tensor. shrink: factor of its scales."""
    scale, widths = scales(x, dtype, scaling, group)
    scale = (scale * shrink).astype(np.float32)
    wide = storage.HostTensor(x, x, scale, widths, FORMATS[dtype]).spread_scale()
    return Stored(x, rounded(x / wide, dtype), scale, group=widths, dtype=dtype)


def normal(seed=0, rows=ROWS, cols=COLS, size=0.25):
    """Normal values."""
    return np.random.default_rng(seed).normal(size=(rows, cols)) * size


def store(scaling, dtype, device, seed, shrink=1.0, values=None):
    """As an op declares it: activations and weights."""
    made = normal(seed) if values is None else values
    return {
        "a": stored(made, dtype, scaling, shrink=shrink if scaling == "tensor" else 1.0),
        "b": stored(normal(seed + 1, size=0.05), dtype, scaling),
    }


CASES = grid(scaling=["tensor", "row", "group"], dtype=[E4M3, E5M2])


def measured(store=store, cases=CASES, pattern=None, **fields):
    """What is recorded of a declaration: tensors, and failed checks."""
    suite = Accuracy(None, None, None, (), quantised=Quantised(store, cases, **fields))
    describe = lambda error: {"error": type(error).__name__, "message": str(error), "file": "-", "line": 0}  # noqa: E731
    return list(check_stored_tensors(suite, DEVICE, pattern, describe))


@functools.cache
def sound():
    """The tensors of `store`."""
    return tuple(measured())


def one(x, dtype=E4M3, scaling="tensor", **fields):
    """One tensor by itself."""
    case = {"scaling": scaling, "dtype": dtype}
    (tensor,) = measured(lambda scaling, dtype, device, seed: {"x": stored(x, dtype, scaling, **fields)}, (case,))
    return tensor


def line(number, tensors=None, **surroundings):
    """An accepted run that has them."""
    names = ("case", "errors", "clip_ratio", "divergence", "histogram", "amax", "scale")
    made = tuple(
        HistoryStored(
            **{name: getattr(tensor, name) for name in names}, extreme=tensor.channels.extreme if tensor.channels else 0
        )
        for tensor in (sound() if tensors is None else tensors)
    )
    created = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z"
    return HistoryRun(f"run{number}", created, environment(**surroundings), stored=made)


def changed(tensor, p99=1.0, mean=1.0, **fields):
    """A tensor with figures that are so many times what they were."""
    errors = tensor.errors
    errors = dataclasses.replace(errors, p99_abs=errors.p99_abs * p99, mean_abs=errors.mean_abs * mean)
    return dataclasses.replace(tensor, errors=errors, **fields)


def clipped(op="quantised"):
    """An op with a scale per tensor that is now too small, with twelve accepted runs."""
    history = [line(number) for number in range(12)]
    now = measured(functools.partial(store, shrink=0.3))
    return OpRun(op, stored=tuple(add_history(tensor, history) for tensor in now))
