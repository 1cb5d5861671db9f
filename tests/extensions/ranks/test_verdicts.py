"""What a group's numbers mean: right and slower, by rank and over all."""

from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import Reason, Verdict
from perfci.extensions.ranks.records import (
    ALL,
    BASE,
    KERNEL,
    REFERENCE,
    CasePrepared,
    LinksCounted,
    LinksMeasured,
    RankError,
    RanksBlock,
    RanksChecked,
)
from perfci.extensions.ranks.spec import list_sizes
from perfci.extensions.ranks.verdicts import Measured, find_speedup, judge_check, judge_times
from perfci.extensions.ranks.volume import find_hidden, list_volumes

GOOD = RankError(error=1e-3, exact=1.0, usual=1e-3, count=64)
PREPARED = CasePrepared(
    "m=8", (KERNEL, BASE, REFERENCE), (False, False), dtype="float16", flops=10**10, sent_bytes=10**7
)


def judge(**changed):
    error = replace(GOOD, **changed)
    return judge_check("talk", RanksChecked("m=8", 1, (GOOD, error), rtol=1e-3, atol=1e-5))


def block(index, slower, seed=0):
    """Ten launches of 100 us on two ranks. slower: of the kernel, by rank."""
    rng = np.random.default_rng((seed, index))

    def launches(ratio):
        return tuple(100 * ratio * np.exp(rng.normal(0, 0.003, 10)))

    times = {KERNEL: tuple(launches(ratio) for ratio in slower), BASE: (launches(1.0), launches(1.0))}
    return RanksBlock("m=8", index, {**times, REFERENCE: (launches(2.0), launches(2.0))}, skew_us=0.2)


def time(slower, processes=2, links=None, prepared=PREPARED, counted=None):
    blocks = tuple(tuple(block(index, slower, process) for index in range(12)) for process in range(processes))
    (case,) = judge_times("talk", [Measured(prepared, blocks, 2, counted=counted)], {}, links, 0.01)
    return case


# --- accuracy ---------------------------------------------------------------------------------------------------------


def test_a_case_is_right_if_every_rank_is_and_has_the_error_of_all_together():
    judged = judge(error=3e-3, exact=2.0)

    assert (judged.verdict, judged.reasons) == (Verdict.PASS, ())
    assert judged.l2 == pytest.approx((1e-3, 1.5e-3))
    assert judged.whole == pytest.approx((1e-6 + 9e-6) ** 0.5 / 5**0.5)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"wrong": 3, "share": 7.0, "worst": "(1, 2)"}, "ranks_wrong"),
        ({"form": "float16[4] / float16[8]"}, "ranks_form"),
        ({"outside": 3}, "ranks_outside"),
        ({"kept": False}, "ranks_inputs_changed"),
        ({"repeats": False}, "ranks_not_repeated"),
    ],
)
def test_a_rank_that_is_wrong_is_named(changed, kind):
    judged = judge(**changed)

    assert judged.verdict is Verdict.WRONG
    assert [(reason.kind, reason.facts["rank"]) for reason in judged.reasons] == [(kind, 1)]


def test_a_rank_that_raised_is_an_error_and_no_rank_at_all_is_no_pass():
    raised = judge_check("talk", RanksChecked("m=8", 1, failure=Reason("ranks_raised", {"rank": 1})))
    silent = judge_check("talk", RanksChecked("m=8", 1))

    assert (raised.verdict, raised.reasons[0].kind) == (Verdict.ERROR, "ranks_raised")
    assert (silent.verdict, silent.reasons[0].kind) == (Verdict.WRONG, "ranks_unproven")


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_launch_is_as_long_as_its_slowest_rank_and_the_slower_rank_is_named():
    case = time((1.0, 1.03))

    assert case.verdict is Verdict.REGRESSED
    assert [(reason.kind, reason.facts["rank"]) for reason in case.reasons] == [
        ("ranks_slower", ALL), ("ranks_slower_rank", 1)
    ]  # fmt: skip
    assert case.times_us[KERNEL] > max(case.ranks_us) - 0.5
    assert find_speedup(case) == pytest.approx(2 / 1.03, rel=0.01)


def test_a_slow_down_that_a_slower_rank_hides_is_seen_on_its_rank():
    blocks = [[block(index, (1.03, 1.0), process) for index in range(12)] for process in range(2)]

    def slow(one):  # rank 1 takes half as long again in both arms
        times = {arm: (of[0], tuple(1.5 * us for us in of[1])) for arm, of in one.times_us.items()}
        return replace(one, times_us=times)

    measured = Measured(PREPARED, tuple(tuple(map(slow, process)) for process in blocks), 2)
    (case,) = judge_times("talk", [measured], {}, None, 0.01)

    assert [(reason.kind, reason.facts["rank"]) for reason in case.reasons] == [("ranks_slower_rank", 0)]


