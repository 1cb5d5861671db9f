"""Every op against its reference in float64, over its whole accuracy suite, and what it refuses."""

import math

import pytest
import torch

import perfci
from tests.daily import first_daily
from tests.kernels.interpreted.suites import OPS, suite_of, widen

USUAL = {torch.float32: (1.3e-6, 1e-5), torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}
TOLERANCES = {
    "attention": {torch.float32: (1.3e-6, 3e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2)},
    "attention_backward": {
        torch.float32: (1.3e-6, 6e-6),
        torch.float16: (4e-3, 4e-3),
        torch.bfloat16: (3.2e-2, 3.2e-2),
    },
    "broadcast": dict.fromkeys(USUAL, (0, 0)),
    "conv2d": {torch.float32: (1.3e-6, 2e-5), torch.float16: (1e-3, 2e-4), torch.bfloat16: (8e-3, 1.6e-3)},
    # Effect of rounding the weights, explained in kernels/fp8_attention/fp8_attention_accuracy.py.
    "fp8_attention": dict.fromkeys(USUAL, (8e-3, 0.1)),
    # The interpreter truncates to bfloat16.
    "fp8_matmul": {torch.float32: (1e-5, 1e-5), torch.float16: (1e-3, 1e-3), torch.bfloat16: (2**-7, 1e-3)},
}
"""rtol and atol of an output; atol grows with the root of k. The interpreter multiplies without tensor cores."""

LARGE = 2**21
"""Elements of a case that is left to `perfci check`, as the interpreter takes seconds for it."""


def is_small(case):
    return math.prod(value for value in case.values() if type(value) is int) < LARGE


@pytest.mark.parametrize(
    ("op", "case"),
    first_daily(
        ((op, case) for op in OPS for case in suite_of(op).cases if is_small(case)),
        kind=lambda op, case: (op, case["dtype"]),
        name=lambda op, case: f"{op}-{perfci.case_id(case)}",
    ),
)
def test_an_op_agrees_with_the_reference_in_float64(op, case):
    suite = suite_of(op)
    inputs = suite.make_inputs(**case, device="cpu", seed=7)

    got, exact = suite.kernel(**inputs), suite.reference(**widen(inputs))

    outputs = zip(*(output if isinstance(output, tuple) else (output,) for output in (got, exact)), strict=True)
    for one, other in outputs:
        rtol, atol = TOLERANCES.get(op, USUAL)[one.dtype]
        room = atol * max(case.get("k", 1), 1) ** 0.5
        torch.testing.assert_close(one, other.to(one.dtype), rtol=rtol, atol=room, equal_nan=True)


@pytest.mark.parametrize(
    ("op", "reject"),
    [pytest.param(op, make, id=f"{op}-{name}") for op in OPS for name, make in suite_of(op).rejects],
)
def test_an_op_says_what_is_wrong_with_its_arguments(op, reject):
    with pytest.raises((TypeError, ValueError), match=rf"{op}: .* (but|needs|to be|to divide|no single row stride)"):
        suite_of(op).kernel(**reject("cpu"))
