import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from perfci import report
from perfci.core.model import DuelWhat, Judgements, OpRun, Suite, Verdict
from perfci.store.launches import append_launches

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.fixture
def page(rendered):
    return lambda name: (rendered(name) / report.REPORT).read_text(encoding="utf-8")


def section(text, heading):
    """What stands under a heading of the second level."""
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


def test_rendering_twice_gives_the_same_bytes(examples, rendered, tmp_path):
    report.write(*examples.full(), tmp_path)

    first, second = (
        {file.name: file.read_bytes() for file in folder.iterdir()} for folder in (rendered("full"), tmp_path)
    )
    assert first == second


def test_verdicts_stand_first_and_the_gravest_on_top(page):
    text = page("full")

    assert text.index("## Verdicts") < text.index("## Notes") < text.index("## softmax")
    verdicts = re.findall(r"\*\*(REGRESSED|WRONG|TOO\\_SLOW|TOO_SLOW|ERROR|INCONCLUSIVE|REMOVED)\*\* *\|", text)
    assert verdicts[-2:] == ["INCONCLUSIVE", "REMOVED"]
    assert set(verdicts[:-2]) == {"REGRESSED", "WRONG", "TOO_SLOW", "ERROR"}


def test_many_rows_that_are_fine_are_folded_and_counted(page):
    verdicts = section(page("full"), "Verdicts")

    assert "<summary>18 rows that are fine: 1 IMPROVED, 3 NEW, 14 PASS</summary>" in verdicts
    assert verdicts.index("REGRESSED") < verdicts.index("<details>") < verdicts.index("| PASS ")


def test_a_case_that_was_not_timed_shows_dashes(page):
    text = page("full")

    row = next(line for line in text.splitlines() if "m=8192,n=8192,k=8192,dtype=float16" in line and "WRONG" in line)
    assert [cell.strip() for cell in row.split("|")][4:8] == ["-", "-", "-", "-"]


def test_without_a_baseline_there_is_a_speedup_and_no_change(page):
    verdicts = section(page("without_baseline"), "Verdicts")

    assert "| NEW     | -      | 1.50x (1.48x to 1.52x) |" in verdicts


def test_on_a_cpu_the_report_says_that_speed_was_not_measured(page):
    text = page("on_cpu")

    assert "Speed was not measured: there is no accelerator here." in section(text, "Notes")
    assert "### softmax: accuracy" in text
    assert "launches of each arm" not in text
    assert "none: nothing was timed" in text


def test_a_stopped_run_says_so_at_its_head(page):
    head = page("stopped").partition("## Verdicts")[0]

    assert "| stopped | early, by SIGINT: only what was measured until then is judged |" in head


def test_an_op_that_failed_as_a_whole_shows_its_message_in_full(page):
    text = page("failed_op")

    assert "| `bias_relu` | whole op | **ERROR** |" in text
    assert text.count("  at bias_relu.py:31\n") == 12


def test_of_a_case_that_fails_often_the_first_check_is_told_and_all_are_counted(examples, tmp_path):
    failed = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(1, 2)")
    checks = tuple(examples.accuracy_case(f"n={n}", failure=failed, seed=seed) for n in (1, 2) for seed in (7, 8, 9))
    rows = (examples.judgement("softmax", None, Verdict.WRONG, failed, suite=Suite.ACCURACY),)

    text = report.write(examples.run([OpRun("softmax", checks)]), Judgements(rows), tmp_path).read_text(
        encoding="utf-8"
    )

    told = [line for line in section(text, "softmax").splitlines() if line.startswith("- ")]
    assert told[0].startswith("- `n=1` (normal values, contiguous, seed 7): The largest error is 3.20 at (1, 2)")
    assert told[1].startswith("- `n=2` (normal values, contiguous, seed 7)")
    assert told[2] == "- 4 more accuracy checks failed; run.json holds them all."


def test_an_empty_run_says_that_nothing_was_judged(examples, tmp_path):
    text = report.write(examples.run([]), Judgements(()), tmp_path).read_text(encoding="utf-8")

    assert "**Nothing was judged.** 0 ops, 0 verdicts (exit code 0)." in text


def test_the_report_says_how_to_repeat_the_run(page):
    text = page("small")

    assert "perfci check softmax --seed 20260102" in section(text, "Environment")


