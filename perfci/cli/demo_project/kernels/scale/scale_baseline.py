"""What scale means: x times a factor."""

import numpy as np


def scale(x, factor):
    return x * x.dtype.type(factor)


def make_inputs(rows, cols, dtype, device, seed):
    rng = np.random.default_rng(seed)
    # To draw so many numbers would take longer than all that is done with them: large arrays repeat some.
    some = rng.standard_normal(min(rows * cols, 8_192)).astype(dtype)
    return {"x": np.resize(some, (rows, cols)), "factor": 0.5}
