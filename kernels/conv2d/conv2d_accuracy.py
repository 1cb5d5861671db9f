"""Accuracy of conv2d: borders, steps and gaps that differ along both sides, odd channels, both orders of memory."""

import perfci
import torch
from conv2d_baseline import conv2d as reference, make_inputs
from conv2d_triton import conv2d as kernel

from _views import far, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LOW = DTYPES[1:]


def shapes(images, channels, outputs, **axes):
    return perfci.grid(images=[images], channels=[channels], outputs=[outputs], **axes)


def inputs(crop=False, images_apart=0, channels_apart=0, **case):
    """As in the baseline; `crop`: x is a part of a wider image. So many elements lie between images, or channels."""
    made = make_inputs(**case)
    if images_apart:
        x = made["x"]
        far = torch.empty_strided(x.shape, (images_apart, *x.stride()[1:]), dtype=x.dtype, device=x.device)
        made["x"] = far.copy_(x)
    if channels_apart:
        made["x"] = spread(made["x"], 1, channels_apart)
    if crop:
        x = made["x"]
        order = torch.channels_last if case.get("last") else torch.contiguous_format
        wider = torch.zeros((*x.shape[:2], x.shape[2] + 2, x.shape[3] + 5), dtype=x.dtype, device=x.device)
        made["x"] = wider.contiguous(memory_format=order)[..., 1:-1, 2:-3].copy_(x)
    return made


def wrong(x=(2, 4, 8, 8), weight=(6, 4, 3, 3), dtype=torch.float32, **others):
    """Returns a function of the device that makes such inputs."""

    def make(device):
        tensors = {"x": torch.zeros(x, device=device, dtype=dtype), "weight": torch.zeros(weight, device=device)}
        return tensors | {name: value.to(device) if torch.is_tensor(value) else value for name, value in others.items()}

    return make


