import math

import pytest

from perfci.report import against
from perfci.report.text import spell

SLOW = "rows=4096,cols=1024,dtype=float16"
CLEARED = "rows=4096,cols=512,dtype=float16"


@pytest.fixture(scope="module")
def duelled(examples, sentences):
    return examples.duelled()


@pytest.fixture
def tables(duelled):
    """The two tables of softmax by the ends of their titles."""
    run, judgements = duelled
    op = next(op for op in run.ops if op.op == "softmax")
    planned = next(op.base for op in run.plan.ops if op.op == "softmax")
    mine = [row for row in judgements.rows if row.op == "softmax"]
    parts = against.make_parts(op, planned, mine)
    return {part.title.partition(": ")[2]: part for part in parts}


def line(part, case):
    row = next(row for row in map(spelt, part.table.rows) if f"`{case}`" in row[0])
    return dict(zip(part.table.columns, row, strict=True))


def spelt(row):
    return tuple(map(spell, row))


def test_a_duel_is_told_with_its_numbers(duelled, tables):
    _, judgements = duelled
    row = next(row for row in judgements.rows if row.case == SLOW and row.op == "softmax")
    look = row.comparison.duel

    told = line(tables["against the base"], SLOW)

    assert told["verdict"] == "REGRESSED"
    assert (told["base"], told["kernel"]) == ("16.0 us", "16.7 us")
    assert told["change"].startswith(f"{100 * math.expm1(look.shift.value):+.1f} % (")
    assert (told["allowed"], told["blocks"], told["processes"]) == ("1.5 %", "24", "2")
    assert told["by process"] == ", ".join(f"{100 * math.expm1(median):+.1f} %" for median in look.medians)
    assert float(told["p slower (adjusted)"]) == pytest.approx(row.p_adjusted, rel=0.01)


def test_a_case_cleared_after_four_blocks_says_at_which_confidence_and_tests_nothing(tables):
    told = line(tables["against the base"], CLEARED)

    assert told["change"].endswith("; 88 %)")
    assert (told["by process"], told["p slower (adjusted)"]) == ("-", "-")


def test_why_two_revisions_need_a_process_each_stands_above_the_duels(duelled):
    run, judgements = duelled
    op = next(op for op in run.ops if op.op == "matmul")
    planned = next(op.base for op in run.plan.ops if op.op == "matmul")

    duels, *_ = against.make_parts(op, planned, judgements.rows)

    assert duels.texts[0].startswith("Kernel and base took turns block by block, each in a separate process.")
    assert "registers torch operators in the namespace kernels" in duels.texts[0]
