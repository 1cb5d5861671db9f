"""The project's chains: right as they are, and each planted fault is reported with its stage."""

import dataclasses
import functools
from pathlib import Path

import pytest
import torch

from perfci.device import open_device
from perfci.extensions.lab.chains.records import conclude
from perfci.extensions.lab.chains.runs import Setting, check_case
from perfci.extensions.lab.chains.task import load_chain

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
NAMES = ("norm_matmul_softmax", "transformer_block", "float8_mlp")
HALF = {"tokens": 17, "heads": 2, "width": 16, "dtype": torch.float16}


def check(name, params, stage=None, kernel=None, inputs=None):
    """Check a case with one stage's kernel replaced by a function of the right one."""
    chain = load_chain(name, KERNELS / "_chains", KERNELS)
    stages = [
        dataclasses.replace(part, kernel=kernel(part.kernel)) if part.name == stage else part for part in chain.stages
    ]
    chain = dataclasses.replace(
        chain, stages=stages, make_inputs=inputs(chain.make_inputs) if inputs else chain.make_inputs
    )
    describe = lambda error: {"error": repr(error)}  # noqa: E731
    measured = check_case(Setting(name, chain, open_device("cpu", seed=0), describe), params, 7)
    return conclude(measured, chain.tolerance, {"chain": name, "case": measured.case})


def told(case):
    return [(reason.kind, reason.facts["stage"]) for reason in case.failures]


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_is_right_as_it_is(name):
    chain = load_chain(name, KERNELS / "_chains", KERNELS)
    answers = [check(name, params) for params in chain.cases]

    assert [case.verdict for case in answers] == ["PASS", "PASS", "PASS"], [case.failures for case in answers]
    most = 1e-2 if "float8" in name else 1e-3  # one value that is rounded the other way is 6 % off
    assert all(stage.so_far.l2 < most for case in answers[:2] for stage in case.stages)


@pytest.mark.parametrize(
    ("stage", "dtype"),
    [
        *(("norm1", torch.float16), ("sum2", torch.float16), ("mix", torch.float32)),
        *(
            pytest.param(stage, torch.float16, marks=pytest.mark.nightly)
            for stage in ("qkv", "mix", "out", "sum1", "norm2", "up", "down")
        ),
        pytest.param("down", torch.float32, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_an_error_of_one_per_cent_is_told_with_its_stage_wherever_it_comes_in(stage, dtype):
    def rough(right):
        def kernel(*args, **kwargs):
            out = right(*args, **kwargs)
            noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
            return out * (1 + 0.01 * noise).to(out.dtype)

        return functools.wraps(right)(kernel)

    assert told(check("transformer_block", {**HALF, "dtype": dtype}, stage, rough)) == [("chain_too_far", stage)]


def test_a_product_summed_in_half_precision_is_told_with_its_stage():
    def narrow(matmul):
        def product(a, b):
            out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
            for k in range(a.shape[1]):
                out += a[:, k, None] * b[k]
            return out

        return product

    case = check("transformer_block", {**HALF, "width": 64}, "down", narrow)
    assert told(case) == [("chain_too_far", "down")]


def test_a_nan_that_one_stage_makes_is_located_there():
    def poisoned(matmul):
        def up(a, b, bias, activation):
            out = matmul(a, b, bias, activation)
            out[3, 5] = torch.nan
            return out

        return up

    assert told(check("transformer_block", HALF, "up", poisoned))[0] == ("chain_not_finite", "up")
