from perfci.model import Judgements, Suite, Verdict
from perfci.report import rows


def judged(examples, *verdicts, suite=Suite.PERFORMANCE):
    return Judgements(tuple(
        examples.judgement("softmax", f"n={i}", verdict, examples.reason("example_new"), suite=suite)
        for i, verdict in enumerate(verdicts)
    ))  # fmt: skip


def test_what_fails_comes_first_then_what_warns_then_what_is_worth_saying(examples):
    verdicts = (Verdict.PASS, Verdict.STALE, Verdict.NEW, Verdict.WRONG, Verdict.UNCHANGED, Verdict.REGRESSED)

    shown = rows.rows(judged(examples, *verdicts))

    assert [row.verdict for row in shown] == [
        Verdict.WRONG, Verdict.REGRESSED, Verdict.STALE, Verdict.NEW, Verdict.PASS, Verdict.UNCHANGED,
    ]  # fmt: skip


def test_accuracy_cases_that_are_right_are_one_row(examples):
    shown = rows.rows(judged(examples, *[Verdict.PASS] * 40, suite=Suite.ACCURACY))

    assert [(row.where, row.gathered) for row in shown] == [("accuracy of 40 cases", 40)]


def test_accuracy_cases_that_are_wrong_are_told_one_by_one_up_to_a_limit(examples):
    shown = rows.rows(judged(examples, *[Verdict.WRONG] * 40, suite=Suite.ACCURACY))

    assert len(shown) == rows.ACCURACY_ROWS + 1
    assert shown[-1].sentence == "37 more accuracy cases are WRONG; the report and `perfci show` have them."


def test_the_summary_counts_every_verdict_and_names_the_exit_code(examples):
    found = judged(examples, *[Verdict.PASS] * 28, Verdict.REGRESSED, Verdict.NEW)

    assert rows.summary(found) == "1 op, 30 verdicts: 1 REGRESSED, 1 NEW, 28 PASS -> fails (exit 2)"


def test_warnings_alone_exit_with_3(examples):
    assert rows.summary(judged(examples, Verdict.STALE)) == "1 op, 1 verdict: 1 STALE -> warns (exit 3)"


def test_the_change_shown_is_that_of_the_last_process(examples):
    _, judgements = examples.small()
    slow = judgements.rows[-1]

    assert rows.latest_change(slow) == slow.comparison.screens[1].change
