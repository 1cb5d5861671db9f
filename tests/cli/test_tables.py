import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfci.cli import details, tables
from perfci.core import wording
from perfci.core.model import Judgements, OpRun, Plan, PlannedOp, Suggestion, Suite, Verdict
from perfci.lab.chains.records import ListedChain
from perfci.runs.accept import Acceptance
from perfci.runs.doctor import Finding, Level

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def examples():
    name = "perfci_example_runs"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / "example_runs.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(autouse=True)
def sentences(examples, monkeypatch):
    both = {**wording.catalogue(), **examples.SENTENCES}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": both)


def printed(*parts, width=80, terminal=True, color=None):
    console = Console(
        width=width, force_terminal=terminal, color_system=color, record=True, highlight=False, soft_wrap=not terminal,
        file=open("/dev/null", "w"),  # noqa: SIM115, PTH123
    )  # fmt: skip
    with console.file:
        for part in parts:
            console.print(part)
    return console.export_text(styles=color is not None)


@pytest.mark.parametrize("name", ["full", "duelled", "compiled"])
@pytest.mark.parametrize("width", [80, 150])
def test_no_line_is_wider_than_the_terminal(examples, width, name):
    run, judgements = getattr(examples, name)()

    lines = printed(tables.verdicts(judgements, run), tables.summary(judgements), width=width).splitlines()

    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", ["full", "duelled", "compiled"])
def test_a_log_gets_plain_lines_of_at_most_160_columns(examples, name):
    run, judgements = getattr(examples, name)()

    text = printed(tables.verdicts(judgements, run), tables.summary(judgements), terminal=False)

    assert max(map(len, text.splitlines())) <= tables.PLAIN
    assert text.isascii()
    assert "\x1b" not in text


def test_the_tests_that_decided_are_named_at_the_foot(examples):
    run, judgements = examples.duelled()

    foot = " ".join(printed(tables.verdicts(judgements, run), terminal=False).rpartition("On NVIDIA")[2].split())

    assert "one-sided Mann-Whitney U on block medians" in foot
    assert "one-sided Wilcoxon signed-rank on the blocks' shifts" in foot


def test_each_failing_row_is_followed_by_its_reason(examples):
    run, judgements = examples.full()

    lines = printed(tables.verdicts(judgements, run), terminal=False).splitlines()

    assert lines[0].split()[:4] == ["verdict", "op", "and", "case"]
    assert lines[1].split()[:3] == ["REGRESSED", "softmax", "rows=4096,cols=1024,dtype=float16"]
    assert lines[2].strip().startswith("It is 4.1 % slower than its baseline, beyond the allowed 2.0 %")


def test_at_80_columns_the_whole_case_and_sentence_can_be_read(examples):
    run, judgements = examples.small()

    words = printed(tables.verdicts(judgements, run), width=80).split()

    assert {"rows=4096,cols=32768,", "dtype=float16", "212"} <= set(words)
    assert "It is 4.1 % slower than its baseline, beyond the allowed 2.0 %, both times anew." in " ".join(words)


def test_above_the_table_stand_changed_rules_and_then_what_the_run_is_compared_with(examples):
    run, judgements = examples.duelled()

    lines = printed(tables.verdicts(judgements, run), terminal=False).splitlines()

    header = next(place for place, line in enumerate(lines) if line.startswith("verdict "))
    assert lines[0].startswith("This change alters how it is judged")
    assert lines[header - 1] == (
        "Compared with origin/main (89abcdef01, merge base): 9 cases timed side by side with it."
    )
    assert "\x1b[1;33mThis change alters" in printed(tables.verdicts(judgements, run), color="standard")


def test_a_run_with_changes_against_base_and_baseline_says_which_is_which(examples):
    told = "Changes are against the base where a case was timed beside it, else against the baseline."

    assert told in printed(tables.verdicts(*reversed(examples.duelled())), terminal=False)
    assert told not in printed(tables.verdicts(*reversed(examples.full())), terminal=False)


