"""The slices of `perfci soak` over the ops' kernels, with their large cases shrunk."""

import dataclasses
import functools
import importlib

import pytest

from perfci.device import open_device
from perfci.extensions.lab.soak.huge import check_large
from perfci.extensions.lab.soak.subject import SoakSubject, open_endurance
from perfci.extensions.lab.soak.task import as_performance
from perfci.extensions.lab.soak.verdicts import Status, conclude
from tests.daily import first_daily

BEYOND = 1 << 15
SHRUNK = {"batch": 71, "rows": 71, "cols": 1025, "shape": 71_001, "key_heads": 1}
HEADS = {"attention": 2, "rotary": 8}
LARGE = (
    "broadcast", "bias_relu", "softmax", "layer_norm", "rms_norm", "vector_add", "gelu", "add_rms_norm", "rotary",
    "softmax_backward", "layer_norm_backward", "rms_norm_backward", "cross_entropy_backward", "attention",
)  # fmt: skip


def suite_of(op):
    return importlib.import_module(f"{op}_accuracy").accuracy


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr("perfci.extensions.lab.soak.huge.SLICE", 4096)
    device = open_device("cpu", seed=1)

    def made(op, params, kernel=None):
        suite = suite_of(op)
        performance = as_performance(suite, [params])
        own = open_endurance(device)
        if kernel is not None:
            performance = dataclasses.replace(performance, kernel=kernel)
        subject = SoakSubject(op, performance, params, device, own, 3, True, lambda *_: None, lambda error: {})
        return conclude(check_large(subject, suite, BEYOND), 3, 0.03)

    return made


def shrunk(op):
    (params,) = suite_of(op).large_cases
    shrunk = {name: SHRUNK.get(name, value) for name, value in params.items()}
    return {**shrunk, "heads": HEADS[op]} if op in HEADS else shrunk


@pytest.mark.nightly
@pytest.mark.parametrize("op", LARGE)
def test_every_large_case_is_past_2_to_the_32_and_its_output_can_be_verified_in_slices(op, run):
    own = open_endurance(open_device("cpu", seed=1))
    (params,) = suite_of(op).large_cases
    assert own.footprint(lambda: suite_of(op).make_inputs(**params, device="cpu", seed=1)) > 2 * (1 << 32)

    finding = run(op, shrunk(op))

    assert finding.status is Status.PASS, finding
    assert finding.numbers["elements"] > 2 * BEYOND


@pytest.mark.parametrize("op", first_daily(((op,) for op in LARGE), kind=lambda _: None, name=str))
def test_outputs_that_stop_at_the_limit_are_found_in_every_op(op, run):
    kernel = suite_of(op).kernel

    @functools.wraps(kernel)
    def stopping(**given):
        outputs = kernel(**given)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        first.reshape(-1)[BEYOND:] = 7.0
        return outputs

    finding = run(op, shrunk(op), stopping)

    assert finding.reason.kind == "soak_large"