def test_a_slow_down_of_all_ranks_is_one_sentence():
    assert [reason.kind for reason in time((1.03, 1.03)).reasons] == ["ranks_slower_all"]


def test_one_process_can_clear_a_case_and_never_fails_one():
    assert time((1.0, 1.0), processes=1).verdict is Verdict.PASS
    one = time((1.05, 1.05), processes=1)
    assert (one.verdict, one.processes, one.reasons[0].kind) == (Verdict.INCONCLUSIVE, 1, "ranks_open")


def test_a_faster_kernel_is_improved():
    assert time((0.95, 0.95)).verdict is Verdict.IMPROVED


# --- links ------------------------------------------------------------------------------------------------------------


def count(kernel, base=((1e7, 1e7), (1e7, 1e7), (1e7, 1e7))):
    return LinksCounted("m=8", kernel, base)


def test_a_kernel_that_sends_more_than_the_base_fails_with_the_rank_that_does():
    case = time((1.0, 1.0), 1, counted=count(((1e7, 2e7), (1e7, 2e7), (1e7, 2.1e7))))

    assert (case.verdict, case.processes) == (Verdict.REGRESSED, 0)
    assert [(reason.kind, reason.facts["rank"]) for reason in case.reasons] == [("ranks_sends_more", 1)]
    assert (case.reasons[0].facts["sent"], case.reasons[0].facts["base_sent"]) == (20.0, 10.0)


@pytest.mark.parametrize(
    "kernel",
    [
        ((2e7, 2e7), (1e7, 1e7), (1e7, 1e7)),  # of something else, in one turn
        ((1.02e7, 1.02e7),) * 3,
        ((9e6, 9e6),) * 3,
    ],
)
def test_what_else_crosses_a_link_and_what_counters_leave_open_blames_no_kernel(kernel):
    assert time((1.0, 1.0), 1, counted=count(kernel)).verdict is Verdict.PASS


def test_a_few_bytes_more_of_a_small_message_are_none():
    assert time((1.0, 1.0), 1, counted=count(((4e4, 4e4),) * 3, ((2e4, 2e4),) * 3)).verdict is Verdict.PASS


def test_a_kernel_that_is_faster_for_what_it_sends_is_improved_and_both_are_said():
    case = time((0.95, 0.95), counted=count(((2e7, 2e7),) * 3))

    assert case.verdict is Verdict.IMPROVED
    assert [reason.kind for reason in case.reasons] == ["ranks_faster", "ranks_sends_more"]


def test_a_roofline_has_the_links_beside_computation_and_says_what_limits():
    by_links = time((1.0, 1.0), 1, LinksMeasured(link_gbs=200.0, tflops={"float16": 500.0})).roofline
    by_compute = time((1.0, 1.0), 1, LinksMeasured(link_gbs=2000.0, tflops={"float16": 500.0})).roofline

    assert (by_links.limit, by_links.links_us, by_links.compute_us) == ("links", 50.0, 20.0)
    assert by_links.share == pytest.approx(0.5, rel=0.02)
    assert (by_compute.limit, by_compute.links_us) == ("compute", 5.0)


def test_hidden_communication_is_what_takes_no_time_of_its_own():
    assert [find_hidden(us, 20.0, 100.0) for us in (100.0, 110.0, 120.0, 130.0)] == [1.0, 0.5, 0.0, 0.0]
    assert find_hidden(100.0, None, 100.0) is None


def test_volumes_grow_with_the_ranks_as_their_formulas_say():
    volumes = {ranks: {one.way: one.bytes for one in list_volumes(4096, 8192, 2, ranks)} for ranks in (1, 2, 8)}
    size = 4096 * 8192 * 2

    assert volumes[1] == {"tensor": 0.0, "sequence": 0.0, "pipeline": 0.0}
    assert volumes[2] == {"tensor": size, "sequence": size, "pipeline": size}
    assert volumes[8] == {"tensor": 1.75 * size, "sequence": 1.75 * size, "pipeline": size}


@pytest.mark.parametrize("ranks", [0, True, (), (2, 0), 2.0, ("2",)])
def test_ranks_are_whole_numbers(ranks):
    with pytest.raises((ValueError, TypeError), match=r"ranks is|not iterable"):
        list_sizes(ranks)