@pytest.mark.parametrize(
    ("verdict", "command"),
    [
        ("REGRESSED", "perfci show reports/run.json --op softmax --case rows=4096,cols=1024,dtype=float16"),
        ("WRONG", "perfci check matmul --case m=1023,n=1024,k=1025,dtype=float16 --seed 20260102"),
        ("TOO_SLOW", "perfci show reports/run.json --op matmul --case m=1024,n=1024,k=1024,dtype=float16"),
        ("ERROR", "perfci check bias_relu --seed 20260102"),
    ],
)
def test_every_failing_verdict_names_the_next_command(page, verdict, command):
    steps = section(page("full"), "How to read this report")

    assert re.search(rf"\*\*{verdict}\*\*: [^\n]+\n\n```text\n{re.escape(command)}\n```", steps)


# --- the summary, means, advice and roofline --------------------------------------------------------------------------


def test_the_summary_stands_right_under_the_headline(page):
    head = page("full").partition("| what ")[0]

    headline, *bullets = [line for line in head.splitlines() if line and not line.startswith("#")]
    assert headline.startswith("**The gate fails")
    assert [line.split("**")[1] for line in bullets] == ["Fails", "Unproven", "Gone", "Faster", "Speedup"]


def test_ops_stand_beside_each_other_by_their_geometric_means(page):
    table = section(page("full"), "Speedup by op")

    assert [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| `")] == [
        "`softmax`",
        "`matmul`",
        "`broadcast`",
    ]
    assert "Geometric mean speedup over 12 cases: 1.62x" in section(page("full"), "softmax")


def test_one_op_has_its_mean_in_its_section_alone(page):
    text = page("small")

    assert "## Speedup by op" not in text
    assert "Geometric mean speedup over 2 cases" in section(text, "softmax")


def test_the_roofline_has_a_section_that_tells_what_is_not_known(examples, tmp_path):
    case = replace(examples.performance_case("m=1,dtype=float8", 10.0), bytes_moved=10**7, flops=10**9)

    text = report.write(examples.run([OpRun("mm", performance=(case,))]), Judgements(()), tmp_path).read_text()

    told = section(text, "Roofline")
    assert "![Roofline of NVIDIA H200](roofline.png)" in told
    assert "No matrix product was measured in float8." in told


def test_letters_of_any_script_are_told_and_drawn(examples, tmp_path):
    case = examples.performance_case("\u884c=7,dtype=float16", 10.0)
    op = OpRun("\u77e9\u9635", performance=(case,))

    text = report.write(examples.run([op]), Judgements(()), tmp_path).read_text(encoding="utf-8")

    assert "\n## \u77e9\u9635\n" in text
    assert [file.name for file in tmp_path.glob("*.png")] == ["blocks-op.png"]


# --- against a base revision ------------------------------------------------------------------------------------------


def test_how_a_change_alters_its_own_judging_comes_before_everything(page):
    head = page("duelled").partition("**The gate fails")[0]

    assert "> **This change alters how it is judged: " in head
    assert "thresholds/softmax.yaml" in head
    assert "This change alters" not in section(page("duelled"), "Notes")


def test_what_a_run_is_compared_with_stands_above_its_verdicts(page):
    text = page("duelled")

    above = section(text, "Verdicts").partition("| op ")[0]
    assert "Compared with origin/main (89abcdef01, merge base): 9 cases timed side by side with it." in above
    assert "| base    | `89abcdef0123`, where `origin/main` was left |" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"how": "asked", "name": "v1.2"}, "named `v1.2` by --against"),
        ({"how": "first_parent"}, "the tip of `origin/main` that is merged into"),
        ({"how": "baseline", "name": "0123456"}, "the commit of the baselines"),
        ({"python": "/old/bin/python"}, "where `origin/main` was left, run by `/old/bin/python`"),
    ],
)
def test_the_head_says_where_the_base_comes_from(examples, tmp_path, changes, told):
    run, judgements = examples.small()
    run = replace(run, plan=replace(run.plan, base=replace(examples.BASE, **changes)))

    text = report.write(run, judgements, tmp_path).read_text(encoding="utf-8")

    assert f"| `89abcdef0123`, {told}" in text


def test_the_bases_own_packages_are_part_of_the_environment(examples, tmp_path):
    run, judgements = examples.small()
    base = replace(examples.BASE, python="/old/bin/python", packages={"triton": "3.6.0", "python": "3.10.2"})
    run = replace(run, plan=replace(run.plan, base=base))

    found = section(report.write(run, judgements, tmp_path).read_text(encoding="utf-8"), "Environment")

    assert re.search(r"\| the base's packages +\| python 3\.10\.2, triton 3\.6\.0", found)


def test_an_op_that_nothing_was_run_for_has_a_row_and_no_section(page):
    text = page("duelled")

    assert "| `broadcast` | accuracy and 3 cases " in text
    assert "\n## broadcast\n" not in text
    assert "\n## layernorm\n" not in text
    assert "Without a section, since nothing of it had to be run: `broadcast`." in text


def test_an_ops_section_names_the_files_that_the_change_touches(page):
    told = section(page("duelled"), "matmul")

    assert "Files that differ from the base's: `kernels/matmul/matmul_triton.py`, `kernels/_launch.py`." in told


def test_what_changed_is_told_once_and_not_again_beside_the_verdict(page):
    text = page("duelled")

    assert text.count("The base's own kernel raised OutOfResources") == 1
    assert "is launched with warps" not in text.partition("### softmax: also worth knowing")[2].partition("###")[0]


def test_the_run_is_repeated_against_the_same_commit(page):
    assert "--seed 20260102 --against 89abcdef0123\n" in section(page("duelled"), "Environment")


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"duel": DuelWhat.ALL}, "--against 89abcdef0123 --duel all"),
        ({"python": "/old py/python"}, "--against 89abcdef0123 --base-python '/old py/python'"),
        ({"how": "baseline"}, "--seed 20260102\n"),
    ],
)
def test_the_repeated_run_takes_the_same_options(examples, tmp_path, changes, options):
    run, judgements = examples.small()
    duel = changes.pop("duel", DuelWhat.CHANGED)
    run = replace(run, plan=replace(run.plan, base=replace(examples.BASE, **changes), duel=duel))

    text = report.write(run, judgements, tmp_path).read_text(encoding="utf-8")

    assert options in section(text, "Environment")


def test_the_repeated_run_is_judged_by_what_was_given_on_the_command_line(examples, tmp_path):
    run, judgements = examples.small()
    run = replace(run, plan=replace(run.plan, thresholds={"tau": "2 %", "speedup": "1.2"}))
    text = report.write(run, judgements, tmp_path).read_text(encoding="utf-8")

    assert "--seed 20260102 --threshold 'tau=2 %' --threshold speedup=1.2\n" in section(text, "Environment")


def test_each_kind_of_doubt_names_its_own_next_command(page):
    steps = section(page("duelled"), "How to read this report")

    assert "perfci doctor\nperfci doctor --selftest --op bias_relu\n" in steps
    again = "perfci check softmax --case rows=4096,cols=2048,dtype=float16 --against 89abcdef0123"
    assert f"perfci doctor\n{again}\n" in steps
    assert "**REMOVED**" not in steps


def test_a_report_without_a_base_says_nothing_of_duels(page):
    text = page("full")

    assert "side by side" not in text
    assert not re.search(r"\bbase\b", text)


# --- compiled without a device ----------------------------------------------------------------------------------------


def test_compiled_kernels_have_a_section_and_their_ops_none(page):
    text = page("compiled")

    assert "### softmax for sm_90" in section(text, "Compiled kernels")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        "Verdicts",
        "Compiled kernels",
        "Environment",
        "How to read this report",
    ]


def test_a_table_of_compiled_kernels_alone_has_no_columns_for_times(page):
    header = next(line for line in section(page("compiled"), "Verdicts").splitlines() if line.startswith("| op "))

    assert [cell.strip() for cell in header.strip("|").split("|")] == ["op", "case", "verdict", "reason"]


def test_compiled_kernels_are_compiled_again_by_perfci_static(page):
    text = page("compiled")

    assert "perfci check --static attention broadcast matmul softmax --target sm_90,gfx942" in text
    case = "--case rows=4096,cols=32768,dtype=float16 --target sm_90 --against 89abcdef0123"
    assert (
        f"**REGRESSED, compiled**: see what grew under *Compiled kernels*; after a change, compile it again.\n\n"
        f"```text\nperfci check --static softmax {case}\n```" in text
    )


def test_on_a_machine_without_accelerator_the_compiled_kernels_have_a_verdict(page):
    text = page("first_run")

    row = next(line for line in text.splitlines() if "compiled for sm_90 " in line and "PASS" in line)
    assert "4 cases compile for sm_90: 2 kernels, at most 96 registers, 1 with spills." in row
    assert "### softmax for sm_90" in section(text, "Compiled kernels")
    assert "\n## softmax\n" in text


def test_achieved_rates_are_shares_of_the_limits_measured_in_the_run(page):
    text = page("small")

    row = next(line for line in text.splitlines() if "18.3 MiB" in line)
    cells = [cell.strip() for cell in row.split("|")]
    kernel_us = 4.93 * 3.9e6 / 1e3 / float(cells[3])
    assert float(cells[4].rstrip(" %")) == pytest.approx(100 * float(cells[3]) / 4180, abs=0.1)
    assert kernel_us == pytest.approx(4.93, rel=0.02)


def test_with_raw_launches_percentiles_are_exact_and_launches_are_drawn(examples, tmp_path):
    run, judgements = examples.small()
    case = run.ops[0].performance[0].case
    for index in range(8):
        us = [float(n) for n in range(index * 100 + 1, index * 100 + 101)]
        append_launches(tmp_path, "softmax", case, 0, index, {"kernel": us})

    text = report.write(run, judgements, tmp_path, launches=tmp_path).read_text(encoding="utf-8")

    row = next(line for line in text.splitlines() if line.startswith(f"| `{case}`") and "| kernel " in line)
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[5:10] == ["1.00 us", "41.0 us", "400 us", "760 us", "792 us"]
    assert (tmp_path / "launches-softmax.png").is_file()


def test_torn_launches_become_a_note_and_the_rest_is_used(examples, tmp_path):
    run, judgements = examples.small()
    append_launches(tmp_path, "softmax", run.ops[0].performance[0].case, 0, 0, {"kernel": [5.0] * 600})
    with (tmp_path / "launches.jsonl.gz").open("ab") as file:
        file.write(b"\x1f\x8b torn")

    text = report.write(run, judgements, tmp_path, launches=tmp_path).read_text(encoding="utf-8")

    assert "launches" in section(text, "Notes")
    assert "launches-softmax.png" in text


# --- text that comes from kernels -------------------------------------------------------------------------------------


HOSTILE = ("hostile", "hostile_change")


def tokens(text):
    return [token for block in MARKDOWN.parse(text) for token in (block, *(block.children or ()))]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_adds_no_html_link_or_picture(rendered, page, name):
    found = tokens(page(name))

    html = {token.content.strip() for token in found if token.type in {"html_block", "html_inline"}}
    assert all(re.fullmatch(r"(</?details>|<summary>[\w ]+</summary>|\n)+", part) for part in html)
    assert not [token for token in found if token.type == "link_open"]
    pictures = [token.attrs["src"] for token in found if token.type == "image"]
    assert pictures
    assert all((rendered(name) / picture).is_file() for picture in pictures)


def test_hostile_text_leaves_every_row_of_the_verdict_table(page):
    rows = [line for line in section(page("hostile"), "Verdicts").splitlines() if line.startswith("|")]

    assert len(rows) == 4


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_leaves_every_table_with_its_columns(page, name):
    tables = re.findall(r"(?:^\|.*\n)+", page(name), re.MULTILINE)

    assert len(tables) > 5
    for table in tables:
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_hostile_text_keeps_the_reports_headings(page):
    found = tokens(page("hostile"))

    levels = [token.tag for token in found if token.type == "heading_open"]
    assert levels.count("h1") == 1
    assert levels.count("h2") == 5


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_calls_nobody_outside_code(page, name):
    found = tokens(page(name))

    shown = [token.content for token in found if token.type == "text"]
    assert any("all" in text for text in shown)
    assert not [text for text in shown if re.search(r"[@#!~]\w|://\w", text)]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_leaves_no_control_or_reordering_character(page, name):
    text = page(name)

    assert not re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)


def test_a_very_long_message_is_cut_in_the_middle(page):
    text = page("hostile")

    assert len(max(text.splitlines(), key=len)) < 4500
