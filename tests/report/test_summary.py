from dataclasses import replace

import pytest

from perfci.core.model import Judgements, Reason, Verdict
from perfci.report import frame, markdown, summary


def bullets(run, judgements):
    found = summary.summarise(run, judgements, frame.find_clocks(run))
    return tuple(map(markdown.write, found))


def line(found, word):
    return next((line for line in found if line.startswith(f"**{word}**")), None)


def judged(examples, *rows):
    """(op, case, verdict, change, speedup)"""
    found = [
        examples.judgement(
            op, case, verdict, examples.reason("example_same"),
            examples.comparison(op, examples.performance_case(case, 10.0), change, speedup=speedup),
        )
        for op, case, verdict, change, speedup in rows
    ]  # fmt: skip
    return Judgements(tuple(found))


def test_what_fails_is_counted_and_the_worst_named_with_its_number(examples):
    found = judged(
        examples,
        ("a", "n=1", Verdict.REGRESSED, 0.03, 1.5),
        ("b", "n=2", Verdict.REGRESSED, 0.08, 1.5),
        ("a", "n=3", Verdict.TOO_SLOW, 0.0, 0.7),
    )

    told = line(bullets(examples.run([]), found), "Fails")

    assert told == "**Fails**: 2 REGRESSED: `b` `n=2` +8.0 % and 1 more; 1 TOO_SLOW: `a` `n=3` 0.700x."


@pytest.mark.parametrize(
    ("kind", "facts", "number"),
    [
        ("bandwidth_low", {"share": 0.712}, "71.2 % of the copy"),
        ("compile_too_slow", {"seconds": 12.34}, "first call 12.3 s"),
    ],
)
def test_what_is_too_slow_by_another_figure_than_its_speedup_is_told_by_that(examples, kind, facts, number):
    case = examples.performance_case("n=3", 10.0)
    row = examples.judgement("a", "n=3", Verdict.TOO_SLOW, Reason(kind, facts), examples.comparison("a", case, 0.0))

    told = line(bullets(examples.run([]), Judgements((row,))), "Fails")

    assert told == f"**Fails**: 1 TOO_SLOW: `a` `n=3` {number}."


def test_warnings_and_expected_slow_downs_have_lines_of_their_own(examples):
    rows = [(op, "n=1", Verdict.INCONCLUSIVE, 0.0, 1.5) for op in "abc"]
    rows += [("a", "n=2", Verdict.STALE, None, 1.5), ("a", "n=3", Verdict.EXPECTED, 0.06, 1.5)]

    found = bullets(examples.run([]), judged(examples, *rows))

    assert line(found, "Warns") == "**Warns**: 3 INCONCLUSIVE: `a` `n=1` and 2 more; 1 STALE: `a` `n=2`."
    assert line(found, "Slower as expected") == "**Slower as expected**: 1 EXPECTED: `a` `n=3` +6.0 %."


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
        own = changes.keys() & {"board"}
        blocks = tuple(
            replace(block, **changes) if own else replace(block, state=replace(block.state, **changes))
            for block in first.blocks
        )
        cases = (replace(first, blocks=blocks), *op.performance[1:])
        run = replace(run, ops=(replace(op, performance=cases),))

    assert line(bullets(run, judgements), "Take care") == f"**Take care**: {told}."


def test_means_over_all_cases_name_the_worst_case(examples):
    run, judgements = examples.duelled()

    found = bullets(run, judgements)

    duels = [row for row in judgements.rows if row.comparison and row.comparison.duel]
    slowest = max(duels, key=lambda row: row.comparison.duel.shift.value)
    lowest = min(
        (row for row in judgements.rows if row.comparison and row.comparison.speedup),
        key=lambda row: row.comparison.speedup.value,
    )
    assert f"geometric mean of {len(duels)} cases" in line(found, "Change")
    assert line(found, "Change").endswith(f"at `{slowest.op}` `{slowest.case}`.")
    assert line(found, "Speedup").endswith(f"at `{lowest.op}` `{lowest.case}`.")


def test_without_a_duel_there_is_no_mean_of_changes(examples):
    assert line(bullets(*examples.small()), "Change") is None