def test_compiled_kernels_alone_have_no_columns_for_times(examples):
    run, judgements = examples.compiled()

    lines = printed(tables.verdicts(judgements, run), terminal=False).splitlines()

    assert "verdict       op and case" in lines
    assert "REGRESSED     softmax compiled for sm_90 rows=4096,cols=32768,dtype=float16" in lines
    assert "Compiled for sm_90, gfx942 by triton 3.7.1, torch 2.13.0, commit 0123456789ab." in lines


def test_without_an_accelerator_what_the_kernels_compile_to_is_told(examples):
    run, judgements = examples.first_run()

    lines = printed(tables.verdicts(judgements, run), terminal=False).splitlines()

    row = next(place for place, line in enumerate(lines) if line.startswith("PASS          softmax compiled for sm_90"))
    assert lines[row + 1] == "    4 cases compile for sm_90: 2 kernels, at most 96 registers, 1 with spills."


def test_verdicts_are_words_in_colour_not_colour_alone(examples):
    run, judgements = examples.small()

    assert "\x1b[1;31mREGRESSED" in printed(tables.verdicts(judgements, run), color="standard")
    assert "REGRESSED" in printed(tables.verdicts(judgements, run))


def test_of_many_rows_that_are_fine_some_are_only_counted(examples):
    run, judgements = examples.large(ops=2, cases=50)

    text = printed(tables.verdicts(judgements, run), terminal=False)

    assert f"... and {98 - tables.FINE_ROWS} PASS more; the report lists them all." in text


def test_an_expected_slow_down_is_told_among_however_many_that_are_fine(examples):
    said = examples.reason("example_new")
    rows = [examples.judgement("softmax", f"n={i}", Verdict.NEW, said) for i in range(60)]
    rows += [examples.judgement("softmax", f"m={i}", Verdict.EXPECTED, said) for i in range(60)]

    text = printed(tables.verdicts(Judgements(tuple(rows))), terminal=False)

    assert text.count("EXPECTED") == 60
    assert f"... and {60 - tables.FINE_ROWS} NEW more" in text


def test_lines_to_be_pasted_are_never_broken_and_say_where_they_go(examples):
    said = examples.reason("example_new")
    entry = Suggestion("thresholds/softmax.yaml", f'  - {{case: "{"n=1," * 80}m=2"}}')
    row = examples.judgement("softmax", "n=1", Verdict.REGRESSED, said, suggested=entry)

    ((where, lines),) = tables.pasted(Judgements((row, row)))

    assert lines == ("expected:", entry.line, entry.line)
    for terminal, width in ((True, 80), (False, tables.PLAIN)):
        told = printed(where, width=80, terminal=terminal).splitlines()
        assert "Add this at the end of thresholds/softmax.yaml" in " ".join(told)
        assert max(map(len, told)) <= width
    assert list(tables.pasted(Judgements((replace(row, suggested=None),)))) == []


def test_the_summary_says_the_exit_code_and_what_strict_does(examples):
    warned = Judgements((examples.judgement("softmax", "n=1", Verdict.STALE, examples.reason("example_new")),))

    assert tables.summary(warned).plain == "1 op, 1 verdict: 1 STALE -> warns (exit 3)"
    assert tables.summary(warned, strict=True).plain == "1 op, 1 verdict: 1 STALE -> warns (exit 2), as --strict asks"


def test_the_summary_says_in_chinese_what_the_gate_does(examples):
    why = examples.reason("example_slower")
    judged = [Judgements((examples.judgement("softmax", "n=1", verdict, why),)) for verdict in Verdict]

    with wording.speaking("zh"):
        told = {tables.summary(each).plain.partition("->")[2] for each in judged}

    assert len(told) == 3 and not any(re.search("[a-z]", text) for text in told)


