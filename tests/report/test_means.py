import math
import statistics

import pytest

from perfci.core.model import Interval, Verdict
from perfci.report import means
from perfci.report.text import spell
from perfci.statistics import exact


def interval(value, share=0.01, confidence=0.95):
    return Interval(value, value * (1 - share), value * (1 + share), confidence)


def row(examples, op, case, speedup, verdict=Verdict.PASS):
    seen = examples.comparison(op, examples.performance_case(case, 10.0), speedup=speedup)
    return examples.judgement(op, case, verdict, examples.reason("example_same"), seen)


def test_the_geometric_mean_is_that_of_the_values():
    average_ratios = exact.average_ratios([interval(2.0), interval(0.5), interval(8.0)])

    assert average_ratios.value == pytest.approx(statistics.geometric_mean([2.0, 0.5, 8.0]))
    assert average_ratios.confidence == 0.95


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    import random

    rng, spread, hits = random.Random(1), 0.02, 0
    for _ in range(2000):
        logs = [rng.gauss(0.3, spread) for _ in range(5)]
        seen = exact.average_ratios(
            [Interval(*(math.exp(log + z * spread) for z in (0, -1.959964, 1.959964))) for log in logs]
        )
        hits += seen.low <= math.exp(0.3) <= seen.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT])
def test_cases_whose_time_says_nothing_are_left_out(examples, verdict):
    judged = [row(examples, "softmax", "n=1", 2.0), row(examples, "softmax", "n=2", 100.0, verdict)]

    assert [one.ratio.value for one in means.find_speedups(judged)] == [2.0]


def test_ops_have_means_of_their_own(examples):
    judged = [row(examples, "a", "n=1", 2.0), row(examples, "b", "n=1", 1.0), row(examples, "b", "n=2", 1.5)]

    rows = [[spell(cell) for cell in cells] for cells in means.compare_ops(judged).table.rows]
    assert [(op, cases, *ends) for op, cases, _, *ends, _ in rows] == [
        ("`a`", "1", "2.00x", "`n=1`", "2.00x"),
        ("`b`", "2", "1.00x", "`n=1`", "1.50x"),
    ]


def test_one_op_alone_has_no_table_of_means(examples):
    assert means.compare_ops([row(examples, "a", "n=1", 2.0)]) is None


def test_slower_than_the_reference_is_what_lies_below_1_with_its_whole_interval(examples):
    judged = [row(examples, "a", f"n={i}", speedup) for i, speedup in enumerate((0.9, 0.99, 1.2))]

    rows = means.compare_ops([*judged, row(examples, "b", "n=1", 2.0)]).table.rows
    assert [cells[-1] for cells in rows] == ["1", "0"]  # 0.99 has an interval up to 1.005
