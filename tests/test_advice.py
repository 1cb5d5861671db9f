"""The benchmark of advice runs as a whole, on made-up ops."""

import argparse
import random

import pytest

from tests.benchmark_modules import imported


@pytest.mark.nightly
def test_both_policies_get_the_same_rounds_from_the_same_start(pytestconfig):
    asked = argparse.Namespace(device="fake", key="", rounds=1, budget=0.1, seed=1)
    with imported(pytestconfig.rootpath / "benchmarks", "speed", "advice") as modules:
        advice = modules.advice
        advised, chance = advice.compare(advice.FAKE_SCENES[0], random.Random(1), asked)

    assert (advised.policy, chance.policy) == ("advised", "random")
    assert [len(story.rounds) for story in (advised, chance)] == [1, 1]
    assert advised.rounds[0].advice in {*advice.EDITS, None}
    assert chance.rounds[0].advice is None
    assert all(story.rounds[0].verdict.counts for story in (advised, chance))
