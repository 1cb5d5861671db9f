import math
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from perfci.core.model import BaselineCase, PeerArm, PerformanceCase, Reason, Verdict
from perfci.judge import compare as compare_module
from perfci.judge.compare import compare
from perfci.statistics import exact
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds
from tests.benchmark_modules import imported
from tests.decision_examples import CASE, baseline, blocks, duelled, environment, plan, run


def _compare(measured, stored=None, **limits):
    comparisons = tuple(compare(measured, {"op": stored} if stored else {}, Thresholds(CaseThresholds(**limits))))
    return {comparison.case: comparison for comparison in comparisons}


def _one(measured, stored=None, **limits):
    return _compare(measured, stored, **limits)[CASE]


def test_a_planted_slow_down_is_estimated_with_an_interval_and_a_small_p():
    (screen,) = _one(run(blocks(1.05)), baseline()).screens

    assert screen.change.value == pytest.approx(0.05, abs=0.004)
    assert screen.change.low < 0.05 < screen.change.high
    assert screen.p_slower == pytest.approx(screen.smallest_p)
    assert screen.p_faster == 1.0
    assert screen.difference_us == pytest.approx(2.5, abs=0.2)
    assert (screen.blocks, screen.baseline_blocks, screen.margin) == (10, 30, pytest.approx(0.02))


def test_faster_is_the_mirror_image():
    (screen,) = _one(run(blocks(1 / 1.05)), baseline()).screens

    assert screen.p_faster == pytest.approx(screen.smallest_p)
    assert screen.difference_us < 0


def test_every_process_is_screened_by_itself_and_the_speedup_pools_them():
    measured = run(blocks(1.05) + blocks(1.0, process=1) + blocks(1.0, process=2))

    comparison = _one(measured, baseline())

    assert [screen.process for screen in comparison.screens] == [0, 1, 2]
    assert [round(screen.change.value, 2) for screen in comparison.screens] == [0.05, 0.0, 0.0]
    assert comparison.speedup.value == pytest.approx(1.5, abs=0.03)
    assert comparison.speedup.low < comparison.speedup.value < comparison.speedup.high


def _with_peer(blocks_of_base, factors):
    """The blocks with a peer that takes so much of the kernel's time in each."""
    kernel = [block.arms["kernel"] for block in blocks_of_base]
    return tuple(
        replace(
            block,
            arms={
                **block.arms,
                "peer:near": replace(arm, time=replace(arm.time, median_us=arm.time.median_us * factor)),
            },
            shifts={**block.shifts, "kernel/peer:near": -math.log(factor)},
        )
        for block, arm, factor in zip(blocks_of_base, kernel, factors, strict=True)
    )


def _beside(measured, *peers):
    (op,) = measured.ops
    (case,) = op.performance
    return replace(measured, ops=(replace(op, performance=(replace(case, peers=peers),)),))


def test_a_peers_ratio_is_told_by_blocks_as_the_speedup_is():
    factors = [0.90 + 0.001 * i for i in range(10)]
    measured = _beside(run(_with_peer(blocks(1.0), factors)), PeerArm("near"))

    (peer,) = _one(measured).peers

    d = exact.location([math.log(factor) for factor in factors])
    assert (peer.name, peer.failure, peer.faster) == ("near", None, True)
    assert (peer.ratio.value, peer.ratio.low, peer.ratio.high) == pytest.approx(
        tuple(map(math.exp, (d.value, d.low, d.high)))
    )
    assert peer.us == pytest.approx(0.9045 * _one(measured).kernel_us, rel=0.01)


def test_a_peer_is_faster_only_where_its_whole_interval_of_95_percent_is():
    def faster(factors):
        measured = _beside(run(_with_peer(blocks(1.0)[: len(factors)], factors)), PeerArm("near"))
        return _one(measured).peers[0].faster

    assert faster([0.9] * 10)
    assert not faster([1.1] * 10)
    assert not faster([0.9] * 5 + [1.01] * 5), "the interval reaches beyond 1"
    assert not faster([0.9] * 5), "five blocks have no interval of 95 %"


