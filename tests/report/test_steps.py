"""What to type next is made of what the run itself was given."""

import re
from dataclasses import replace

import pytest

from perfci.cli.main import run as perfci
from perfci.cli.output import list_verdicts
from perfci.core.commands import Reader, reading
from perfci.core.model import Judgement, Judgements, OpRun, PlannedOp, Reason, Run, Suite, Verdict
from perfci.report.steps import MOST_ENTRIES, make_steps, repeat
from tests.cli.rendering import lines_of
from tests.decision_examples import BASE, CASE, blocks, environment, plan
from tests.decision_examples import run as make_run


def run_of(*seeds: int | None, command="perfci check", **planned) -> Run:
    """A run of an op for each seed, which it got for itself."""
    names = [f"op{at}" for at in range(len(seeds))]
    ops = tuple(PlannedOp(name, (CASE,), (CASE,)) for name in names)
    results = tuple(OpRun(name, seed=seed) for name, seed in zip(names, seeds, strict=True))
    wanted = replace(plan(), ops=ops, **planned)
    return Run("now", "2026-02-01T00:00:00Z", "0", command, environment(), wanted, results)


@pytest.mark.parametrize(
    ("run", "lines"),
    [
        (run_of(7), ["perfci check op0 --seed 7"]),
        (run_of(7, 7), ["perfci check op0 op1 --seed 7"]),
        (run_of(7, 8), ["perfci check op0 --seed 7", "perfci check op1 --seed 8"]),
        (run_of(7, 8, None), ["perfci check op0 --seed 7", "perfci check op1 --seed 8", "perfci check op2"]),
        (run_of(7, device="fake"), ["perfci check op0 --seed 7 --device fake"]),
        (run_of(7, command="perfci check --device cpu"), ["perfci check op0 --seed 7 --device cpu"]),
        (run_of(7, command="perfci check --timer=event"), ["perfci check op0 --seed 7 --timer event"]),
        (run_of(7, suites=(Suite.ACCURACY,)), ["perfci check op0 --seed 7 --suite accuracy"]),
        (run_of(7, budget_s=4.0), ["perfci check op0 --seed 7 --budget 4.00"]),
        (run_of(7, filter="dtype=*", peers=True), ["perfci check op0 --case 'dtype=*' --seed 7 --backend all"]),
        (run_of(7, thresholds={"tau": "2 %"}), ["perfci check op0 --seed 7 --threshold 'tau=2 %'"]),
        (run_of(7, base=replace(BASE, python="/a b/python")),
         ["perfci check op0 --seed 7 --against 0123456789ab --base-python '/a b/python'"]),
    ],
)  # fmt: skip
def test_a_run_is_repeated_with_all_that_it_was_given(run, lines):
    assert repeat(run).splitlines() == lines
    with reading(Reader(project="../kernels")):
        assert repeat(run).splitlines() == [f"{line} --project ../kernels" for line in lines]


def test_of_many_ops_with_a_seed_each_the_first_are_repeated_and_the_others_counted():
    lines = repeat(run_of(*range(MOST_ENTRIES + 3))).splitlines()

    assert len(lines) == MOST_ENTRIES + 1
    assert lines[-1] == "# Ops that are left out here: 3; run.json has the seed of each."


def test_two_commands_are_two_lines_of_which_each_can_be_typed():
    run = make_run(blocks())
    row = Judgement("op", Suite.PERFORMANCE, CASE, Verdict.INCONCLUSIVE, (Reason("duel_undecided"),))

    shown = [line for line in lines_of(list_verdicts(Judgements((row,)), run)) if line.startswith("Next: ")]

    assert shown == ["Next: perfci doctor", f"Next: perfci check op --case {CASE}"]


def test_answers_that_show_nothing_ask_for_no_more_time():
    row = Judgement("op", Suite.ACCURACY, None, Verdict.INCONCLUSIVE, (Reason("vacuous_answers"),))

    assert not make_steps(make_run(blocks()), Judgements((row,)))


def test_where_only_a_device_can_tell_the_device_of_this_run_is_not_named():
    run = run_of(7, command="perfci check --device cpu", device="cpu")
    rows = [
        Judgement("op0", suite, CASE, Verdict.INCONCLUSIVE, (Reason("x"),), target="sm_90")
        for suite in (Suite.COMPILED, Suite.PERFORMANCE)
    ]
    compiled, timed = (make_steps(run, Judgements((row,)))[0].command.splitlines()[-1] for row in rows)

    assert compiled == f"perfci check op0 --case {CASE}"
    assert timed == f"perfci check op0 --case {CASE} --budget 4.00 --device cpu"


def test_a_run_that_is_compared_is_the_one_that_is_shown_next(tmp_path, monkeypatch, capsys):
    """It may lie anywhere. That of the project is found without being named."""
    monkeypatch.chdir(tmp_path)
    for command in (["demo", "--keep", "demo"], ["compare", "demo/reports", "--project", "demo"]):
        assert perfci(command) == 2
    (tmp_path / "demo" / "reports").rename(tmp_path / "an old run")
    capsys.readouterr()

    assert perfci(["compare", "an old run", "--project", "demo", "--op", "scale"]) == 2

    out = capsys.readouterr().out
    case = r"rows=\d+,cols=128,dtype=float32"
    assert re.search(rf"^Next: perfci show 'an old run' --op scale --case {case} --project demo$", out, re.MULTILINE)
    assert "`perfci accept 'an old run' --slower --why TEXT --project demo`" in out
