"""Performance of kl_div: vocabularies of language models."""

import perfci
import torch
from kl_div_baseline import kl_div as reference, make_inputs

performance = perfci.Performance(
    kernel=reference,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[4096], cols=[4096, 32768], dtype=[torch.float32]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * dtype.itemsize,
)
if __name__ == "__main__":
    perfci.main(performance)