def test_a_peer_that_was_left_out_has_its_reason_and_no_numbers():
    why = Reason("peer_unsupported", {"peer": "near"})
    measured = _beside(run(_with_peer(blocks(1.0), [0.9] * 10)), PeerArm("far", failure=why), PeerArm("near"))

    far, near = _one(measured).peers

    assert (far.us, far.ratio, far.failure, far.faster) == (None, None, why, False)
    assert near.ratio.value == pytest.approx(0.9)


def test_the_control_variate_takes_a_slow_clock_out():
    hot_and_cool = [baseline(clock=clock, runs=3).cases[0].blocks for clock in (1.0, 1.1)]
    mixed = replace(baseline(), cases=(BaselineCase(CASE, hot_and_cool[0] + hot_and_cool[1]),))

    comparison = _one(run(blocks(1.05, clock=1.1)), mixed)

    assert comparison.stale is None
    assert comparison.screens[0].beta == pytest.approx(1.0, abs=0.05)
    assert comparison.screens[0].change.value == pytest.approx(0.05, abs=0.006)
    assert comparison.screens[0].p_slower < 1e-6


@pytest.mark.parametrize(
    ("measured", "stored", "kind"),
    [
        (run(blocks(), now=environment(timer="event")), baseline(), "stale_timer"),
        (run(blocks(), now=environment(key="nvidia-a100")), baseline(), "stale_device"),
        (run(blocks()), baseline("rows=4096,dtype=float32"), "stale_dtype"),
        (run(blocks()), baseline("rows=1,dtype=float16", "rows=2,dtype=float16"), "stale_cases"),
    ],
    ids=["timer", "device", "dtype", "cases"],
)
def test_a_baseline_of_something_else_is_stale_and_never_compared(measured, stored, kind):
    comparison = _one(measured, stored)

    assert comparison.stale.kind == kind
    assert comparison.screens == ()
    assert comparison.speedup is not None


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_baseline_with_another_cache_is_stale_and_never_compared(cache):
    stored = baseline()
    stored = replace(stored, cases=tuple(replace(case, cache=cache) for case in stored.cases))
    cold, warm = (run(PerformanceCase(CASE, blocks=blocks(), cache=cache)) for cache in ("cold", "warm"))
    same, other = (cold, warm) if cache == "cold" else (warm, cold)

    assert _one(same, stored).stale is None and _one(same, stored).screens
    comparison = _one(other, stored)
    assert comparison.screens == () and comparison.known
    assert comparison.stale == Reason("stale_cache", {"stored": cache, "cache": "warm" if cache == "cold" else "cold"})


def test_the_environment_is_held_against_the_runs_that_a_cases_blocks_come_from():
    stored = baseline(CASE, "rows=9,dtype=float16")
    older = [replace(block, run="older") for block in stored.cases[1].blocks]
    cases = (stored.cases[0], replace(stored.cases[1], blocks=tuple(older)))
    runs = (*stored.runs, replace(stored.runs[0], id="older", environment=environment(driver="570")))
    other = PerformanceCase("rows=9,dtype=float16", blocks=blocks())

    compare = _compare(run(blocks(), other, planned=plan(CASE, other.case)), replace(stored, runs=runs, cases=cases))

    assert compare[CASE].differs == ()
    assert [(differ.field, differ.before, differ.after) for differ in compare[other.case].differs] == [
        ("device.driver", "570", "580")
    ]


def test_the_kernels_own_time_is_asked_only_where_the_reference_left_its_range():
    (alone,) = _one(run(blocks(clock=1.05)), baseline()).alone

    assert alone.change.value == pytest.approx(0.05, abs=0.004)
    assert (alone.beta, alone.margin) == (0.0, pytest.approx(0.02))
    assert _one(run(blocks(1.05)), baseline()).alone == ()


