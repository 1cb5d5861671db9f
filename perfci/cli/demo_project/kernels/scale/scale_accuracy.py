"""Accuracy of scale: shapes that break kernels."""

import perfci
from scale_baseline import scale as reference, make_inputs
from scale_triton import scale as kernel

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[1, 7, 64], cols=[1, 31, 128], dtype=["float32"]),
    probe_cases=perfci.grid(rows=[5], cols=[31], dtype=["float32"]),
)

if __name__ == "__main__":
    perfci.main(accuracy)
