"""Storage in low precision in the report: tables, pictures, both pages."""

import re
from dataclasses import replace

import pytest

from perfci import report
from perfci.core.model import OpRun
from perfci.ops.spec import is_stored
from perfci.report import lowprec
from perfci.report.charts.trends import ACROSS
from perfci.report.text import spell
from tests.storage_examples import E4M3, clipped, measured, normal, stored


@pytest.fixture(scope="module")
def judged(examples, sentences):
    op = replace(clipped("quantised"), accuracy=(examples.accuracy_case("rows=1,dtype=float32"),))
    return examples.judged(examples.run((op,)))


@pytest.fixture(scope="module")
def folder(judged, tmp_path_factory):
    return report.write(*judged, tmp_path_factory.mktemp("stored"), formats=report.FORMATS).parent


def rows(judged):
    return [row for row in judged[1].rows if row.case and is_stored(row.case)]


def test_the_report_reads_as_the_golden_file(folder, golden):
    golden("report-lowprec.md", (folder / report.REPORT).read_text(encoding="utf-8"))


def test_all_pictures_of_the_report_lie_beside_it(folder):
    text = (folder / report.REPORT).read_text(encoding="utf-8")
    linked = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)

    assert sorted(linked) == sorted(path.name for path in folder.glob("*.png"))
    assert [name for name in linked if name.startswith("lowprec-")] == ["lowprec-quantised-1.png"]


def test_an_op_that_stores_nothing_has_no_part_of_it(examples):
    assert list(lowprec.make_parts(OpRun("op"), ())) == []


def test_every_way_has_its_row_with_its_verdict(judged):
    table, causes = lowprec.make_parts(judged[0].ops[0], rows(judged))

    assert len(table.table.rows) == 12
    wrong = [row for row in table.table.rows if row[-1] == "WRONG"]
    assert len(wrong) == len(rows(judged)) == len(causes.table.rows)
    assert all(spell(row[0]) == "`a`" for row in wrong)
    assert all(len(row) == len(table.table.columns) for row in table.table.rows)


def test_where_nothing_is_beyond_its_limit_there_are_no_causes(judged):
    _, causes = lowprec.make_parts(judged[0].ops[0], ())

    assert causes.table.rows == ()


def test_one_tensor_is_drawn_if_none_is_beyond_its_limits():
    found = measured(
        lambda scaling, dtype, device, seed: {
            f"x{number}": stored(normal(rows=8, cols=16), dtype, scaling) for number in range(9)
        },
        ({"scaling": "row", "dtype": E4M3},),
    )
    op = OpRun("op", stored=tuple(found))

    assert [ways[0].tensor for ways in lowprec.choose_tensors(op, ())] == ["x0"]


def test_more_ways_than_fit_side_by_side_take_several_pictures():
    cases = tuple({"scaling": "group", "group": width, "dtype": E4M3} for width in (8, 16, 32, 64, 128))
    found = measured(lambda scaling, group, dtype, device, seed: {"x": stored(normal(), dtype, scaling, group)}, cases)

    assert [len(ways) for ways in lowprec.choose_tensors(OpRun("op", stored=tuple(found)), ())] == [ACROSS, 1]


def test_the_page_has_the_same_pictures(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")

    assert text.count('alt="Errors of storage of quantised stored=a"') == 1


def test_hostile_names_break_neither_page(examples, tmp_path):
    op = clipped("quantised")
    hostile = "<script>alert(1)</script>|`x`"
    bad = tuple(
        replace(each, tensor=hostile, case=each.case.replace("stored=a", f"stored={hostile}"),
                family=each.family.replace("stored=a", f"stored={hostile}"))
        for each in op.stored
    )  # fmt: skip
    run, judgements = examples.judged(examples.run((replace(op, stored=bad),)))

    made = report.write(run, judgements, tmp_path, formats=report.FORMATS).parent

    assert "<script>alert" not in (made / "report.html").read_text(encoding="utf-8").split("</style>")[1]
    assert not re.search(r"(?<!`)<script>alert", (made / report.REPORT).read_text(encoding="utf-8").replace("`", ""))
