"""The same call many times: whether it answers alike, on numpy and on torch."""

from __future__ import annotations

import numpy as np
import pytest

from perfci.lab.soak.findings import Status
from perfci.lab.soak.repeated import decay, determinism, memory


def inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=(rows, 4))}


def test_a_kernel_that_answers_alike_passes(subject):
    found = determinism(subject(lambda x: x * 2.0, inputs), 50)

    assert (found.status, found.numbers) == (Status.PASS, {"calls": 50})


def test_one_call_that_answers_otherwise_is_found_and_named(subject):
    calls = []

    def changing(x):
        calls.append(1)
        out = x * 2.0
        if len(calls) == 500:
            out[2, 1] += 1e-12
        return out

    found = determinism(subject(changing, inputs), 1000)

    assert found.reason.kind == "soak_differs"
    assert {name: found.reason.facts[name] for name in ("call", "count", "index")} == {
        "call": 500,
        "count": 1,
        "index": "(2, 1)",
    }


def test_an_output_that_a_later_call_writes_into_is_found(subject):
    kept = np.empty((4, 4))

    def keeping(x):
        np.multiply(x, 2.0, out=kept)
        return kept

    found = determinism(subject(keeping, inputs), 50)

    assert (found.status, found.reason.kind) == (Status.FAIL, "soak_rewritten")


def test_several_outputs_are_all_held_to_the_first_call(subject):
    calls = []

    def two(x):
        calls.append(1)
        return x * 2.0, {"rest": x + (len(calls) > 20)}

    assert determinism(subject(two, inputs), 30).reason.facts["call"] == 21


def test_another_shape_or_number_of_outputs_is_another_answer(subject):
    calls = []

    def shrinking(x):
        calls.append(1)
        return x[: 4 - (len(calls) > 10)]

    assert determinism(subject(shrinking, inputs), 30).reason.kind == "soak_differs"


def test_nan_of_the_same_bits_is_the_same_answer(subject):
    assert determinism(subject(lambda x: x * np.nan, inputs), 10).status is Status.PASS


@pytest.mark.torch
def test_what_cannot_be_told_on_the_host_is_skipped(subject):
    host = subject(lambda x: x, inputs, device="cpu")

    assert memory(host, 100).reason.kind == "soak_no_memory"
    assert decay(host, 100).reason.kind == "soak_not_timed"


def test_a_call_that_takes_no_time_of_the_device_launches_nothing(subject):
    found = decay(subject(lambda x: x * 2.0, inputs), 100)

    assert (found.status, found.reason.kind) == (Status.ERROR, "nothing_launched")