@pytest.mark.parametrize("name", ["hostile", "hostile_change"])
@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_text_cannot_command_the_terminal(examples, terminal, name):
    run, judgements = getattr(examples, name)()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    plan = Plan((PlannedOp(examples.HOSTILE, (), (examples.HOSTILE,)),), 1, 1.0, "cuda")

    text = printed(
        tables.verdicts(judgements, run),
        *tables.show(run.ops[0], run.ops[0].performance, rows, run),
        tables.ops(plan),
        terminal=terminal,
    )

    assert not any(mark in text for mark in "\x1b\x00\u202e\x07")


def test_show_tells_verdict_looks_blocks_and_compiled_kernels(examples):
    run, judgements = examples.small()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}

    text = printed(*tables.show(run.ops[0], run.ops[0].performance[1:], rows, run), terminal=False)

    assert "softmax on NVIDIA H200, timed by the device's activity records" in text
    assert "REGRESSED  It is 4.1 % slower" in text
    assert "fresh process 1" in text
    assert text.count("  kernel  ") >= 16
    assert "BLOCK=1024" in text


def test_show_of_a_case_that_was_not_timed_says_so(examples):
    run, judgements = examples.full()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    matmul = run.ops[1]

    text = printed(*tables.show(matmul, matmul.performance[4:], rows, run), terminal=False)

    assert "WRONG  An output of the timed launches is off by 3.20, beyond 0.0100." in text
    assert "not timed" in text


def shown(examples, name, op, width=160, terminal=False):
    """What `perfci show` prints of an op, case by case."""
    run, judgements = getattr(examples, name)()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    found = next((one for one in run.ops if one.op == op), OpRun(op))
    text = printed(*tables.show(found, found.performance, rows, run), width=width, terminal=terminal)
    return {part.partition("\n")[0]: part for part in text.strip("\n").split("\n\n")}


def test_show_tells_a_duel_look_by_look(examples):
    parts = shown(examples, "duelled", "softmax")

    slow = parts["softmax rows=4096,cols=1024,dtype=float16"].splitlines()
    head = next(place for place, line in enumerate(slow) if line.startswith("Duel, look by look"))
    assert slow[head].endswith("1.5 % allowed")
    looks = [line.split() for line in slow[head + 2 : head + 5]]
    assert [look[:3] for look in looks] == [["4", "1", "open"], ["12", "1", "open"], ["24", "2", "REGRESSED"]]
    assert looks[0].count("-") == 2
    assert "5.96e-08" in looks[2]

    cleared = parts["softmax rows=4096,cols=512,dtype=float16"]
    assert [line.split()[:3] for line in cleared.splitlines() if " at 88 %" in line] == [["4", "1", "cleared"]]


def test_the_looks_that_show_recomputes_end_with_the_one_that_was_judged(examples):
    run, judgements = examples.duelled()
    cases = {(op.op, case.case): case.blocks for op in run.ops for case in op.performance}
    duelled = [row for row in judgements.rows if row.comparison and row.comparison.duel]

    assert len(duelled) == 9
    for row in duelled:
        looks = details.duel_looks(cases[row.op, row.case], row.comparison.duel)
        assert looks[-1].medians == row.comparison.duel.medians
        assert looks[-1].shift == row.comparison.duel.shift
        assert [look.blocks for look in looks] == sorted({look.blocks for look in looks})


def test_show_tells_what_a_call_does_and_what_the_change_does_to_it(examples):
    parts = shown(examples, "duelled", "softmax")

    cleared = parts["softmax rows=4096,cols=512,dtype=float16"]
    assert "base 4.02 us" in cleared
    assert "peak memory 19.1 MiB" in cleared
    assert "against the base: _softmax_kernel is launched with warps 8, was 4." in cleared
    assert "a call makes 1 launch, 1 torch operation" in cleared
    assert "4096 x 1 x 1" in cleared
    # Among the verdict's reasons it is not told twice.
    assert parts["softmax rows=4096,cols=1024,dtype=float16"].count("is launched with warps") == 1


