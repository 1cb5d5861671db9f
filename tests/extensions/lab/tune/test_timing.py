"""Several callables of one case, side by side in the blocks of perfci's own measuring."""

import pytest

from perfci.device.fake import FakeDevice, FakeSpec, work
from perfci.extensions.lab.tune.trials import CandidateError, time_candidates
from perfci.ops.spec import Performance
from perfci.statistics.exact import launch_shift

PARAMS = {"rows": 4}


def taking(us, seen=None):
    def kernel(x):
        work(us)
        if seen is not None:
            seen.append(float(x[0, 0]))
        return x

    return kernel


def make_inputs(rows, device, seed):
    import numpy as np

    return {"x": np.random.default_rng(seed).normal(size=(rows, 2))}


STEADY = FakeSpec(spike_share=0.0)
SUITE = Performance(taking(1.0), taking(1.0), make_inputs, [PARAMS])


def timed(candidates, spec=STEADY, blocks=4, rounds=10):
    return time_candidates(SUITE, FakeDevice(spec, 3), PARAMS, candidates, blocks=blocks, rounds=rounds, seed=7)


def test_each_candidate_has_all_its_launches_in_every_block():
    times = timed({"one": taking(10.0), "two": taking(20.0)})

    assert {name: [len(block) for block in blocks] for name, blocks in times.items()} == {
        "one": [10] * 4,
        "two": [10] * 4,
    }


def test_a_clock_that_drifts_moves_all_of_a_block_alike():
    times = timed(
        {"one": taking(100.0), "two": taking(103.0)}, FakeSpec(spike_share=0.0, drift_per_block=0.2), blocks=8
    )

    shifts = [launch_shift(two, one) for one, two in zip(times["one"], times["two"], strict=True)]
    assert times["one"][-1][0] > 2 * times["one"][0][0]
    assert all(0.02 < shift < 0.04 for shift in shifts)


def test_the_one_that_raises_is_named():
    def broken(x):
        raise MemoryError("too much")

    with pytest.raises(CandidateError) as caught:
        timed({"one": taking(10.0), "two": broken})
    assert (caught.value.name, str(caught.value.raised)) == ("two", "too much")
