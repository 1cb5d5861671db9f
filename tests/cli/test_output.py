import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfci.cli import accept, details, output, projects
from perfci.cli.output import print_parts
from perfci.core import wording
from perfci.core.model import Judgements, OpRun, Plan, PlannedOp, Verdict
from perfci.core.wording import sentence
from perfci.report import markdown, rows
from perfci.report.build import make_report
from perfci.report.frame import find_clocks
from perfci.report.sections import Material
from perfci.runs.accept import Acceptance
from tests import example_runs


@pytest.fixture(scope="session")
def examples():
    return example_runs


@pytest.fixture(autouse=True)
def sentences(examples, monkeypatch):
    both = {**wording.catalogue(), **examples.SENTENCES}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": both)


def cut(op, first):
    return replace(op, performance=op.performance[first:])


def printed(*parts, width=80, terminal=True, color=None):
    console = Console(
        width=width, force_terminal=terminal, color_system=color, record=True, highlight=False, soft_wrap=not terminal,
        file=open("/dev/null", "w"),  # noqa: SIM115, PTH123
    )  # fmt: skip
    with console.file:
        print_parts(parts, console)
    return console.export_text(styles=color is not None)


@pytest.mark.parametrize("name", ["full", "duelled", "compiled"])
@pytest.mark.parametrize("width", [80, 150])
def test_no_line_is_wider_than_the_terminal(examples, width, name):
    run, judgements = getattr(examples, name)()

    lines = printed(*output.list_verdicts(judgements, run), output.sum_up(judgements), width=width).splitlines()

    assert max(len(line) for line in lines if not line.startswith("Next: ")) <= width


def test_what_a_target_was_not_compiled_to_is_printed_once(examples):
    run, judgements = examples.compiled()
    limit = next(op.unavailable for op in run.static.ops if op.unavailable)

    assert sum(op.unavailable == limit for op in run.static.ops) > 1
    assert printed(*output.list_verdicts(judgements, run), width=500).count(sentence(limit)) == 1


def test_on_a_narrow_terminal_a_command_stays_in_one_line_and_a_case_is_folded_behind_a_parameter(examples):
    run, judgements = examples.duelled()

    lines = printed(*output.list_verdicts(judgements, run), width=80).splitlines()

    command = "Next: perfci bisect softmax --case rows=4096,cols=1024,dtype=float16 --against 89abcdef0123"
    assert command in map(str.rstrip, lines)
    at = next(at for at, line in enumerate(lines) if re.match(r"REGRESSED +softmax rows=", line))
    assert lines[at].split()[2] + lines[at + 1].strip() == "rows=4096,cols=1024,dtype=float16"
    assert lines[at].split()[2].endswith(",")


def test_each_failing_row_is_followed_by_its_reason(examples):
    run, judgements = examples.full()

    lines = printed(*output.list_verdicts(judgements, run), terminal=False).splitlines()
    lines = lines[next(at for at, line in enumerate(lines) if line.startswith("verdict") and "op and case" in line) :]

    assert lines[1].split()[:3] == ["REGRESSED", "softmax", "rows=4096,cols=1024,dtype=float16"]
    assert lines[2].strip().startswith("It is 4.1 % slower than its baseline, beyond the allowed 2.0 %")


def test_the_first_line_says_what_how_much_and_why_and_below_are_a_row_a_cause_and_a_command(examples):
    run, judgements = examples.duelled()

    lines = printed(*output.list_verdicts(judgements, run), terminal=False).splitlines()[1:]

    assert lines[0] == "softmax is 4.1 % slower in 1 of 8 cases, with num_warps 8 instead of 4."
    assert lines[1].split() == ["verdict", "where", "was", "now", "change"]
    assert re.split(r" {2,}", lines[2]) == ["REGRESSED", "softmax 1 of 8 cases", "16.0 us", "16.7 us", "+4.1 %"]
    command = "Next: perfci bisect softmax --case rows=4096,cols=1024,dtype=float16 --against 89abcdef0123"
    assert lines[lines.index("") - 1] == command


def test_without_anything_to_tell_the_table_of_cases_comes_first(examples):
    rows = Judgements((examples.judgement("softmax", "n=1", Verdict.PASS, examples.reason("example_new")),))

    assert printed(*output.list_verdicts(rows), terminal=False).startswith("verdict  op and case")


def test_above_the_table_stand_changed_rules_and_then_what_the_run_is_compared_with(examples):
    run, judgements = examples.duelled()

    lines = printed(*output.list_verdicts(judgements, run), terminal=False).splitlines()

    header = next(place for place, line in enumerate(lines) if line.startswith("verdict ") and "op and case" in line)
    assert lines[0].startswith("This change alters how it is judged")
    assert lines[header - 1] == (
        "Compared with origin/main 89abcdef01 (merge base): 9 cases timed side by side with it."
    )
    assert "\x1b[1;33mThis change alters" in printed(*output.list_verdicts(judgements, run), color="standard")


def test_verdicts_are_words_in_colour_not_colour_alone(examples):
    run, judgements = examples.small()

    assert "\x1b[1;31mREGRESSED" in printed(*output.list_verdicts(judgements, run), color="standard")
    assert "REGRESSED" in printed(*output.list_verdicts(judgements, run))


def test_without_colour_there_is_none(examples, monkeypatch, capsys):
    run, judgements = examples.small()
    for name, value in {"NO_COLOR": "1", "TTY_COMPATIBLE": "1"}.items():
        monkeypatch.setenv(name, value)

    print_parts(output.list_verdicts(judgements, run))

    assert not re.search(r"\x1b\[(\d+;)*(3|4|9|10)\d", capsys.readouterr().out)