def test_show_tells_why_a_call_could_not_be_captured(examples):
    why = examples.reason("captured_opaque", what="a CUDA graph", file="x.py", line=3)
    case = examples.PerformanceCase("n=1", identity=examples.Identity(unknown=why))
    run = examples.run([OpRun("softmax", performance=(case,))])

    text = printed(*tables.show(run.ops[0], run.ops[0].performance, {}, run), terminal=False)

    assert "  a CUDA graph runs code on the device that cannot be told apart (x.py, line 3)" in text


def test_show_tells_the_levels_of_launches_and_the_other_board_only_where_there_are_any(examples):
    parts = shown(examples, "duelled", "softmax")

    assert "15.6 us and 17.1 us" in parts["softmax rows=4096,cols=4096,dtype=float16"]
    assert "levels" not in parts["softmax rows=4096,cols=512,dtype=float16"]
    case = examples.performance_case("n=1", 5.0)
    moved = replace(case, blocks=tuple(replace(block, board="GPU-77") for block in case.blocks))
    run = examples.run([OpRun("softmax", performance=(moved,))])
    assert "GPU-77" in printed(*tables.show(run.ops[0], run.ops[0].performance, {}, run), terminal=False)


def test_show_tells_what_was_compiled_without_a_device_beside_the_base(examples):
    parts = shown(examples, "compiled", "softmax")

    told = parts["softmax compiled for sm_90 by triton 3.7.1, torch 2.13.0"]
    assert "Kernels, with the base's figure where that was another" in told
    assert "64 -> 96" in told
    assert "llvm-objdump" in parts["softmax compiled for gfx942 by triton 3.7.1, torch 2.13.0"]
    unknown = shown(examples, "compiled", "attention")["attention compiled for sm_90 by triton 3.7.1, torch 2.13.0"]
    assert "torch.compile runs code on the device that cannot be told apart" in unknown


def test_show_of_chosen_cases_shows_what_these_compile_to(examples):
    run, _ = examples.compiled()

    text = printed(*details.static(run.static, "softmax", chosen={"rows=4096,cols=512,dtype=float16"}), terminal=False)

    assert "32 -> 34" in text
    assert "64 -> 96" not in text


@pytest.mark.parametrize(("name", "op"), [("duelled", "softmax"), ("duelled", "bias_relu"), ("compiled", "softmax")])
@pytest.mark.parametrize("width", [80, 120])
def test_show_of_duels_and_compiled_kernels_fits_the_terminal(examples, name, op, width):
    lines = "\n".join(shown(examples, name, op, width, terminal=True).values()).splitlines()

    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_show_fits_the_terminal(examples, width):
    run, judgements = examples.full()
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}

    lines = printed(*tables.show(run.ops[0], run.ops[0].performance, rows, run), width=width).splitlines()

    assert max(map(len, lines)) <= width
    assert all(len(line.split()) > 8 for line in lines if line.startswith("  kernel  ") and " us " in line)


def test_list_names_every_case_and_what_is_broken(examples):
    broken = PlannedOp("bias_relu", failure=examples.reason("example_raised", error="ImportError", message="no torch"))
    plan = Plan((PlannedOp("softmax", ("n=1", "n=2"), ("n=4096",)), broken), 1, 1.0, "cuda")

    assert printed(tables.ops(plan)).splitlines() == [
        "softmax  1 performance case, 2 accuracy cases",
        "  n=4096",
        "bias_relu  cannot run",
        "  It raised ImportError: no torch",
    ]


def test_list_names_the_cases_of_what_is_stored_in_low_precision():
    ops = (
        PlannedOp("fp8_matmul", ("m=8",), ("m=4096",), stored=("stored=*,scaling=row", "stored=*,scaling=tensor")),
        PlannedOp("fp8_attention", ("m=8",), stored=("stored=*,m=8",)),
    )

    assert printed(tables.ops(Plan(ops, 1, 1.0, "cuda"))).splitlines() == [
        "fp8_matmul  1 performance case, 1 accuracy case, 2 stored cases",
        "  m=4096",
        "  stored=*,scaling=row",
        "  stored=*,scaling=tensor",
        "fp8_attention  0 performance cases, 1 accuracy case, 1 stored case",
        "  stored=*,m=8",
    ]


