"""Accuracy of fp8_attention: every scaling and format, sides around blocks and groups, grouped heads, both orders of v.

In Triton's interpreter the kernel multiplies in float32: indices, masks, scales and the rounding of the weights are
checked there, but not tensor cores' float8 products or how precisely they sum.
"""

import perfci
import torch
from fp8_attention_baseline import fp8_attention, make_inputs, quantised
from fp8_attention_triton import fp8_attention as kernel
from torch.nn.attention import SDPBackend, sdpa_kernel

import _quant
from _views import far, with_far

# cuDNN plans each new shape anew, for 0.1 s.
reference = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])(fp8_attention)

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
OUT = [torch.bfloat16, torch.float16, torch.float32]
SCALING = ["tensor", "channel", "group"]
CAUSAL_V = {"parts": ["v"], "causal": [True]}


def shapes(batch=1, heads=1, key_heads=1, dtype=E4M3, **axes):
    return perfci.grid(batch=[batch], heads=[heads], key_heads=[key_heads], **{"dtype": [dtype], **axes})


def ones(*shape, dtype=torch.float32):
    return lambda device: torch.ones(shape, device=device).to(dtype)


def wrong(**others):
    """Returns a function of the device that makes such inputs."""

    def make(device):
        made = make_inputs(1, 4, 2, 8, 8, 16, "tensor", E4M3, torch.bfloat16, device, 1)
        return made | {name: value(device) if callable(value) else value for name, value in others.items()}

    return make


def finite_inputs(loud=False, faint=False, grouped="", **case):
    """As make_inputs; a cast that does not saturate makes NaN, which answers that are NaN on both sides would hide.

    `loud`: the last key has a higher score than all others. `faint`: the first has, by sqrt(width), and no values;
    the others' weights are below float8's least. `grouped`: "q" or "k", of which groups share a scale, whatever the
    other's do.
    """
    made = make_inputs(**case)
    if loud:
        made["q"] = made["q"].to(torch.float32).abs().to(made["q"].dtype)
        made["k"][..., -1, :] = torch.finfo(made["k"].dtype).max
    if faint:
        for name, values, first in (("q", 1, 1), ("k", 0, 1), ("v", 1, 0)):
            made[name].fill_(values)[..., 0, :] = first
            made[f"scale_{name}"].fill_(1)
    if grouped:
        made[f"scale_{grouped}"] = made[f"scale_{grouped}"][:, :, :: _quant.GROUP]
    for name in "qkv":  # not by raising here: kernels are compiled ahead, for which there are no values to look at
        finite = made[name].to(torch.float32).isfinite().all()
        torch._assert_async(
            finite, f"make_inputs: {name} holds NaN or infinity, as its cast to float8 did not saturate"
        )
    return made


