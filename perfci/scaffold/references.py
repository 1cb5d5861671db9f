"""What is known of PyTorch's own functions as references, since nothing is imported to ask them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reference:
    """A function that a kernel is compared with."""

    takes: tuple[str, ...] = ()
    """its arguments beside the tensors that come first"""
    needs: Mapping[str, str] = field(default_factory=dict)
    """argument -> what it gets where the kernel has none of that name; {x} stands for the first tensor"""
    reduces: bool = False
    """the last dimension goes"""
    sums: bool = False
    """an output element sums a whole row, so that its error grows with the row's length"""
    product: bool = False
    """of two matrices"""
    exact: bool = False
    """the output is of x's shape"""


_POINTWISE = """
    abs acos add asin atan atan2 ceil clone cos cosh copysign div divide elu erf erfc exp exp2 expm1 floor hardsigmoid
    hardswish hardtanh leaky_relu log log10 log1p log2 logaddexp logsigmoid maximum minimum mish mul multiply neg
    negative pow reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin sinh softplus softsign sqrt square sub
    subtract tan tanh true_divide where
"""
_LAST = {"dim": "-1"}
_NORM = {"normalized_shape": "{x}.shape[-1:]"}

_KNOWN: dict[str, Reference] = {
    **dict.fromkeys(
        _POINTWISE.split(), Reference(("alpha", "beta", "negative_slope", "approximate", "inplace"), exact=True)
    ),
    "gelu": Reference(("approximate",), exact=True),
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), Reference(("dim", "dtype"), _LAST, exact=True)),
    **dict.fromkeys(("cumsum", "cumprod"), Reference(("dim", "dtype"), _LAST, sums=True, exact=True)),
    "normalize": Reference(("p", "dim", "eps"), _LAST, exact=True),
    "layer_norm": Reference(("normalized_shape", "weight", "bias", "eps"), _NORM, exact=True),
    "rms_norm": Reference(("normalized_shape", "weight", "eps"), _NORM, exact=True),
    **dict.fromkeys(("sum", "mean", "nansum"), Reference(("dim", "keepdim", "dtype"), _LAST, reduces=True, sums=True)),
    **dict.fromkeys(
        ("amax", "amin", "argmax", "argmin", "prod", "all", "any"), Reference(("dim", "keepdim"), _LAST, reduces=True)
    ),
    **dict.fromkeys(("logsumexp",), Reference(("dim", "keepdim"), _LAST, reduces=True)),
    **dict.fromkeys(("var", "std"), Reference(("dim", "correction", "keepdim"), _LAST, reduces=True)),
    **dict.fromkeys(("matmul", "mm"), Reference(product=True)),
}


def reference(path: str) -> Reference | None:
    """What is known of a dotted path; None for a function that is not PyTorch's, or not a usual one."""
    return _KNOWN.get(path.rpartition(".")[2]) if path.startswith("torch.") else None
