"""Accuracy of relu: shapes that break kernels."""

import perfci
from relu_baseline import relu as reference, make_inputs
from relu_triton import relu as kernel

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[1, 7, 64], cols=[1, 31, 128], dtype=["float32"]),
    probe_cases=perfci.grid(rows=[5], cols=[31], dtype=["float32"]),
)

if __name__ == "__main__":
    perfci.main(accuracy)
