"""Storage in low precision in the report: tables, pictures, both pages."""

import re
from dataclasses import replace

import pytest

from perfci import report
from perfci.extensions.lowprec import tables as lowprec
from perfci.ops.spec import is_stored
from perfci.report.text import spell
from tests.extensions.lowprec.storage_examples import clipped


@pytest.fixture(scope="module")
def judged(examples, sentences):
    op = replace(clipped("quantised"), accuracy=(examples.accuracy_case("rows=1,dtype=float32"),))
    return examples.judged(examples.run((op,)))


@pytest.fixture(scope="module")
def folder(judged, tmp_path_factory):
    return report.write(
        *judged, tmp_path_factory.mktemp("stored"), extras=[lowprec.ErrorPictures()], formats=report.list_formats()
    ).parent


def rows(judged):
    return [row for row in judged[1].rows if row.case and is_stored(row.case)]


def test_the_report_reads_as_the_golden_file(folder, golden):
    golden("report-lowprec.md", (folder / report.REPORT).read_text(encoding="utf-8"))


def test_all_pictures_of_the_report_lie_beside_it(folder):
    text = (folder / report.REPORT).read_text(encoding="utf-8")
    linked = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)

    assert sorted(linked) == sorted(path.name for path in folder.glob("*.png"))
    assert [name for name in linked if name.startswith("lowprec-")] == ["lowprec-quantised-1.png"]


def test_every_way_has_its_row_with_its_verdict(judged):
    table, causes = lowprec.make_parts(judged[0].ops[0], rows(judged))

    assert len(table.table.rows) == 12
    wrong = [row for row in table.table.rows if row[-1] == "WRONG"]
    assert len(wrong) == len(rows(judged)) == len(causes.table.rows)
    assert all(spell(row[0]) == "`a`" for row in wrong)
    assert all(len(row) == len(table.table.columns) for row in table.table.rows)


def test_the_page_has_the_same_pictures(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")

    assert text.count('alt="Errors of storage of quantised stored=a"') == 1


def test_hostile_names_break_neither_page(examples, tmp_path):
    op = clipped("quantised")
    hostile = "<script>alert(1)</script>|`x`"
    bad = tuple(
        replace(tensor, tensor=hostile, case=tensor.case.replace("stored=a", f"stored={hostile}"),
                family=tensor.family.replace("stored=a", f"stored={hostile}"))
        for tensor in op.stored
    )  # fmt: skip
    run, judgements = examples.judged(examples.run((replace(op, stored=bad),)))

    extras = [lowprec.ErrorPictures()]
    made = report.write(run, judgements, tmp_path, extras=extras, formats=report.list_formats()).parent

    assert "<script>alert" not in (made / "report.html").read_text(encoding="utf-8").split("</style>")[1]
    assert not re.search(r"(?<!`)<script>alert", (made / report.REPORT).read_text(encoding="utf-8").replace("`", ""))
