"""Performance of row_sum."""

import perfci
from row_sum_baseline import make_inputs, row_sum
from row_sum_triton import row_sum as kernel
from perfci.device import fake


def reference(x):
    fake.work(3.0 + 480.0 * x.nbytes / 1e6)
    return row_sum(x)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[256, 512], cols=[128], dtype=["float32"]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * 4,
)

if __name__ == "__main__":
    perfci.main(performance)
