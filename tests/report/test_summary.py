from dataclasses import replace

import pytest

from perfci.core.model import Judgements, Limits, Reason, Suite, Verdict
from perfci.report import frame, markdown, summary, text


def bullets(run, judgements):
    summarise = summary.summarise(run, judgements, frame.find_clocks(run), frame.pool_spreads(run))
    return tuple(map(markdown.write, summarise))


def line(lines, word):
    return next((line for line in lines if line.startswith(f"**{word}**")), None)


def judged(examples, *rows):
    """(op, case, verdict, change, speedup)"""
    made = [
        examples.judgement(
            op, case, verdict, examples.reason("example_same"),
            examples.comparison(op, examples.performance_case(case, 10.0), change, speedup=speedup),
        )
        for op, case, verdict, change, speedup in rows
    ]  # fmt: skip
    return Judgements(tuple(made))


def since(name="num_stages", before="4", after="3", more="", kind="cause_since"):
    return Reason(kind, {"name": name, "before": before, "after": after, "more": more})


def regressed(examples, op, changes, *causes, verdict=Verdict.REGRESSED):
    """Judgements of cases with these changes, each with the cause at its place, if there is one."""
    return [
        examples.judgement(
            op, f"n={at}", verdict, Reason("slower_confirmed"),
            examples.comparison(op, examples.performance_case(f"n={at}", 10.0), change),
            more=causes[at : at + 1],
        )
        for at, change in enumerate(changes)
    ]  # fmt: skip


def head(examples, *judged):
    head = summary.make_head(examples.run([]), Judgements(tuple(judged)))
    return [text.spell(sentence) for sentence in head.sentences], [
        tuple(map(text.spell, row)) for row in head.table.rows
    ]


def test_the_first_sentence_has_what_how_much_in_how_many_cases_and_why(examples):
    slow = regressed(examples, "matmul", (0.114, 0.166, 0.147), *[since()] * 3)
    fine = judged(examples, ("matmul", "n=9", Verdict.PASS, 0.0, 1.5)).rows

    sentences, rows = head(examples, *slow, *fine)

    assert sentences == [
        "matmul is 11 to 17 % slower in 3 of 4 cases, since num_stages went from 4 to 3.",
        "The gate fails (exit code 2): 3 REGRESSED, 1 PASS, in 1 op.",
    ]
    assert [row[:2] for row in rows] == [("REGRESSED", "`matmul` 3 of 4 cases")]
    assert rows[0][-1] == "+11 to +17 %"


def test_each_cause_has_a_row_and_what_cannot_be_called_one_is_said_to_come_with_it(examples):
    slow = regressed(examples, "matmul", (0.05, 0.07), since(), since("BLOCK", "64", "128", kind="cause_with"))

    sentences, rows = head(examples, *slow)

    assert [row[1] for row in rows] == ["`matmul` 1 of 2 cases"] * 2
    assert sentences[0] == "matmul is 5.0 % slower in 1 of 2 cases, since num_stages went from 4 to 3."
    sentences, _ = head(examples, slow[1])
    assert sentences[0] == "matmul is 7.0 % slower in its only case, with BLOCK 128 instead of 64."


def test_cases_that_are_slower_share_a_row_whatever_else_their_reasons_tell(examples):
    slow = regressed(examples, "matmul", (0.37, 0.48), *[since()] * 2)
    at_the_power_limit = Reason("duel_slower_limited", slow[1].reasons[0].facts)
    slow[1] = replace(slow[1], reasons=(at_the_power_limit, *slow[1].reasons[1:]))

    sentences, rows = head(examples, *slow)

    assert sentences[0] == "matmul is 37 to 48 % slower in all 2 cases, since num_stages went from 4 to 3."
    assert len(rows) == 1


def test_faster_cases_are_told_if_nothing_fails(examples):
    sentences, rows = head(examples, *regressed(examples, "a", (-0.05, -0.02), verdict=Verdict.IMPROVED))

    assert sentences[0] == "a is 2 to 5 % faster in all 2 cases."
    assert rows[0][-1] == "-5 to -2 %"


def test_what_is_wrong_comes_before_what_is_slow_and_says_its_pattern(examples):
    wrong = examples.judgement(
        "row_sum", None, Verdict.WRONG, Reason("accuracy_failed", {"case": "n=1"}), suite=Suite.ACCURACY,
        more=(Reason("wrong_values", {"case": "n=1"}), Reason("pattern_everywhere", {"op": "row_sum"})),
    )  # fmt: skip

    sentences, rows = head(examples, *regressed(examples, "a", (0.05,)), wrong)

    assert sentences[0] == "row_sum is wrong for every size and dtype: check the formula."
    assert [row[:2] for row in rows] == [("WRONG", "`row_sum` accuracy"), ("REGRESSED", "`a` its only case")]