def test_of_many_rows_that_are_fine_some_are_only_counted(examples):
    run, judgements = examples.large(ops=2, cases=50)

    text = printed(*output.list_verdicts(judgements, run), terminal=False)

    assert f"... and {98 - output.FINE_ROWS} PASS more; the report lists them all." in text


def test_the_summary_says_the_exit_code_and_what_strict_does(examples):
    warned = Judgements((examples.judgement("softmax", "n=1", Verdict.STALE, examples.reason("example_new")),))

    assert output.sum_up(warned).text == "1 op, 1 verdict: 1 STALE -> warns (exit 3)"
    assert output.sum_up(warned, strict=True).text == "1 op, 1 verdict: 1 STALE -> warns (exit 2), as --strict asks"


def test_show_tells_verdict_looks_blocks_and_compiled_kernels(examples):
    run, judgements = examples.small()

    text = printed(*details.show_op(cut(run.ops[0], 1), judgements.rows, run), terminal=False)

    assert "softmax on NVIDIA H200, timer activity" in text
    assert "REGRESSED: It is 4.1 % slower" in text
    assert "fresh process 1" in text
    assert text.count("  kernel  ") >= 16
    assert "BLOCK=1024" in text


def shown(examples, name, op, width=160, terminal=False):
    """What `perfci show` prints of an op, case by case."""
    run, judgements = getattr(examples, name)()
    outcome = next((one for one in run.ops if one.op == op), OpRun(op))
    text = printed(*details.show_op(outcome, judgements.rows, run), width=width, terminal=terminal)
    return {part.partition("\n")[0]: part for part in text.strip("\n").split("\n\n")}


def test_show_tells_a_duel_with_its_numbers(examples):
    slow = shown(examples, "duelled", "softmax")["softmax rows=4096,cols=1024,dtype=float16"].splitlines()

    head = next(place for place, line in enumerate(slow) if line.startswith("Duel: kernel against base"))
    assert "REGRESSED  16.0 us  16.7 us" in slow[head + 2]


def test_show_tells_what_a_call_does_and_what_the_change_does_to_it(examples):
    parts = shown(examples, "duelled", "softmax")

    cleared = parts["softmax rows=4096,cols=512,dtype=float16"]
    assert "base 4.02 us" in cleared
    assert "peak memory 19.1 MiB" in cleared
    assert "against the base: _softmax_kernel is launched with warps 8, was 4." in cleared
    assert "a call makes 1 launch, 1 torch operation" in cleared
    assert "4096 x 1 x 1" in cleared
    # It is not repeated among the verdict's reasons.
    assert parts["softmax rows=4096,cols=1024,dtype=float16"].count("is launched with warps") == 1


@pytest.mark.parametrize(("name", "op"), [("duelled", "softmax"), ("duelled", "bias_relu"), ("compiled", "softmax")])
@pytest.mark.parametrize("width", [80, 120])
def test_show_of_duels_and_compiled_kernels_fits_the_terminal(examples, name, op, width):
    lines = "\n".join(shown(examples, name, op, width, terminal=True).values()).splitlines()

    assert max(map(len, lines)) <= width


def test_list_names_every_case_and_what_is_broken(examples):
    broken = PlannedOp("bias_relu", failure=examples.reason("example_raised", error="ImportError", message="no torch"))
    plan = Plan((PlannedOp("softmax", ("n=1", "n=2"), ("n=4096",)), broken), 1, 1.0, "cuda")

    assert printed(*projects.show_ops(plan.ops)).splitlines() == [
        "softmax: 1 performance case, 2 accuracy cases",
        "  n=4096",
        "bias_relu: cannot run",
        "  It raised ImportError: no torch",
    ]


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
        told = printed(*output.list_verdicts(Judgements(tuple(timed))), terminal=False).splitlines()

    told = told[told.index("") :]
    rows = [line for line in told if line.startswith("WRONG")]
    assert all(sum(case in line.split() for line in rows) == 1 for case in ids)
    assert sum(ids[-1] in line for line in told) == 1 + len(rows)
    assert len({cell_len(line) for line in rows if ids[0] in line}) == 1, "columns stand below each other"


def test_acceptances_name_what_was_refused_and_why(examples):
    refused = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(1, 2)")

    text = printed(
        *accept.describe_acceptances([Acceptance("softmax", None, ("n=1", "n=2"), (refused,))]), terminal=False
    )

    assert text.splitlines() == [
        "softmax: 2 cases accepted, 1 refused",
        "  The largest error is 3.20 at (1, 2), beyond the tolerance of 0.0100.",
    ]


# --- statistics: one line here, all of it in the report ---------------------------------------------------------------


def test_of_the_statistics_the_terminal_has_one_line_and_the_report_each_sentence(examples):
    run, judgements = examples.duelled()
    told = [sentence(note) for note in judgements.notes if note.kind in rows.STATISTICS]
    report = markdown.render(make_report(Material(run, judgements, (), find_clocks(run)))).replace("\\", "")

    shown = printed(*output.list_verdicts(judgements, run, "Read on."), terminal=False)

    assert len(told) >= 4
    assert [text for text in told if text in shown] == []
    assert [text for text in told if text not in report] == []
    # 1 % for all duels, and 1 % each for time and span against the baselines.
    assert shown.splitlines()[-1] == "How sure: at most 3.0 % chance of any false alarm. Read on."


def test_without_a_test_nothing_is_said_of_chance(examples):
    run, judgements = examples.compiled()

    assert rows.find_doubt(judgements) is None
    assert "How sure" not in printed(*output.list_verdicts(judgements, run), terminal=False)