def stored(heads, tokens, width, scaling, dtype, device, seed):
    """q, k and v by the scaling of make_inputs: tokens or channels of unlike size, of the order of 1 at most."""
    generator = torch.Generator(device).manual_seed(seed)

    def sized(of_tokens, of_channels):
        values = torch.randn((1, heads, tokens, width), generator=generator, device=device)
        for shape in ((1, 1, tokens, 1),) * of_tokens + ((1, 1, 1, width),) * of_channels:
            values = values * (0.5 + torch.rand(shape, generator=generator, device=device))
        return values * 0.25

    group = (1, 1, _quant.GROUP, width) if scaling == "group" else None
    sources = {"q": (sized(True, False), "row"), "k": (sized(True, False), "row"), "v": (sized(False, True), "column")}
    return {
        name: perfci.Stored(source, *quantised(source, dtype, scaling, fine), group=group)
        for name, (source, fine) in sources.items()
    }


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(finite_inputs),
    cases=(
        *shapes(queries=[64], keys=[64], width=[64], scaling=["tensor"], out_dtype=OUT),
        *shapes(1, 4, 2, queries=[9], keys=[270], width=[32], scaling=SCALING, out_dtype=OUT[2:], causal=[True]),
        *shapes(2, 2, 1, queries=[35], keys=[70], width=[20], scaling=SCALING[1:], out_dtype=OUT[2:]),
        *shapes(queries=[150], keys=[140], width=[16], scaling=["tensor", "group"], out_dtype=OUT[2:], causal=[True]),
        *shapes(1, 2, 1, queries=[20], keys=[140], width=[32], scaling=SCALING, out_dtype=OUT[:1], **CAUSAL_V),
        *shapes(
            1, 2, 1, E5M2, queries=[33], keys=[70], width=[24], scaling=SCALING[:1], out_dtype=OUT[1:2], **CAUSAL_V
        ),
        *shapes(queries=[33], keys=[130], width=[24], scaling=SCALING[1:], out_dtype=OUT[2:], along_keys=[False]),
        *shapes(1, 2, 1, E5M2, queries=[20], keys=[140], width=[48], scaling=SCALING[1:], out_dtype=OUT[2:]),
        *shapes(
            queries=[64], keys=[190], width=[16], scaling=SCALING[:1], out_dtype=OUT[2:], causal=[True], loud=[True]
        ),
        *shapes(queries=[9], keys=[3000], width=[64], scaling=SCALING[:1], out_dtype=OUT[2:], faint=[True]),
        # Queries that see no key beside whole tiles of keys.
        *shapes(queries=[150], keys=[128], width=[16], scaling=["tensor"], out_dtype=OUT[2:], causal=[True]),
        # More tiles than the smallest grid has programs, through pointers.
        *shapes(3, 4, 2, queries=[9], keys=[130], width=[20], scaling=SCALING, out_dtype=OUT[2:], causal=[True]),
        *shapes(queries=[150], keys=[140], width=[16], scaling=["channel"], out_dtype=OUT[2:], grouped=["q", "k"]),
        *shapes(queries=[1], keys=[1, 31], width=[1], scaling=["channel"], out_dtype=OUT[2:]),
        # One value a token may sum to next to 0, which the tolerance takes for 0: heads enough that some do not.
        *shapes(1, 8, 8, queries=[17], keys=[1, 31], width=[1], scaling=["channel"], out_dtype=OUT[2:]),
        *shapes(queries=[17], keys=[35], width=[128, 256], scaling=["group"], out_dtype=OUT[:1]),
        *shapes(queries=[0, 5], keys=[0, 7], width=[16], scaling=["group"], out_dtype=OUT[:1]),
        *shapes(0, queries=[4], keys=[4], width=[16], scaling=["channel"], out_dtype=OUT[:1]),
    ),
    probe_cases=(
        *shapes(1, 2, 1, queries=[9], keys=[18], width=[16], scaling=SCALING, out_dtype=OUT[2:]),
        *shapes(1, 2, 1, queries=[9], keys=[18], width=[16], scaling=["channel"], out_dtype=OUT[:1], parts=["v"]),
        *shapes(1, 4, 2, queries=[130], keys=[140], width=[16], scaling=["group"], out_dtype=OUT[2:]),
    ),
    accelerator_cases=(
        *shapes(queries=[9], keys=[270], width=[32], scaling=SCALING, out_dtype=OUT[2:], far=["k:2"]),
        *shapes(
            3,
            3,
            3,
            queries=[9],
            keys=[37],
            width=[20],
            scaling=["channel"],
            out_dtype=OUT[2:],
            far=[*far(["scale_q", "scale_k"], 0, 1, 2), *far(["scale_v"], 0, 1, 3)],
        ),
        *shapes(
            3,
            3,
            3,
            queries=[300],
            keys=[300],
            width=[20],
            scaling=["group"],
            out_dtype=OUT[2:],
            far=far(["scale_q", "scale_k", "scale_v"], 2),
        ),
        # Several batches, heads of a group, and tiles of both sides; rows of 20 bytes, which no descriptor takes.
        *shapes(2, 4, 2, queries=[150], keys=[280], width=[20], scaling=SCALING, out_dtype=OUT[2:], causal=[True]),
        # So many groups that one of nearly 128 keys would show, in the last key, which has almost all of the weight.
        *shapes(queries=[1], keys=[16500], width=[16], scaling=["group"], out_dtype=OUT[2:], loud=[True]),
        # What performance launches and no case above does: whole blocks of keys.
        *shapes(queries=[128], keys=[256], width=[128], scaling=SCALING[:1], out_dtype=OUT[:1]),
        *shapes(queries=[128], keys=[384], width=[128], scaling=SCALING, out_dtype=OUT[:1], causal=[True]),
        *shapes(queries=[256], keys=[384], width=[64, 256], scaling=SCALING[:1], out_dtype=OUT[:1], causal=[True]),
        *shapes(queries=[256], keys=[384], width=[128], scaling=SCALING[:1], out_dtype=OUT[:1], **CAUSAL_V),
        *shapes(1, 2, 1, queries=[16], keys=[384], width=[128], scaling=SCALING[:1], out_dtype=OUT[:1], causal=[True]),
    ),
    # Not infinite ones: an infinite scale makes infinities of answers near 0, whose sign rounding decides. Nor large
    # ones: a score is scaled and its row's maximum taken off in one fused operation, which leaves what the product was
    # rounded by, and of scores beyond 2^24 that is a power without bounds. No scale that serves makes any of that size.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "cancellation"),
    # A weight p of a key is rounded to 4 bits (e4m3), by a share d of at most 1/16, evenly spread over its binade:
    # 0.026 of p, root mean square. It adds p d v / sum(p) to an output: at worst, for two equal keys, 1/32 of v,
    # and far less for many keys. Values are some 0.5 in size, at most 5; half of that for e5m2 with twice the d.
    tolerance={"float32": (2e-3, 0.1), "float16": (2e-3, 0.1), "bfloat16": (8e-3, 0.1)},
    tolerance_reason="weights are rounded to float8, and few keys of large values decide an output of small ones",
    uses_dot=True,
    quantised=perfci.Quantised(
        store=stored, cases=perfci.grid(heads=[2], tokens=[300], width=[64], scaling=SCALING, dtype=[E4M3, E5M2])
    ),
    rejects=(
        ("q of float32", wrong(q=ones(1, 4, 8, 16))),
        ("v of bfloat16", wrong(v=ones(1, 2, 8, 16, dtype=torch.bfloat16))),
        ("v of bytes", wrong(v=ones(1, 2, 8, 16, dtype=torch.int8))),
        ("q and k of two formats", wrong(k=ones(1, 2, 8, 16, dtype=E5M2))),
        ("q quantised, k not", wrong(scale_k=None)),
        ("float8 without scales", wrong(scale_q=None, scale_k=None)),
        ("q with three dimensions", wrong(q=ones(4, 8, 16, dtype=E4M3))),
        ("k and v of two lengths", wrong(v=ones(1, 2, 9, 16, dtype=E4M3))),
        ("widths that differ", wrong(q=ones(1, 4, 8, 32, dtype=E4M3))),
        ("key heads that do not divide the heads", wrong(q=ones(1, 3, 8, 16, dtype=E4M3))),
        ("a scale of float16", wrong(scale_v=ones(dtype=torch.float16))),
        ("a scale that is a number", wrong(scale_v=0.5)),
        ("scales of v by token", wrong(scale_v=ones(1, 2, 8, 1))),
        ("scales of q by channel", wrong(scale_q=ones(1, 4, 1, 16))),
        ("scales of k for the heads of q", wrong(scale_k=ones(1, 4, 8, 1))),
        ("a scale of nothing", wrong(scale=0.0)),
        ("an output of float8", wrong(out_dtype=E4M3)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
