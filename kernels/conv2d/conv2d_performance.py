"""Performance of conv2d: layers of residual networks, of a diffusion model and of dense prediction.

The reference is PyTorch's, by cuDNN, in the same order of memory: channels-last, but for one case.
"""

import perfci
import torch
from conv2d_baseline import conv2d as reference, make_inputs
from conv2d_triton import conv2d as kernel

BF16 = [torch.bfloat16]


def shapes(images, channels, outputs, size, taps, **axes):
    sizes = {"images": [images], "channels": [channels], "size": [size], "outputs": [outputs], "taps": [taps]}
    return perfci.grid(**sizes, **{"dtype": BF16, "last": [True], **axes})


def out_size(size, taps, stride=1, padding=0, dilation=1, **_):
    """Pixels along one side; the suite's cases are square."""
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def flops(images, channels, size, outputs, taps, groups=1, **how):
    """A multiplication and an addition for each output and tap, those of the padding among them."""
    return 2 * images * outputs * out_size(size, taps, **how) ** 2 * (channels // groups) * taps**2


def bytes_moved(images, channels, size, outputs, taps, dtype, groups=1, bias=False, **how):
    """x, weight, bias and answer, each once; only what is read of x, if the stride is wider than the kernel."""
    out = out_size(size, taps, **how)
    reads = size if how.get("stride", 1) <= taps else out
    values = images * channels * reads**2 + outputs * (channels // groups) * taps**2 + images * outputs * out**2
    return (values + bias * outputs) * dtype.itemsize


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *shapes(256, 64, 64, 56, 3, padding=[1]),
        *shapes(256, 128, 128, 28, 3, padding=[1], dtype=[torch.bfloat16, torch.float16]),
        *shapes(256, 256, 256, 14, 3, padding=[1], bias=[True], activation=["relu"]),
        *shapes(256, 512, 512, 7, 3, padding=[1]),
        *shapes(256, 128, 128, 56, 3, padding=[1], stride=[2]),
        *shapes(256, 256, 64, 56, 1),
        *shapes(256, 1024, 2048, 14, 1, stride=[2]),
        *shapes(256, 3, 64, 224, 7, padding=[3], stride=[2]),
        *shapes(16, 320, 320, 64, 3, padding=[1], bias=[True]),
        *shapes(16, 512, 512, 64, 3, padding=[2], dilation=[2]),
        *shapes(128, 384, 384, 28, 7, padding=[3], groups=[384]),
        *shapes(256, 256, 256, 14, 3, padding=[1], last=[False]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    reduces=lambda channels, taps, groups=1, **others: channels // groups * taps**2,
)
if __name__ == "__main__":
    perfci.main(performance)