ASKEW = {"stride": [(2, 1)], "padding": [(0, 2)], "dilation": [(1, 2)]}
TURNED = {"stride": [(1, 3)], "padding": [(2, 1)], "dilation": [(2, 1)]}
ASIDE = {"stride": [(1, 4)], "padding": [(2, 3)], "dilation": [(2, 3)]}
DOWN = {"stride": [(2, 1)], "padding": [(2, 1)]}
ORDERS = {"last": [False, True]}
APART = {"images_apart": [2**30 + 8]}
FINISHED = {"bias": [True], "activation": ["relu"]}

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *shapes(1, 32, 24, size=[(5, 7)], taps=[3], dtype=LOW, last=[True], padding=[1]),
        *shapes(1, 16, 24, size=[(5, 7)], taps=[(2, 3)], dtype=DTYPES[:1], last=[True], padding=[1]),
        *shapes(2, 5, 7, size=[(6, 8)], taps=[(3, 2)], dtype=DTYPES, last=[False], **ASKEW),
        *shapes(2, 5, 7, size=[(8, 6)], taps=[(3, 2)], dtype=DTYPES[:1], last=[True], **TURNED),
        *shapes(2, 40, 16, size=[(7, 8)], taps=[(2, 3)], dtype=LOW, last=[True], **ASKEW),
        *shapes(1, 32, 16, size=[(7, 8)], taps=[(2, 3)], dtype=LOW, last=[True], **TURNED),
        *shapes(3, 64, 72, size=[(5, 7)], taps=[(3, 2)], dtype=LOW, last=[False], padding=[(2, 1)], dilation=[(1, 2)]),
        *shapes(1, 96, 33, size=[(4, 5)], taps=[(1, 3)], dtype=LOW, last=[True], padding=[1]),
        *shapes(2, 32, 40, size=[(8, 6)], taps=[3], dtype=LOW, last=[True], stride=[2], padding=[1]),
        *shapes(1, 64, 9, size=[(6, 9)], taps=[(2, 3)], dtype=LOW, last=[False], stride=[(2, 3)], padding=[(1, 2)]),
        *shapes(1, 32, 16, size=[(7, 8)], taps=[(2, 3)], dtype=LOW, last=[True], **ASIDE),
        *shapes(3, 32, 40, size=[(7, 6)], taps=[1], dtype=LOW, last=[True], stride=[1, (2, 3)]),
        # Boxes of many images, written by threads.
        *shapes(9, 32, 7, size=[(2, 3)], taps=[(1, 2)], dtype=LOW[:1], **ORDERS),
        # Boxes of one row, which is stored in halves, by descriptor and by threads.
        *shapes(3, 32, 72, size=[(7, 6)], taps=[1], dtype=LOW[:1], last=[True]),
        *shapes(3, 32, 33, size=[(7, 6)], taps=[1], dtype=LOW[:1], last=[True]),
        *shapes(5, 64, 72, size=[(12, 16)], taps=[3], dtype=LOW[:1], last=[True], padding=[1], **FINISHED),
        *shapes(2, 7, 9, size=[(7, 6)], taps=[1], dtype=DTYPES[:1], last=[False], stride=[(2, 3)]),
        *shapes(1, 3, 16, size=[(9, 11)], taps=[7], dtype=LOW, last=[True], stride=[2], padding=[3]),
        *shapes(1, 8, 8, size=[(3, 3)], taps=[3], dtype=LOW, last=[True], padding=[0, 4], bias=[True]),
        *shapes(1, 1, 1, size=[(1, 1)], taps=[1], dtype=DTYPES),
        # A stride on one side alone, by descriptor; rows of another width than x has, without descriptors.
        *shapes(
            1, 32, 16, size=[(8, 10)], taps=[(2, 3)], dtype=LOW[:1], last=[True], padding=[1], stride=[(2, 1), (1, 2)]
        ),
        *shapes(2, 32, 9, size=[(6, 9)], taps=[3], dtype=DTYPES[:1], last=[False, True], stride=[1, 2]),
        *shapes(1, 32, 9, size=[(6, 9)], taps=[(2, 3)], dtype=DTYPES[:1], last=[True], dilation=[(3, 2)]),
        # More rows than columns, which strips walk down.
        *shapes(1, 40, 40, size=[(23, 5)], taps=[3], dtype=LOW[1:], last=[True], groups=[40], padding=[1]),
        # More tiles than pixels; more channels than are put in order at a time.
        *shapes(1, 4, 600, size=[(1, 1)], taps=[1], dtype=DTYPES[:1]),
        *shapes(1, 96, 9, size=[(5, 7)], taps=[3], dtype=LOW[:1], last=[False], padding=[1]),
        *shapes(0, 8, 8, size=[(4, 4)], taps=[3], dtype=LOW[:1]),
        *shapes(1, 64, 136, size=[(9, 15)], taps=[(2, 3)], dtype=LOW, last=[True], padding=[1], **FINISHED),
        *shapes(1, 64, 136, size=[(9, 15)], taps=[(2, 3)], dtype=LOW[:1], last=[True], padding=[1]),
        *shapes(2, 6, 10, size=[(5, 6)], taps=[3], dtype=DTYPES, padding=[1], **FINISHED),
        *shapes(
            2,
            6,
            6,
            size=[(7, 8)],
            taps=[(3, 2)],
            dtype=DTYPES,
            **ORDERS,
            groups=[6],
            padding=[(1, 0)],
            stride=[(1, 2)],
            dilation=[(2, 1)],
            **FINISHED,
        ),
        *shapes(1, 20, 40, size=[(5, 6)], taps=[3], dtype=DTYPES, last=[True], groups=[20], padding=[1]),
        *shapes(2, 40, 40, size=[(7, 9)], taps=[(3, 2)], dtype=DTYPES, last=[True], groups=[40], padding=[(2, 1)]),
        *shapes(1, 6, 6, size=[(9, 8)], taps=[(5, 3)], dtype=LOW, last=[True], groups=[6], stride=[(2, 1)], **FINISHED),
        *shapes(1, 6, 6, size=[(9, 8)], taps=[(5, 3)], dtype=LOW[:1], last=[True], groups=[6], **DOWN),
        # One channel more than programs have.
        *shapes(1, 65, 65, size=[(2, 6)], taps=[3], dtype=LOW[1:], last=[True], groups=[65], padding=[1]),
        *shapes(1, 64, 24, size=[(5, 7)], taps=[3], dtype=DTYPES[:1], last=[True], padding=[1]),
        *shapes(2, 6, 6, size=[(23, 29)], taps=[3], dtype=DTYPES[:2], groups=[6], padding=[1]),
        *shapes(
            2, 32, 32, size=[(8, 11)], taps=[3], dtype=LOW[:1], last=[True], groups=[32], padding=[1], stride=[1, 2]
        ),
        *shapes(
            1,
            32,
            32,
            size=[(4, 23)],
            taps=[3],
            dtype=LOW[:1],
            last=[True],
            groups=[32],
            padding=[(0, 1)],
            stride=[(1, 2)],
        ),
        *shapes(1, 8, 16, size=[(7, 9)], taps=[3], dtype=LOW, **ORDERS, padding=[1], crop=[True]),
        *shapes(1, 8, 8, size=[(7, 9)], taps=[3], dtype=LOW[:1], **ORDERS, groups=[8], padding=[1], crop=[True]),
        *shapes(1, 5, 5, size=[(6, 9)], taps=[7], dtype=LOW, last=[True], groups=[5], padding=[3]),
        # Through pointers, with more tiles than a device of few programs has of these.
        *shapes(2, 5, 7, size=[(24, 23)], taps=[2], dtype=DTYPES[::2], last=[False]),
        *shapes(2, 5, 7, size=[(48, 23)], taps=[(3, 2)], dtype=DTYPES[2:], last=[False], **ASKEW),
    ),
    probe_cases=(
        *shapes(1, 5, 9, size=[(4, 5)], taps=[(3, 2)], dtype=DTYPES, last=[False], padding=[(1, 0)], **FINISHED),
        *shapes(1, 32, 8, size=[(4, 3)], taps=[(1, 2)], dtype=LOW, last=[True], padding=[1]),
        # Without padding: PyTorch differs from device to device in whether a border's 0 meets an infinite weight.
        *shapes(1, 4, 4, size=[(4, 5)], taps=[2], dtype=DTYPES[1:], last=[False, True], groups=[4]),
    ),
    accelerator_cases=(
        # What performance launches and no case above does: boxes of every form, programs that take several tiles.
        *shapes(12, 64, 8, size=[56], taps=[3], dtype=LOW[1:], last=[True], padding=[1]),
        *shapes(48, 128, 72, size=[28], taps=[3], dtype=LOW, last=[True], padding=[1]),
        *shapes(128, 256, 136, size=[14], taps=[3], dtype=LOW[1:], last=[True], padding=[1], **FINISHED),
        *shapes(128, 512, 136, size=[1], taps=[3], dtype=LOW[1:], last=[True], padding=[1]),
        *shapes(48, 128, 72, size=[56], taps=[3], dtype=LOW[1:], last=[True], padding=[1], stride=[2]),
        *shapes(1, 256, 8, size=[20], taps=[1], dtype=LOW[1:], last=[True]),
        *shapes(128, 1024, 1800, size=[6], taps=[1], dtype=LOW[1:], last=[True], stride=[2]),
        *shapes(1, 3, 64, size=[28], taps=[7], dtype=LOW[1:], last=[True], padding=[3], stride=[2]),
        *shapes(9, 320, 72, size=[64], taps=[3], dtype=LOW[1:], last=[True], padding=[1], bias=[True]),
        *shapes(9, 512, 72, size=[64], taps=[3], dtype=LOW[1:], last=[True], padding=[2], dilation=[2]),
        *shapes(1, 384, 384, size=[28], taps=[7], dtype=LOW[1:], last=[True], padding=[3], groups=[384]),
        *shapes(32, 256, 136, size=[14], taps=[3], dtype=LOW[1:], last=[False], padding=[1]),
        # Places that take more than 32 bits, of few elements.
        *shapes(3, 5, 7, size=[(5, 6)], taps=[(3, 2)], dtype=DTYPES[::2], last=[False], **ASKEW, **APART),
        *shapes(2, 5, 7, size=[(24, 23)], taps=[2], dtype=DTYPES[2:], last=[False], **APART),
        *shapes(3, 40, 40, size=[(7, 9)], taps=[3], dtype=LOW[1:], **ORDERS, groups=[40], padding=[1], **APART),
        *shapes(2, 12, 7, size=[(5, 6)], taps=[2], dtype=DTYPES[::2], last=[False], channels_apart=[2**28 + 8]),
        *shapes(3, 5, 7, size=[(5, 6)], taps=[3], dtype=DTYPES[:1], far=far(["x", "weight"], 0, 1, 2, 3)),
        *shapes(3, 16, 7, size=[(5, 6)], taps=[3], dtype=DTYPES[:1], last=[True], far=far(["x", "weight"], 0, 1, 2, 3)),
        *shapes(3, 6, 12, size=[(5, 6)], taps=[3], dtype=LOW[1:], groups=[6], far=far(["x", "weight"], 0, 2, 3)),
        *shapes(3, 40, 40, size=[(7, 9)], taps=[3], dtype=LOW[1:], last=[True], groups=[40], far=["x:2", "weight:0"]),
    ),
    # Outputs past 2^31 elements; the second order of memory has kernels of its own.
    large_cases=shapes(2**13 + 5, 3, 65, size=[64], taps=[1], dtype=LOW[1:], **ORDERS),
    reduces=lambda channels, taps, groups=1, **others: (
        channels // groups * (taps**2 if isinstance(taps, int) else taps[0] * taps[1])
    ),
    uses_dot=True,
    rejects=(
        ("x with three dimensions", wrong(x=(4, 8, 8))),
        ("weight with two dimensions", wrong(weight=(6, 4))),
        ("channels that differ", wrong(weight=(6, 5, 3, 3))),
        ("no channels", wrong(x=(2, 0, 8, 8), weight=(6, 0, 3, 3))),
        ("no outputs", wrong(weight=(0, 4, 3, 3))),
        ("a kernel larger than x", wrong(weight=(6, 4, 9, 3))),
        ("a dilated kernel larger than x", wrong(dilation=(1, 4))),
        ("two groups of several channels", wrong(weight=(6, 2, 3, 3), groups=2)),
        ("no groups", wrong(groups=0)),
        ("outputs that the channels do not divide", wrong(weight=(6, 1, 3, 3), groups=4)),
        ("depthwise weights of several channels", wrong(weight=(8, 4, 3, 3), groups=4)),
        ("a stride of 0", wrong(stride=0)),
        ("a stride of three numbers", wrong(stride=(1, 1, 1))),
        ("a padding below 0", wrong(padding=(0, -1))),
        ("a padding by name", wrong(padding="same")),
        ("a dilation of a fraction", wrong(dilation=1.5)),
        ("dtypes that differ", wrong(dtype=torch.float16)),
        ("x of integers", wrong(dtype=torch.int32)),
        ("a bias of another length", wrong(bias=torch.zeros(4))),
        ("a bias of another dtype", wrong(bias=torch.zeros(6).half())),
        ("an unknown activation", wrong(activation="gelu")),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
