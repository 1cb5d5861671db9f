"""What relu means: negative numbers become zero."""

import numpy as np


def relu(x):
    return np.where(np.isnan(x), x, np.maximum(x, 0)).astype(x.dtype)


def make_inputs(rows, cols, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, cols)).astype(dtype)}
