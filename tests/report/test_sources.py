"""Where thresholds in force come from, in the report."""

import dataclasses

from perfci import report
from perfci.report import sources
from perfci.report.sources import SetBy, SetValue

GIVEN = SetValue(SetBy.GIVEN, "rsd", "9 %", "5 %", "--threshold")
RELAXED = SetValue(
    SetBy.RELAXED, "tau", "3 %", "0.7 % ... 1 %", "thresholds/softmax.yaml:12", "softmax", "rows=7,*", "2027-01-31",
    "noisy since driver 590, see !43",
)  # fmt: skip
EARNED = SetValue(
    SetBy.EARNED, "speedup", "1.31", "1.2", "thresholds/nvidia-h200/softmax.yaml:14", "softmax", "rows=4096,cols=512",
    why="figures of 24 runs", runs=24, date="2026-11-21",
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
    assert sources.make_section(()) is None


def test_foreign_reasons_are_harmless(examples, tmp_path):
    assert "| &lt;b&gt; \\| @&#8203;all" in written(examples, tmp_path, dataclasses.replace(RELAXED, why="<b> | @all"))