def test_a_wrong_op_that_crashed_has_one_row_with_the_pattern_and_the_crash(examples):
    outside = Reason("pattern_outside", {"op": "a", "far": 1, "side": "past the end"})
    crash = Reason("worker_died", {"op": "a", "signal": "SIGABRT"})
    whole = examples.judgement("a", None, Verdict.WRONG, Reason("accuracy_failed"), suite=Suite.ACCURACY,
                               more=(Reason("wrote_outside"), outside, crash))  # fmt: skip
    cases = [
        examples.judgement("a", f"n={at}", Verdict.WRONG, Reason("wrote_outside", {"case": f"n={at}"}),
                           suite=Suite.ACCURACY) for at in (1, 2)
    ]  # fmt: skip

    head = summary.make_head(examples.run([]), Judgements((whole, *cases)))

    told = "a writes outside its arrays, up to 1 element past the end: check the mask, the strides and the grid."
    assert text.spell(head.sentences[0]) == told
    assert len(head.reasons) == 1
    assert "a crashed with SIGABRT" in text.spell(head.reasons[0])
    assert not any(told in text.spell(reason) for reason in head.reasons)  # it is shown already


def test_without_a_cause_its_own_reason_is_told(examples):
    stale = examples.judgement("a", "n=1", Verdict.STALE, examples.reason("example_new"))

    sentences, _ = head(examples, stale)

    assert sentences[0].startswith("a: STALE in its only case. Nothing is stored to compare it with")


def test_cases_that_compile_to_other_figures_are_counted_together(examples):
    """They share a line of the verdict table if their figures are the same."""
    grown = [
        replace(examples.judgement("a", f"n={at}", Verdict.REGRESSED, Reason("compiled_grew", {"now": 60 + at // 2}),
                                   suite=Suite.COMPILED), target="sm_90")
        for at in range(5)
    ]  # fmt: skip
    fine = replace(examples.judgement("a", "n=9", Verdict.PASS, examples.reason("example_same")), target="sm_90",
                   suite=Suite.COMPILED)  # fmt: skip

    sentences, rows = head(examples, *grown, fine)

    assert [row[:2] for row in rows] == [("REGRESSED", "`a` compiled for sm_90, 5 of 6 cases")]
    assert sentences[0].startswith("a compiled for sm_90: REGRESSED in 5 of 6 cases. ")


def test_what_a_failed_check_did_is_told_before_how_many_failed(examples):
    crash = examples.judgement(
        "a", None, Verdict.ERROR, Reason("accuracy_failed", {"case": "n=1"}), suite=Suite.ACCURACY,
        more=(Reason("kernel_raised", {"case": "n=1", "error": "RuntimeError", "message": "out of memory"}),),
    )  # fmt: skip

    sentences, _ = head(examples, crash)

    assert sentences[0].startswith("a: ERROR. ")
    assert "RuntimeError" in sentences[0]


def test_what_is_slower_by_something_else_than_device_time_does_not_name_the_change_of_that(examples):
    case = examples.performance_case("n=1", 10.0)
    host = examples.judgement("a", "n=1", Verdict.REGRESSED, Reason("duel_host_slower"), examples.comparison("a", case))

    sentences, rows = head(examples, host)

    assert sentences[0].startswith("a: REGRESSED in its only case. ")
    assert "%" not in rows[0][-1]


@pytest.mark.parametrize(
    ("kind", "facts", "number"),
    [
        ("bandwidth_low", {"share": 0.712}, "71.2 % of the copy"),
        ("compile_too_slow", {"seconds": 12.34}, "first call 12.3 s"),
    ],
)
def test_what_is_too_slow_by_another_figure_than_its_speedup_is_told_by_that(examples, kind, facts, number):
    case = examples.performance_case("n=3", 10.0)

    _, rows = head(
        examples, examples.judgement("a", "n=3", Verdict.TOO_SLOW, Reason(kind, facts), examples.comparison("a", case))
    )

    assert rows[0][-1] == number


@pytest.mark.parametrize("name", ["small", "full", "duelled", "on_cpu", "stopped", "failed_op", "compiled", "large"])
def test_a_head_has_few_sentences_a_narrow_table_and_a_command(examples, name):
    run, judgements = getattr(examples, name)()

    head = summary.make_head(run, judgements)

    assert len(head.sentences) <= 2
    assert len(head.table.columns) <= 5
    assert len(head.table.rows) == len(head.reasons) == len(head.gates)
    assert max((len(cell) for row in head.table.rows for cell in row), default=0) < 50
    assert head.step is None or head.step.command.startswith(("perfci ", "git diff "))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stopped": "SIGINT"}, "stopped early by SIGINT"),
        ({"dirty": True}, "the work tree had uncommitted changes"),
        (
            {"variables": {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "2"}},
            "set in the environment: `CUDA_LAUNCH_BLOCKING`",
        ),
        ({"throttle": ("thermal",)}, "thermal held the clock down in 8 of 24 blocks"),
        ({"foreign_processes": 2}, "up to 2 processes of others on the device"),
        ({"board": "GPU-1"}, "measured on several boards"),
    ],
)
def test_what_makes_a_run_unlike_others_is_told(examples, changes, told):
    run, judgements = examples.small()
    op, first = run.ops[0], run.ops[0].performance[0]
    if changes.keys() & {"dirty", "variables"}:
        run = replace(run, environment=replace(run.environment, **changes))
    elif changes.keys() & {"stopped"}:
        run = replace(run, **changes)
    else:
        moved = changes.keys() & {"board"}
        blocks = tuple(
            replace(block, **changes) if moved else replace(block, state=replace(block.state, **changes))
            for block in first.blocks
        )
        cases = (replace(first, blocks=blocks), *op.performance[1:])
        run = replace(run, ops=(replace(op, performance=cases),))

    assert line(bullets(run, judgements), "Take care") == f"**Take care**: {told}."


