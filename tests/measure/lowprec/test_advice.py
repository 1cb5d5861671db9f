"""Which other way of storing a tensor to take, by what was measured."""

from dataclasses import replace

from perfci.measure.lowprec.advice import advice, families, held, way, worst
from tests.storage_examples import E4M3, E5M2, clipped, sound

LIMITS = {"stored_p99": 0.03, "clip_ratio": 0.02, "divergence": 0.1}


def ways():
    return families(clipped().stored)["stored=a"]


def of(mode, dtype, found=None):
    return next(each for each in found or ways() if (each.mode, each.dtype) == (mode, dtype))


def test_a_family_holds_all_ways_of_storing_one_tensor():
    found = families(sound())

    assert {family: len(each) for family, each in found.items()} == {"stored=a": 6, "stored=b": 6}


def test_what_tells_a_way_from_the_others_of_its_family():
    assert way(sound()[0]) == "scaling=tensor,dtype=float8_e4m3fn"
    assert way(replace(sound()[0], family=sound()[0].case)) == ""


def test_the_way_with_the_fewest_scales_that_keeps_the_limits_is_advised():
    told = advice(of("tensor", E4M3), ways(), LIMITS)

    assert told.figure in {"stored_p99", "clip_ratio"}
    assert (told.to.mode, told.to.dtype) == ("row", E4M3)
    assert told.to.scale_bytes < of("group", E4M3).scale_bytes


def test_the_same_dtype_is_kept_where_that_is_enough():
    told = advice(of("tensor", E5M2), ways(), LIMITS | {"stored_p99": 0.06})

    assert (told.to.mode, told.to.dtype) == ("row", E5M2)
    assert advice(of("tensor", E5M2), ways(), LIMITS).to.dtype == E4M3


def test_where_none_keeps_the_limits_the_least_is_named():
    told = advice(of("tensor", E4M3), ways(), LIMITS | {"stored_p99": 1e-4})

    assert told.to is None
    assert told.least == min(ways(), key=lambda each: each.errors.p99_abs)
    assert told.measured == 6


def test_nothing_is_advised_for_what_keeps_its_limits_or_only_diverges():
    assert advice(of("row", E4M3), ways(), LIMITS) is None
    drifted = replace(of("row", E4M3), divergence=3.0)
    assert advice(drifted, ways(), LIMITS) is None
    assert worst(held(drifted, LIMITS)).figure == "divergence"


def test_a_limit_of_none_holds_nothing_and_one_of_0_everything():
    found = of("tensor", E4M3)

    assert worst(held(found, {})) is None
    assert worst(held(found, {"clip_ratio": 0.0, "stored_p99": 0.3})).figure == "clip_ratio"
