import re
from dataclasses import replace

import pytest

from perfci.core.model import Gate, Judgements, Suite, Verdict
from perfci.core.wording import catalogue, sentence
from perfci.report import rows
from perfci.statistics import exact
from tests import decision_examples as decisions
from tests.decision_examples import again, blocks


def judged(examples, *verdicts, suite=Suite.PERFORMANCE):
    return Judgements(tuple(
        examples.judgement("softmax", f"n={i}", verdict, examples.reason("example_new"), suite=suite)
        for i, verdict in enumerate(verdicts)
    ))  # fmt: skip


def test_what_fails_comes_first_then_what_warns_then_what_is_worth_saying(examples):
    verdicts = (Verdict.PASS, Verdict.STALE, Verdict.NEW, Verdict.WRONG, Verdict.UNCHANGED, Verdict.REGRESSED)

    shown = rows.make_rows(judged(examples, *verdicts))

    assert [row.verdict for row in shown] == [
        Verdict.WRONG, Verdict.REGRESSED, Verdict.STALE, Verdict.NEW, Verdict.PASS, Verdict.UNCHANGED,
    ]  # fmt: skip


def test_an_expected_slow_down_stands_before_all_that_is_fine_and_is_never_quiet(examples):
    shown = rows.make_rows(judged(examples, Verdict.NEW, Verdict.PASS, Verdict.EXPECTED, Verdict.STALE))

    assert [row.verdict for row in shown] == [Verdict.STALE, Verdict.EXPECTED, Verdict.NEW, Verdict.PASS]
    assert [row.aloud for row in shown] == [True, True, False, False]
    assert rows.write_summary(judged(examples, Verdict.PASS, Verdict.EXPECTED)).endswith(
        "1 EXPECTED, 1 PASS -> ok (exit 0)"
    )


def test_one_whose_entry_has_expired_stands_among_what_warns_and_says_so_in_one_breath(examples):
    late = examples.reason("expected_overdue", file="t/op.yaml", line=2, until="2026-01-31", ends="2026-02-14")
    row = examples.judgement("softmax", "n=1", Verdict.EXPECTED, examples.reason("example_new"), more=(late,))
    judgements = Judgements((*judged(examples, Verdict.STALE, Verdict.NEW).rows, replace(row, warns=True)))

    shown = rows.make_rows(judgements)

    assert [row.verdict for row in shown] == [Verdict.STALE, Verdict.EXPECTED, Verdict.NEW]
    assert [row.gate for row in shown] == [Gate.WARNS, Gate.WARNS, Gate.OK]
    assert "t/op.yaml, line 2, expired on 2026-01-31" in shown[1].sentence
    assert rows.write_summary(Judgements(judgements.rows[1:])).endswith("-> warns (exit 3)")


def wrong(examples, cases=40):
    """An op with an accuracy that is WRONG as a whole and in so many cases, and with a speed that was not looked at."""
    failed = examples.reason("accuracy_failed", failed=50, checks=90, cases=cases, case="n=7")
    sevens = examples.reason("wrong_values", case="n=7", error=7.0)
    return Judgements((
        examples.judgement("softmax", None, Verdict.WRONG, failed, suite=Suite.ACCURACY, more=(sevens,)),
        *judged(examples, *[Verdict.WRONG] * cases, suite=Suite.ACCURACY).rows,
        examples.judgement("softmax", None, Verdict.WRONG, examples.reason("not_timed", count=2, case="n=7")),
    ))  # fmt: skip


def test_a_wrong_op_is_one_line_and_one_verdict_however_many_of_its_cases_are_wrong(examples):
    judgements = wrong(examples)
    judgements = replace(judgements, rows=(*judgements.rows, *judged(examples, Verdict.PASS).rows))

    first, _ = rows.make_rows(judgements)

    assert (first.where, first.gathered) == ("accuracy", 1)
    assert all(words in first.sentence for words in ("in 40 cases", "off by 7.00", "2 cases were not timed"))
    assert rows.write_summary(judgements) == "1 op, 2 verdicts: 1 WRONG, 1 PASS -> fails (exit 2)"


def test_wrong_cases_of_an_op_that_is_something_else_as_a_whole_are_told_by_the_worst(examples):
    far = [examples.reason("timed_output_wrong", error=error, atol=1.0) for error in (2.0, 9.0)]
    judgements = Judgements(tuple(
        examples.judgement("softmax", f"n={i}", Verdict.WRONG, reason, suite=Suite.ACCURACY)
        for i, reason in enumerate(far)
    ))  # fmt: skip

    (row,) = rows.make_rows(judgements)

    assert row.where == "accuracy of 2 cases"
    assert "by 9.00" in row.sentence


def test_a_shard_that_gave_no_result_is_one_line_with_its_ops_and_no_op_itself(examples):
    lost = examples.reason("shard_missing", shard="1/2", ops=4)
    names = ("a", "b", "c", "d", "shard 1/2")
    judgements = Judgements(tuple(examples.judgement(op, None, Verdict.ERROR, lost) for op in names))

    (row,) = rows.make_rows(judgements)

    assert (row.op, row.where) == ("shard 1/2", "a, b, c and 1 more")
    assert rows.write_summary(judgements).startswith("4 ops, 4 verdicts: 4 ERROR")


def test_the_change_against_the_base_comes_before_that_against_the_baseline(examples):
    _, judgements = examples.duelled()
    drifted = next(row for row in judgements.rows if row.verdict is Verdict.DRIFTED)

    assert drifted.comparison.screens
    assert rows.find_change(drifted) == exact.to_ratio(drifted.comparison.duel.shift)


@pytest.mark.parametrize(
    "timed",
    [
        blocks(), blocks(1.05), again(1.05), again(1.03, 1.06), again(1.05, 1.0), blocks(1.05) + again(1.0)[10:],
        again(0.95), blocks(0.95) + again(1.0)[10:],
    ],
)  # fmt: skip
def test_the_change_against_a_baseline_is_one_number_in_the_table_and_in_the_sentences(timed):
    row = decisions.row_of(decisions.judged(decisions.run(timed), decisions.baseline()))
    change, first = rows.find_change(row), row.reasons[0]

    assert (first.facts["change"], first.facts["low"], first.facts["high"]) == (change.value, change.low, change.high)
    named = re.findall(r"{(\w+):[+]%}", catalogue()[first.kind])
    if "refuted" in first.kind or "disputed" in first.kind:
        assert "first" in named and "change" not in named
        assert first.facts["first"] == row.comparison.screens[0].change.value
    else:
        assert "change" in named


def test_the_middle_of_three_processes_stands_for_all_of_them():
    row = decisions.row_of(decisions.judged(decisions.run(again(1.05, 1.2)), decisions.baseline()))

    seen = sorted(screen.change.value for screen in row.comparison.screens)
    assert rows.find_change(row).value == seen[1]
    assert "in 3 processes" in sentence(row.reasons[0])
    assert f"by process {seen[0]:+.1%} to {seen[2]:+.1%}".replace("%", " %") in sentence(row.reasons[0])
