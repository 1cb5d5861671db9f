"""What scale means: x times a factor."""

import numpy as np


def scale(x, factor):
    return (x * x.dtype.type(factor)).astype(x.dtype)


def make_inputs(rows, cols, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, cols)).astype(dtype), "factor": 0.5}
