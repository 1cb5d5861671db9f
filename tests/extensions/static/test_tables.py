import pytest

from perfci.core.model import KernelBinary, Static, StaticCase, StaticOp
from perfci.extensions.static import tables as compiled
from perfci.report.text import spell


@pytest.fixture
def section(examples):
    run, _ = examples.compiled()
    return compiled.make_section(run.static)


def op(*cases, **changes):
    return StaticOp("softmax", "sm_90", cases, **changes)


def case(name, *binaries):
    return StaticCase(name, binaries=binaries)


def part(section, title):
    return next(part for part in section.parts if part.title == title)


def test_a_kernel_that_several_cases_launch_is_one_row():
    short, long = KernelBinary("k", "aa", 32), KernelBinary("k", "bb", 96)

    head = op(case("n=1", short), case("n=2", short), case("n=3", long))
    rows = compiled.tabulate_kernels(Static(("sm_90",), "triton", (head,)), head).rows

    assert [tuple(map(spell, cells)) for cells in rows] == [("`k`", "32", "`n=1`, `n=2`"), ("`k`", "96", "`n=3`")]


def test_a_figure_stands_beside_the_bases_if_both_are_known_and_differ():
    now, once = KernelBinary("k", "aa", 40, instructions=100, warps=4), KernelBinary("k", "bb", 32, warps=4)
    head, before = op(case("n=1", now), case("n=2", now)), op(case("n=1", once), case("n=2", now))

    table = compiled.tabulate_kernels(Static(("sm_90",), "triton", (head,), base_ops=(before,)), head)

    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [one["registers"] for one in rows] == ["32 -> 40", "40"]
    assert [one["instructions"] for one in rows] == ["100", "100"]
    assert [one["warps"] for one in rows] == ["4", "4"]
    assert "spills" not in table.columns


def test_figures_that_no_tool_could_find_have_no_column_and_a_reason(section):
    columns = part(section, "softmax for gfx942").table.columns

    assert "instructions" not in columns
    assert "registers" in columns
    assert any("llvm-objdump" in line and "`softmax` for gfx942" in spell(line) for line in section.lines)


def test_an_op_that_does_not_import_is_told_and_has_no_table(section):
    assert "`broadcast` for gfx942: performance does not import" in spell(" ".join(section.lines))
    assert "broadcast for gfx942" not in [part.title for part in section.parts]
