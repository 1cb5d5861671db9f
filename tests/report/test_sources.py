"""Where thresholds in force come from, in the report."""

import dataclasses

import pytest

from perfci import report
from perfci.report import sources
from perfci.report.sources import EACH, SetBy, SetValue
from perfci.report.text import spell

GIVEN = SetValue(SetBy.GIVEN, "rsd", "9 %", "5 %", "--threshold")
RELAXED = SetValue(
    SetBy.RELAXED, "tau", "3 %", "0.7 % ... 1 %", "thresholds/softmax.yaml:12", "softmax", "rows=7,*", "2027-01-31",
    "noisy since driver 590, see !43",
)  # fmt: skip
EARNED = SetValue(
    SetBy.EARNED, "speedup", "1.31", "1.2", "thresholds/nvidia-h200/softmax.yaml:14", "softmax", "rows=4096,cols=512",
    why="figures of 24 runs", runs=24, date="2026-11-21", number=1.31,
)  # fmt: skip


def written(examples, tmp_path, *found):
    run, judgements = examples.small()
    return report.write(run, judgements, tmp_path, sources=found).read_text("utf-8")


def test_the_section_reads_as_the_golden_file(examples, tmp_path, golden):
    text = written(examples, tmp_path, EARNED, RELAXED, GIVEN)

    golden("report-thresholds.md", text.partition("\n## Thresholds\n")[2].partition("\n## ")[0])


def test_it_is_folded_and_stands_before_the_environment(examples, tmp_path):
    text = written(examples, tmp_path, EARNED, RELAXED, GIVEN)

    title = "given on the command line: 1, relaxed for a time: 1, earned: 1"
    assert f"<summary>Where thresholds in force come from: {title}</summary>" in text
    assert text.index("## Thresholds") < text.index("## Environment")


def test_without_any_there_is_no_section(examples, tmp_path):
    assert "## Thresholds" not in written(examples, tmp_path)
    assert sources.make_part(()) is None


def test_many_earned_values_of_a_threshold_are_one_row_with_their_ends():
    many = [
        dataclasses.replace(EARNED, case=f"rows={number}", value=f"{1 + number / 100}", number=1 + number / 100)
        for number in range(EACH + 1)
    ]
    (row,) = [tuple(map(spell, row)) for row in sources.make_part(many).table.rows]

    assert row[:4] == ("`speedup`", "`softmax`", "13 cases", "1.0 to 1.12")
    assert row[5] == "earned, `thresholds/nvidia-h200/softmax.yaml`"
    assert "perfci thresholds show --op softmax --key speedup" in row[7]
    assert len(sources.make_part(many[:EACH]).table.rows) == EACH


def test_an_entry_that_gives_back_what_people_wrote_says_so():
    (row,) = sources.make_part([dataclasses.replace(RELAXED, value="", case="")]).table.rows

    assert row[2:4] == ("all", "as people wrote it")


def test_foreign_reasons_are_harmless(examples, tmp_path):
    assert "| &lt;b&gt; \\| @&#8203;all" in written(examples, tmp_path, dataclasses.replace(RELAXED, why="<b> | @all"))


@pytest.mark.parametrize("found", [(), (EARNED, RELAXED)])
def test_the_page_has_them_too(examples, tmp_path, found):
    text = (
        report.write(*examples.small(), tmp_path, sources=found, formats=["html"])
        .with_name(report.PAGE)
        .read_text("utf-8")
    )

    assert ('<section id="thresholds">' in text) is bool(found)
    assert ("2027-01-31" in text) is bool(found)