def test_list_names_chains_with_their_stages_and_what_is_broken(examples):
    broken = ListedChain("torn", failure=examples.reason("example_raised", error="ImportError", message="no torch"))

    assert printed(tables.chains((ListedChain("echo", ("loud", "quiet"), ("rows=4",)), broken))).splitlines() == [
        "echo  2 stages, 1 case",
        "  loud -> quiet",
        "  rows=4",
        "torn  cannot run",
        "  It raised ImportError: no torch",
    ]
    assert printed(tables.chains((ListedChain("one", ("only\x1b[31m",), ("a", "b")),))).splitlines() == [
        "one  1 stage, 2 cases", "  only", "  a", "  b",
    ]  # fmt: skip
    assert printed(tables.chains(())) == "There are no chains of ops here.\n"


def test_a_long_case_id_goes_on_below_after_a_comma(examples):
    run, judgements = examples.long_names()

    lines = printed(tables.verdicts(judgements, run), width=80).splitlines()

    row = next(place for place, line in enumerate(lines) if "batch=16" in line)
    assert lines[row].split()[2] == "batch=16,heads=32,"
    assert "".join(line.strip() for line in lines[row + 1 : row + 3]) == (
        "sequence=4096,head_dim=128,causal=True,dtype=bfloat16"
    )


@pytest.mark.parametrize("language", wording.LANGUAGES)
def test_a_log_has_every_case_id_whole_however_long(examples, language):
    ids = [
        "rows=1,dtype=float16",
        *(",".join(f"parameter{at}={10**at}" for at in range(count)) for count in (4, 6, 12)),
    ]
    slow = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index=ids[-1])
    compared = examples.comparison("softmax", examples.performance_case("n=1", 5.0))
    timed = [examples.judgement("softmax", case, Verdict.WRONG, slow, compared) for case in ids]

    with wording.speaking(language):
        told = printed(tables.verdicts(Judgements(tuple(timed))), terminal=False).splitlines()

    assert max(map(len, ids)) > tables.PLAIN
    rows = [line for line in told if line.startswith("WRONG")]
    assert all(sum(case in line.split() for line in rows) == 1 for case in ids)
    assert sum(ids[-1] in line for line in told) == 1 + len(rows)
    assert len({cell_len(line) for line in rows if ids[0] in line}) == 1, "columns stand below each other"


def test_a_text_is_broken_between_chinese_characters_and_before_no_mark():
    name = ",".join(f"parameter{at}={10**at}" for at in range(8))
    text = f"第一个是 {name}，取值 normal（布局 contiguous）：" + "请检查掩码，" * 20  # noqa: RUF001

    lines = tables.wrapped(text, "  ", 40)

    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert sum(name in line for line in lines) == 1
    assert all(cell_len(line) <= 40 for line in lines if name not in line)
    assert not any(line.strip()[0] in "，：）" for line in lines)  # noqa: RUF001


def test_an_empty_project_has_no_ops():
    assert printed(tables.ops(Plan((), 1, 1.0, "cuda"))) == "There are no ops here.\n"


def test_acceptances_name_what_was_refused_and_why(examples):
    refused = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(1, 2)")

    text = printed(*tables.acceptances([Acceptance("softmax", None, ("n=1", "n=2"), (refused,))]), terminal=False)

    assert text.splitlines() == [
        "softmax: 2 cases accepted, 1 refused",
        "  The largest error is 3.20 at (1, 2), beyond the tolerance of 0.0100.",
    ]


def test_findings_put_problems_first(examples):
    found = [
        Finding(Level.OK, examples.reason("example_new")),
        Finding(Level.PROBLEM, examples.reason("example_no_accelerator")),
    ]

    lines = printed(*tables.findings(found), terminal=False).splitlines()

    assert lines[0] == "problem   Speed was not measured: there is no accelerator here."
    assert lines[1].startswith("ok        Nothing is stored")
