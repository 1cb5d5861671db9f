"""Accuracy of row_sum: shapes that break kernels."""

import perfci
from row_sum_baseline import row_sum as reference, make_inputs
from row_sum_triton import row_sum as kernel

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[1, 7, 64], cols=[1, 31, 128], dtype=["float32"]),
    probe_cases=perfci.grid(rows=[5], cols=[31], dtype=["float32"]),
    reduces=lambda rows, cols, dtype: cols,
    values=("normal", "zeros", "ones", "tiny", "nan", "cancellation"),
)

if __name__ == "__main__":
    perfci.main(accuracy)
