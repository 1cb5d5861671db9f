"""The copy that everything is held against is the best of several pairs of buffers, each by its median."""

from __future__ import annotations

import itertools

import pytest

from perfci.device.ceilings import COPIES, LIMIT_S, fastest_s


def pair(*seconds):
    """A pair of buffers whose copies take these times, the untimed first one included; then the last for ever."""
    times = itertools.chain(seconds, itertools.repeat(seconds[-1]))
    return lambda: next(times)


def still():
    return 0.0


def test_the_best_pair_counts_wherever_it_comes():
    assert fastest_s([pair(1.1), pair(1.0), pair(1.12)], still) == 1.0


def test_a_pair_counts_with_its_median_and_no_lucky_reading_sets_the_ceiling():
    lucky = pair(9.0, 0.2, 1.1, 1.1, 1.2, 1.1)

    assert fastest_s([lucky, pair(1.15)], still) == 1.1


def test_the_first_copy_of_a_pair_is_not_timed():
    assert fastest_s([pair(50.0, 1.0)], still) == 1.0


def test_no_further_pair_is_begun_after_the_limit():
    made = []
    clock = itertools.chain([0.0, LIMIT_S / 2], itertools.repeat(LIMIT_S)).__next__

    def pairs():
        for seconds in (1.0, 0.9, 0.1):
            made.append(seconds)
            yield pair(seconds)

    assert fastest_s(pairs(), clock) == 0.9
    assert made == [1.0, 0.9], "a pair that is not timed takes no memory"


def test_each_pair_copies_a_fixed_number_of_times():
    calls = []

    def copied():
        calls.append(1)
        return 1.0

    fastest_s([copied, copied], still)

    assert len(calls) == 2 * (COPIES + 1)


def test_without_a_pair_there_is_no_ceiling():
    with pytest.raises(ValueError, match="empty"):
        fastest_s([], still)