def test_a_filter_does_not_make_a_baseline_look_foreign():
    measured = run(blocks(), planned=plan(CASE, filter="rows=4096,*"))

    assert _one(measured, baseline("rows=1,dtype=float16")).stale is None


def test_a_case_that_joins_the_list_is_unknown_not_stale():
    stored = baseline("rows=1,dtype=float16")
    other = PerformanceCase("rows=1,dtype=float16", blocks=blocks())

    compare = _compare(run(blocks(), other, planned=plan(CASE, other.case)), stored)

    assert (compare[CASE].known, compare[CASE].stale) == (False, None)
    assert compare[other.case].screens


def test_blocks_without_a_reference_do_not_count():
    lone = tuple(replace(block, arms={"kernel": block.arms["kernel"]}) for block in blocks())

    assert _one(run(lone), baseline()).measured is False


# --- another thermal regime -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [0.95, 1.05])
def test_in_another_regime_the_screen_abstains_from_small_changes(clock):
    comparison = _one(run(blocks(1.04, clock=clock)), baseline())

    assert comparison.stale.kind == "stale_regime"
    assert comparison.screens[0].p_slower > 0.9


@pytest.mark.parametrize("clock", [0.95, 1.0, 1.05])
def test_a_gross_slow_down_shows_in_any_regime(clock):
    comparison = _one(run(blocks(1.2, clock=clock)), baseline())

    assert comparison.screens[0].p_slower == pytest.approx(comparison.screens[0].smallest_p)


def test_a_reference_just_beyond_its_range_widens_the_margin_a_little():
    comparison = _one(run(blocks(1.05, clock=1.012)), baseline())

    assert comparison.stale is None
    assert 0.02 < comparison.screens[0].margin <= 1.02 * math.exp(1.5 * compare_module.NEAR) - 1
    assert comparison.screens[0].p_slower < 1e-4


def test_another_torch_takes_the_correction_away_but_does_not_silence_the_baseline():
    hot_and_cool = [baseline(clock=clock, runs=3).cases[0].blocks for clock in (1.0, 1.1)]
    mixed = replace(baseline(), cases=(BaselineCase(CASE, hot_and_cool[0] + hot_and_cool[1]),))

    comparison = _one(run(blocks(1.05), now=environment(torch="2.13")), mixed)

    assert comparison.stale is None
    assert comparison.screens[0].beta == 0.0


def test_a_reference_that_was_replaced_cannot_vouch_for_the_clock():
    comparison = _one(run(blocks(1.2, clock=0.8), now=environment(torch="2.13")), baseline())

    assert comparison.stale.kind == "stale_packages"
    assert comparison.screens[0].p_slower == pytest.approx(1.0)
    assert comparison.screens[0].p_faster == pytest.approx(1.0)


# --- the span ---------------------------------------------------------------------------------------------------------


def test_the_span_is_held_against_its_own_margin():
    comparison = _one(run(blocks(span=1.3, activities=2)), baseline(span=1.1, activities=1))

    assert comparison.spans[0].change.value == pytest.approx(1.3 / 1.1 - 1, abs=0.01)
    assert comparison.spans[0].margin == pytest.approx(0.10)
    assert comparison.spans[0].p_slower < 1e-6
    assert comparison.screens[0].p_slower == pytest.approx(1.0)
    assert (comparison.activities, comparison.baseline_activities) == (2, 1)


# --- the duel ---------------------------------------------------------------------------------------------------------


def test_a_duel_is_summed_up_process_by_process():
    measured = duelled(0.01, 0.03, count=(4, 12))

    duel = _one(run(measured), baseline()).duel

    d = [block.shifts["kernel/base"] for block in measured]
    assert (duel.blocks, duel.processes) == (16, 2)
    assert duel.medians == (statistics.median(d[:4]), statistics.median(d[4:]))
    assert duel.shift.value == pytest.approx(exact.location(d).value)
    assert duel.p_slower == exact.signed_rank_p(d, math.log1p(0.01))


