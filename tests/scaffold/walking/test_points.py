"""What decorators call a test with is told from their syntax, and nothing where they say nothing."""

from __future__ import annotations

import ast

import pytest

from perfci.scaffold.walking.points import points
from perfci.scaffold.walking.values import UNKNOWN

SIZES = 'Benchmark(x_names=["M", "N"], x_vals=[1, (2, 3)], args={"K": 4})'


def given(decorators: str) -> list[dict[str, object]]:
    (function,) = ast.parse(f"{decorators}\ndef test(): pass").body

    def evaluate(node):
        return ast.literal_eval(node) if not isinstance(node, ast.Name) else UNKNOWN

    return list(points(function, evaluate))


@pytest.mark.parametrize("written", [SIZES, f"[{SIZES}]", f"benchmarks={SIZES}", f"benchmarks=[{SIZES}, {SIZES}]"])
def test_a_benchmark_gives_its_sizes_with_what_is_fixed(written):
    assert given(f"@perf_report({written})") == [{"M": 1, "N": 1, "K": 4}, {"M": 2, "N": 3, "K": 4}]


@pytest.mark.parametrize(
    "decorators",
    ["", "@perf_report()", "@perf_report([])", "@perf_report(sizes)", "@perf_report", "@parametrize('M', sizes)"],
)
def test_a_function_whose_values_cannot_be_told_is_called_once_without_any(decorators):
    assert given(decorators) == [{}]


def test_each_value_of_one_decorator_meets_each_of_the_other():
    found = given("@parametrize('M, N', [(1, 2), (3, 4)])\n@parametrize('K', [5, 6])")

    assert found == [{"M": m, "N": n, "K": k} for m, n in ((1, 2), (3, 4)) for k in (5, 6)]
