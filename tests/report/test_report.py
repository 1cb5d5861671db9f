import re
from dataclasses import replace

import pytest

from perfci import report
from perfci.core.model import Judgements, OpRun, Reason, Suite, Verdict
from perfci.report import accuracy
from perfci.store.launches import append_launches

pytestmark = pytest.mark.usefixtures("pictures")


@pytest.fixture
def page(rendered):
    return lambda name: (rendered(name) / report.REPORT).read_text(encoding="utf-8")


def section(text, heading):
    """The text under a heading of the second level."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["small", "full", "duelled", "compiled"])
def test_the_report_reads_as_the_golden_file(page, golden, name):
    golden(f"report-{name}.md", page(name))


@pytest.mark.parametrize(
    "name",
    [
        "small",
        "full",
        "long_names",
        "stopped",
        "failed_op",
        "on_cpu",
        "without_baseline",
        "duelled",
        "compiled",
        "first_run",
    ],
)
def test_every_picture_of_the_report_lies_beside_it_and_no_other(page, rendered, name):
    linked = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page(name))

    assert sorted(linked) == sorted(file.name for file in rendered(name).glob("*.png"))


def test_an_earlier_reports_pictures_are_gone_and_other_files_stay(examples, tmp_path):
    report.write(*examples.small(), tmp_path)
    (tmp_path / "mine.png").write_bytes(b"kept")

    report.write(*examples.failed_op(), tmp_path)

    assert [file.name for file in tmp_path.glob("*.png")] == ["mine.png"]


def test_on_a_cpu_the_report_says_that_speed_was_not_measured(page):
    text = page("on_cpu")

    assert "Speed was not measured: there is no accelerator here." in section(text, "Notes")
    assert "### softmax: accuracy" in text
    assert "launches of each arm" not in text
    assert "none: nothing was timed" in text


def test_of_a_case_that_fails_often_the_first_check_is_told_and_all_are_counted(examples, tmp_path):
    failed = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(1, 2)")
    checks = tuple(examples.accuracy_case(f"n={n}", failure=failed, seed=seed) for n in (1, 2) for seed in (7, 8, 9))
    rows = (examples.judgement("softmax", None, Verdict.WRONG, failed, suite=Suite.ACCURACY),)

    text = report.write(examples.run([OpRun("softmax", checks)]), Judgements(rows), tmp_path).read_text(
        encoding="utf-8"
    )

    told = [line for line in section(text, "softmax").splitlines() if line.startswith("- ")]
    assert told[0].startswith("- `n=1`, normal values, contiguous, seed 7: The largest error is 3.20 at (1, 2)")
    assert told[1].startswith("- `n=2`, normal values, contiguous, seed 7: ")
    assert told[2] == "- 4 more accuracy checks failed; run.json holds them all."


def test_a_failing_case_that_its_sentence_names_is_named_once(examples):
    why = Reason("race", {"case": "n=1", "first": 0, "second": 1, "kind": "stores", "count": 2})

    (told,) = accuracy.describe_failures(OpRun("softmax", (examples.accuracy_case("n=1", failure=why),)))

    assert told.startswith("normal values, contiguous, seed 1234: ") and told.count("n=1") == 1


# --- the summary, means, advice and roofline --------------------------------------------------------------------------


def test_the_roofline_has_a_section_that_tells_what_is_not_known(examples, tmp_path):
    case = replace(examples.performance_case("m=1,dtype=float8", 10.0), bytes_moved=10**7, flops=10**9)

    text = report.write(examples.run([OpRun("mm", performance=(case,))]), Judgements(()), tmp_path).read_text()

    told = section(text, "Roofline")
    assert "![Roofline of NVIDIA H200](roofline.png)" in told
    assert "No matrix product was measured in float8." in told


# --- compiled without a device ----------------------------------------------------------------------------------------


def test_on_a_machine_without_accelerator_the_compiled_kernels_have_a_verdict(page):
    text = page("first_run")

    line = next(line for line in text.splitlines() if line.startswith("- PASS ") and "compiled for sm_90" in line)
    assert "4 cases compile for sm_90: 2 kernels, at most 96 registers and 24 B of spills a thread." in line
    assert "### softmax for sm_90" in section(text, "Compiled kernels")
    assert "\n## softmax\n" in text


def test_with_raw_launches_their_distribution_is_drawn(examples, tmp_path):
    run, judgements = examples.small()
    case = run.ops[0].performance[0].case
    for index in range(8):
        us = [float(n) for n in range(index * 100 + 1, index * 100 + 101)]
        append_launches(tmp_path, "softmax", case, 0, index, {"kernel": us})

    report.write(run, judgements, tmp_path, launches=tmp_path)

    assert (tmp_path / "launches-softmax.png").is_file()


# --- text that comes from kernels -------------------------------------------------------------------------------------


HOSTILE = ("hostile", "hostile_change")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_leaves_every_table_with_its_columns(page, name):
    tables = re.findall(r"(?:^\|.*\n)+", page(name), re.MULTILINE)

    assert len(tables) > 5
    for table in tables:
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1
