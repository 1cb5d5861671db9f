"""Every command that perfci prints works as it is printed: those of the demo, and those of each kind of verdict."""

import shlex
from dataclasses import replace

import pytest

from perfci.cli.main import run as perfci
from perfci.cli.output import list_verdicts
from perfci.core.commands import Reader, reading
from perfci.core.model import Judgement, Judgements, PerformanceCase, Reason, Run, Suite, Verdict
from perfci.report.steps import make_steps, repeat
from tests.cli.rendering import text_of
from tests.decision_examples import (
    BASE,
    again,
    against,
    baseline,
    blocks,
    check,
    duel_plan,
    duelled,
    environment,
    judged,
    plan,
)
from tests.decision_examples import run as make_run
from tests.git_repositories import begin_topic, commit_all, git
from tests.typed import find_commands, parse, split

CASE = "rows=256,cols=128,dtype=float32"
FAILED = check(CASE, failure=Reason("wrong_dtype", {"case": CASE, "got": "float64", "expected": "float32"}))


def type_in(command: str) -> int:
    """Runs a command as a shell would. Returns its exit code."""
    assert shlex.split(command)[0] == "perfci"
    parse(command)
    return perfci(split(command)[1:])


@pytest.mark.nightly
def test_every_command_that_the_demo_prints_works_where_it_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert perfci(["demo", "--keep", "a demo"]) == 2
    out = capsys.readouterr().out

    # What repeats one case comes last: it replaces the run that the others are about.
    commands = sorted(find_commands(out), key=lambda command: " --case " in command)
    told = {command.partition(" --device")[0].partition(" --project")[0]: type_in(command) for command in commands}
    assert told == {
        "perfci check --no-judge": 0,
        "perfci accept --dirty": 2,  # of the mistakes that were planted since
        "perfci check --seed 7": 2,
        "perfci accept --slower --why TEXT": 0,
        "perfci check row_sum --case rows=64,cols=1,dtype=float32 --seed 7": 2,
    }


# --- those of each kind of verdict ------------------------------------------------------------------------------------


def list_examples(base: str):
    """Runs of each kind with what judges them, on the fake device as that of the scratch project."""
    based = replace(BASE, commit=base)
    planned = replace(plan(CASE, accuracy=(CASE,)), device="fake")
    duels = replace(duel_plan(CASE, base=based), device="fake")
    stored = baseline(CASE, key="fake-one")
    now = environment(key="fake-one")

    def timed(blocks, **options):
        return make_run(*([] if blocks is None else [_case(blocks)]), planned=planned, now=now, **options)

    yield timed(blocks()), None  # NEW
    yield timed(again(1.05)), stored  # REGRESSED
    yield timed(blocks(1.05)), stored  # INCONCLUSIVE
    yield timed(blocks(clock=1.05)), stored  # STALE
    yield timed(again(0.95)), stored  # IMPROVED
    yield timed(None, accuracy=(FAILED,)), None  # WRONG
    yield timed(None, accuracy=(), op={"failure": Reason("signing_unconfined", {"name": "KEY"})}), None  # ERROR
    yield make_run(against(duelled(0.05, 0.05), case=CASE), planned=duels, now=now), None  # REGRESSED
    yield make_run(against(duelled(0.0, count=4), case=CASE), planned=duels, now=now), stored
    moved = environment(key="fake-one", driver="590")
    yield make_run(_case(again(1.05)), planned=planned, now=moved), stored  # STALE by the environment


def _case(blocks, **options):
    return PerformanceCase(CASE, blocks=blocks, **options)


ADVISED = [
    *((verdict, Suite.PERFORMANCE, "slower_confirmed") for verdict in Verdict),
    *(
        (verdict, Suite.COMPILED, "compiled_grew")
        for verdict in (Verdict.REGRESSED, Verdict.ERROR, Verdict.INCONCLUSIVE)
    ),
    (Verdict.STALE, Suite.PERFORMANCE, "stale_environment"),
    (Verdict.INCONCLUSIVE, Suite.PERFORMANCE, "control_failed"),
    (Verdict.INCONCLUSIVE, Suite.PERFORMANCE, "duel_undecided"),
    (Verdict.TOO_SLOW, Suite.PERFORMANCE, "bandwidth_low"),
    (Verdict.TOO_SLOW, Suite.PERFORMANCE, "compile_too_slow"),
]
"""Every advice of `perfci.report.steps`, by verdict, suite and kind of reason."""


def advise(run: Run) -> list[str]:
    """The commands of every advice, for a case and for the whole op, and of what repeats the run."""
    rows = [
        Judgement("op", suite, case, verdict, (Reason(kind),), target="sm_90" if suite is Suite.COMPILED else None)
        for verdict, suite, kind in ADVISED
        for case in (CASE, None)
    ]
    steps = [step for row in rows for step in make_steps(run, Judgements((row,)))]
    return [line for command in (*(step.command for step in steps), repeat(run)) for line in command.splitlines()]


CODES = {
    "accept": {0, 2}, "accept --environment": {0, 2}, "bisect": {0, 2, 3}, "check": {0, 2, 3}, "doctor": {0, 3},
    "doctor --selftest": {0, 2, 3}, "history": {0}, "show": {0}, "static": {0, 2, 3}, "thresholds show": {0},
}  # fmt: skip
"""Exit codes that each command may end with here: its failure, 1, is none of them."""


def find_kind(command: str) -> frozenset[str]:
    """What tells kinds of commands apart. One with a case stands for all cases of the op."""
    names = set(" ".join(CODES).split())
    return frozenset(word for word in command.split() if word in names or word.startswith("--")) - {"--case", "--op"}


@pytest.fixture
def scratch(project, monkeypatch):
    """The demo's project with an op named as that of the examples, and a stored baseline. The base's commit."""
    project.copy_op("relu", "op")
    begin_topic(project.root)
    monkeypatch.chdir(project.root)
    project.edit("op", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 321.0")
    base = git(project.root, "rev-parse", "HEAD")
    commit_all(project.root)
    assert perfci(["check", "op", "--device", "fake", "--duel", "none", "--seed", "7"]) in {0, 3}
    assert perfci(["accept"]) == 0
    commit_all(project.root)
    return base


@pytest.mark.nightly  # the demo above prints some of each sort
@pytest.mark.torch
def test_a_command_of_each_kind_works_in_its_project(scratch, project, capsys):
    type_all(find_kind, scratch, project, capsys)


@pytest.mark.torch
@pytest.mark.nightly
def test_every_command_of_a_verdict_works_in_its_project(scratch, project, capsys):
    type_all(str, scratch, project, capsys)


def type_all(tell_apart, scratch, project, capsys):
    """Types the commands of all examples, one of those that `tell_apart` gives one name."""
    commands: dict[object, str] = {}
    for run, stored in list_examples(scratch):
        told = judged(run, stored)
        with reading(Reader(reports=project.root / "reports").asked_for(run)):
            for command in (*find_commands(text_of(list_verdicts(told, run))), *advise(run)):
                parse(command)
                commands[tell_apart(command)] = command

    assert len(commands) > 12
    # A check after what accept has written would be of a tree with uncommitted changes.
    for command in sorted(commands.values(), key=lambda each: not each.startswith("perfci accept")):
        capsys.readouterr()
        code = type_in(command)
        name = next(words for words in sorted(CODES, reverse=True) if command.startswith(f"perfci {words}"))
        assert code in CODES[name], (command, code, capsys.readouterr())