def test_the_mean_over_all_cases_names_the_best_and_the_worst_case(examples):
    run, judgements = examples.duelled()

    told = line(bullets(run, judgements), "Speedup")

    timed = [row for row in judgements.rows if row.comparison and row.comparison.speedup]
    worst, best = (end(timed, key=lambda row: row.comparison.speedup.value) for end in (min, max))
    assert f"at `{best.op}` `{best.case}`, lowest" in told
    assert told.endswith(f"at `{worst.op}` `{worst.case}`.")


def test_the_accuracy_line_counts_checks_and_names_what_is_nearest_to_what_is_allowed(examples):
    run, judgements = examples.small()
    [op] = run.ops
    first, second, *rest = op.accuracy
    near = replace(first, values="tiny", errors=replace(first.errors, of_allowed=0.7))
    wrong = replace(second, failure=Reason("boom"), errors=replace(second.errors, of_allowed=None))
    op = replace(op, accuracy=(near, wrong, replace(rest[0], unchecked=Reason("boom")), *rest[1:]))

    lines = bullets(replace(run, ops=(op,)), judgements)

    assert line(lines, "Accuracy") == (
        f"**Accuracy**: 7 of 8 accuracy checks pass. Nearest to what is allowed: 70.0 % at `softmax` `{first.case}`, "
        "tiny values."
    )
    assert line(bullets(replace(run, ops=(replace(op, accuracy=()),)), judgements), "Accuracy") is None


def test_the_share_of_the_ceiling_names_the_best_kernel_and_leaves_out_what_is_unsound(examples):
    run, judgements = examples.small()
    [op] = run.ops
    fast, slow = op.performance
    fast = replace(fast, bytes_moved=round(4180e3 * 0.9 * frame_us(fast)))
    slow = replace(slow, bytes_moved=round(4180e3 * 0.4 * frame_us(slow)))
    run = replace(run, ops=(replace(op, performance=(fast, slow)),))

    told = line(bullets(run, judgements), "Share of the ceiling")
    assert told.endswith(
        f"geometric mean of 2 cases: 60.0 %; best 90.0 % at `softmax` `{fast.case}`, lowest 40.0 % at `softmax` "
        f"`{slow.case}`."
    )
    suspect = replace(judgements, rows=tuple(replace(row, verdict=Verdict.SUSPECT) if row.case == slow.case else row
                                             for row in judgements.rows))  # fmt: skip
    assert line(bullets(run, suspect), "Share of the ceiling").endswith("geometric mean of 1 case: 90.0 %.")
    assert line(bullets(replace(run, limits=Limits()), judgements), "Share of the ceiling") is None


def frame_us(case):
    return next(frame.pool_case("softmax", case)).p50_us
