"""rms_norm, matmul and softmax one after the other, as at the end of a language model."""

import perfci
import torch

from matmul.matmul_baseline import matmul as matmul_reference
from matmul.matmul_triton import matmul
from rms_norm.rms_norm_baseline import rms_norm as rms_norm_reference
from rms_norm.rms_norm_triton import rms_norm
from softmax.softmax_baseline import softmax as softmax_reference
from softmax.softmax_triton import softmax

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make_inputs(tokens, width, words, dtype, device, seed):
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return {
        "x": normal(tokens, width),
        "w_norm": normal(width).mul_(0.1).add_(1),
        "w_words": normal(width, words).mul_(width**-0.5),
    }


chain = perfci.Chain(
    make_inputs=make_inputs,
    stages=(
        perfci.Stage("norm", rms_norm, rms_norm_reference, takes={"x": "x", "weight": "w_norm"}),
        perfci.Stage("scores", matmul, matmul_reference, takes={"a": "norm", "b": "w_words"}),
        perfci.Stage("weights", softmax, softmax_reference, takes={"x": "scores"}),
    ),
    cases=perfci.grid(tokens=[13], width=[64], words=[97], dtype=DTYPES),
    accelerator_cases=perfci.grid(tokens=[512], width=[1024], words=[32000], dtype=DTYPES),
)
if __name__ == "__main__":
    perfci.main(chain)