def test_blocks_of_later_processes_are_told_apart_in_whatever_order_they_came():
    measured = duelled(0.0, 0.01, 0.02)

    mixed = _one(run(measured[::-1])).duel

    assert mixed.medians == pytest.approx(_one(run(measured)).duel.medians)
    assert mixed.medians[0] < mixed.medians[1] < mixed.medians[2]


def test_what_is_allowed_is_taken_at_the_bases_length_not_the_kernels():
    comparison = _one(run(duelled(0.2, us=35.0)))

    assert comparison.base_us == pytest.approx(35.0, rel=0.01)
    assert comparison.kernel_us == pytest.approx(42.0, rel=0.01)
    assert comparison.duel.tau == pytest.approx(math.log1p(0.015))


def test_blocks_that_lack_the_base_take_no_part_in_the_duel_but_in_all_else():
    alone = tuple(replace(block, index=99) for block in blocks(count=8))

    comparison = _one(run(duelled(0.0, count=4) + alone), baseline())

    assert comparison.duel.blocks == 4
    assert comparison.screens[0].blocks == 12


def test_the_span_is_duelled_with_its_own_margin_and_floor():
    wide = _one(run(duelled(0.0, spans=(1.5, 1.2)))).duel_span
    short = _one(run(duelled(0.0, spans=(1.5, 1.2), us=10.0))).duel_span
    floorless = _one(run(duelled(0.0, spans=(1.5, 1.2), us=10.0)), span_floor_us=0.0).duel_span

    assert wide.shift.value == pytest.approx(math.log(1.5 / 1.2), abs=0.002)
    assert wide.tau == pytest.approx(math.log1p(0.10))
    assert short.tau == pytest.approx(math.log1p(5 / 12), rel=0.01)
    assert floorless.tau == pytest.approx(math.log1p(0.10))


def test_a_launch_of_one_kernel_in_both_revisions_has_no_span_to_duel():
    single = [
        replace(block, arms={name: replace(arm, activities=1) for name, arm in block.arms.items()})
        for block in duelled(0.0, spans=(1.5, 1.2))
    ]
    grown = [
        replace(block, arms={**block.arms, "kernel": replace(block.arms["kernel"], activities=2)}) for block in single
    ]
    unknown = [
        replace(block, arms={**block.arms, "base": replace(block.arms["base"], span_us=None)})
        for block in duelled(0.0, spans=(1.5, 1.2))
    ]

    assert _one(run(tuple(single))).duel_span is None
    assert _one(run(tuple(grown))).duel_span is not None
    assert _one(run(tuple(unknown))).duel_span is None


# --- recorded launches ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", "screen_on_traces") as modules:
        yield modules.screen_on_traces


@pytest.fixture(scope="module")
def by_case(recorded):
    traces = recorded.traces()
    return {case: recorded.by_process(traces, case) for case in recorded.by_length(traces)}


def _verdicts(recorded, checks, factor=1.0, **options):
    setting = recorded.Setting(factor, **options)
    return Counter(recorded.check(*one, setting) for one in checks)


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["kernel", "twin"])
def test_unchanged_kernels_on_an_h200_are_never_regressed_or_improved(recorded, by_case, arm):
    seen = Counter()
    for groups in by_case.values():
        checks = [
            *recorded.same_regime(groups),
            *recorded.same_regime(groups, 1),
            *recorded.another_regime(groups, checks=20),
        ]
        seen += _verdicts(recorded, checks[::4], arm=arm)  # benchmarks/screen_on_traces.py makes all

    assert seen[Verdict.REGRESSED] == seen[Verdict.IMPROVED] == 0
    assert seen.total() == 6 * (280 + 56 + 80) / 4


@pytest.mark.slow
def test_five_per_cent_is_seen_on_kernels_over_40_us(recorded, by_case):
    long = [case for case in by_case if not case.startswith(("bcast_4096", "softmax_8192"))]

    for case in long:
        seen = _verdicts(recorded, list(recorded.same_regime(by_case[case]))[::8], 1.05)
        assert seen[Verdict.REGRESSED] >= 0.97 * seen.total(), case
