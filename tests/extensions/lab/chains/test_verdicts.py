"""NaN and blame, on numbers that are known."""

import numpy as np
import pytest

from perfci.extensions.lab.chains.records import Error, Output, StageMeasured
from perfci.extensions.lab.chains.verdicts import judge, judge_finiteness

WHERE = {"chain": "block", "case": "rows=2"}
NAN, INF = np.nan, np.inf
LINE = ((), (0,), (1,))
"""Reads of three stages one behind the other."""


def chain(so_far, usual, reads=LINE, largest=1.0, measure="l2"):
    """Stages called a, b, c with these errors."""
    stages = []
    for name, mine, theirs, read in zip("abc", so_far, usual, reads, strict=True):
        two = [Error(**{"l2": 0.0, "max_abs": 0.0, measure: error}) for error in (mine, theirs)]
        stages.append(StageMeasured(name, read, two[1], (Output(name, "float16", 2.0**-10, largest, *two),)))
    return stages


def test_a_whole_within_twice_pytorchs_own_error_passes_beyond_the_tolerance():
    assert judge(chain((1e-3, 5e-3, 9e-3), (1e-3, 3e-3, 5e-3)), None, WHERE)[2] == ()
    assert judge(chain((1e-3, 5e-3, 1.1e-2), (1e-3, 3e-3, 5e-3)), None, WHERE)[2]


@pytest.mark.parametrize(
    ("so_far", "usual", "blamed"),
    [
        ((8e-2, 8e-2, 8e-2), (1e-3, 1e-3, 1e-3), "a"),
        ((1e-3, 8e-2, 8e-2), (1e-3, 1e-3, 1e-3), "b"),
        ((1e-3, 2e-3, 8e-2), (1e-3, 2e-3, 4e-3), "c"),
        # PyTorch's grows as much in b, so that c is to blame, which grows less.
        ((1e-4, 1e-2, 5e-2), (1e-4, 1e-2, 1e-2), "c"),
        # c only loses a lead over PyTorch that a and b had.
        ((1e-6, 1e-4, 2e-3), (1e-3, 1e-5, 1e-4), "b"),
    ],
)
def test_the_stage_that_grows_most_beyond_pytorchs_is_blamed(so_far, usual, blamed):
    (reason,) = judge(chain(so_far, usual), {"float16": 0.0}, WHERE)[2]

    assert (reason.kind, reason.facts["stage"]) == ("chain_too_far", blamed)
    assert reason.facts["after"] == so_far["abc".index(blamed)]


def test_only_a_stage_that_leads_to_the_wrong_output_is_blamed():
    stages = chain((1e-4, 5e-1, 5e-3), (1e-4, 5e-1, 1e-4), reads=((), (), (0,)))

    (reason,) = judge(stages, None, WHERE)[2]
    assert (reason.facts["name"], reason.facts["stage"]) == ("c", "c")


def test_a_single_element_far_off_fails_though_the_mean_does_not_show_it():
    stages = chain((1e-3, 9.0, 9.0), (1e-3, 1e-3, 1e-3), largest=100.0, measure="max_abs")

    (reason,) = judge(stages, None, WHERE)[2]
    assert (reason.kind, reason.facts["stage"]) == ("chain_too_far_at", "b")
    assert reason.facts["limit"] == pytest.approx(0.1), "1e-3 of the largest magnitude"


# --- NaN and infinities


def values(got, exact, rounded=None, usual=None):
    lists = (got, exact, exact if rounded is None else rounded, exact if usual is None else usual)
    return tuple(np.array(values, dtype=np.float64) for values in lists)


def test_a_nan_that_only_the_kernels_have_is_introduced():
    reason, note = judge_finiteness(values([1.0, NAN], [1.0, 2.0]), WHERE, "float16")

    assert (reason.kind, note) == ("chain_not_finite", None)
    assert (reason.facts["count"], reason.facts["index"], reason.facts["got"]) == (1, "(1,)", "nan")


@pytest.mark.parametrize(
    "both", [values([INF, 1.0], [7e4, 1.0], usual=[INF, 1.0]), values([INF], [7e4], rounded=[INF], usual=[6.5e4])]
)
def test_an_infinity_that_pytorch_has_too_or_that_the_exact_answer_rounds_to_is_the_formats(both):
    fault, note = judge_finiteness(both, WHERE, "float16")

    assert (fault, note.kind, note.facts["expected"]) == (None, "chain_overflow", "7e+04")


def test_a_nan_that_a_kernel_loses_is_found_unless_it_was_wrong_or_pytorch_loses_it_too():
    def fault(*args, **kwargs):
        reason, note = judge_finiteness(values(*args, **kwargs), WHERE, "float16")
        assert note is None
        return reason and reason.kind

    assert fault([0.0], [NAN]) == fault([-INF], [INF]) == "chain_swallowed"
    assert fault([0.0], [NAN], usual=[0.0]) is None
    assert fault([NAN, INF], [NAN, INF]) is None
