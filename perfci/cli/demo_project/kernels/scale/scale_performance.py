"""Performance of scale."""

import perfci
from scale_baseline import make_inputs, scale
from scale_triton import scale as kernel
from perfci.device import fake


def reference(x, factor):
    fake.work(3.0 + 480.0 * x.nbytes / 1e6)
    return scale(x, factor)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[256, 512], cols=[128], dtype=["float32"]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * 4,
)

if __name__ == "__main__":
    perfci.main(performance)
