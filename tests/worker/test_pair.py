"""Two workers that take turns: the referee's rules with sides that are scripts, then real processes that go wrong."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time

import pytest

from perfci.core.model.basics import Reason
from perfci.core.model.compiled import Identity
from perfci.core.model.measured import ArmBlock, Block, Measured, PerformanceCase, Summary
from perfci.core.model.place import DeviceState
from perfci.core.model.run import DuelWhat
from perfci.core.stopping import Stopped
from perfci.measure.blocks import FIRST_BLOCKS
from perfci.ops.identity import DuelPlan
from perfci.statistics import duel_rule
from perfci.worker import process
from perfci.worker.pair import BASE, BEGIN, HEAD, PairSide, Referee, working_in_turns
from perfci.worker.protocol import (
    Doing,
    Finished,
    Holding,
    OpDone,
    Prepared,
    Timing,
    Turn,
    TurnAsked,
)
from perfci.worker.tasks import WorkerEnvironment
from tests.processes import runs
from tests.worker.task_examples import make_task

A, B = "rows=1", "rows=2"
DIED = Reason("worker_died", {"op": "relu", "where": "measure", "signal": "SIGSEGV", "words": "x", "log": "y"})


def summary(us):
    return Summary(3, us, us, us, us, us, us, us, us, 0.0, 0)


def measured(side, case, index, us=100.0, state=None):
    """A block of head, with a kernel that takes `us`, or of the base."""
    arms = {"base": us} if side == BASE else {"kernel": us, "reference": 150.0}
    block = Block(
        index,
        0,
        float(index),
        {arm: ArmBlock(summary(time_us)) for arm, time_us in arms.items()},
        {} if side == BASE else {"kernel/reference": -0.4},
        state or DeviceState(1980),
    )
    return Measured(case, block, {arm: (time_us,) * 3 for arm, time_us in arms.items()})


def prepared(side, case, **facts):
    operations = ("work 10 us",) if side == HEAD else ("work 11 us",)
    fields = {"identity": Identity(operations, inputs="same"), "peak_bytes": 7} | facts
    return PerformanceCase(case, **fields)


class Player:
    """One side: prepares its cases, measures the requested blocks, and ends."""

    def __init__(self, side, cases):
        self.side = side
        self.cases = {case: prepared(side, case) for case in cases}
        self.us = lambda case, index: 100.0
        self.timer = "virtual"
        self.breaks = {}
        """case -> (number of the block that it fails at, why)"""
        self.dies_at = None
        """number of the turn in which it dies"""
        self.taken = []

    def start(self):
        begin = [TurnAsked()] if self.side == BASE else [Holding(), Timing("virtual"), *self._prepared()]
        return begin if self.side == BASE else [*begin, TurnAsked()]

    def _prepared(self):
        return [Prepared(case) for case in self.cases.values()]

    def take(self, turn):
        """Its messages in a turn; None if it dies."""
        if turn.index == BEGIN:
            return [
                Holding(),
                Timing(self.timer),
                Doing("prepare", "relu", A),
                *self._prepared(),
                TurnAsked(),
            ]
        if turn.index == self.dies_at:
            return None
        self.taken.append((turn.index, turn.cases))
        if not turn.cases:
            return [*(Finished(self._ended(case)) for case in self.cases), OpDone()]
        return [
            *(
                measured(self.side, case, turn.index, self.us(case, turn.index))
                for case in turn.cases
                if case in self.cases and turn.index < self.breaks.get(case, (99,))[0]
            ),
            TurnAsked(),
        ]

    def _ended(self, case):
        facts = self.cases[case]
        if case not in self.breaks or facts.failure:
            return facts
        return dataclasses.replace(facts, failure=self.breaks[case][1], raised=True)


class Match:
    """Both sides and the referee between them."""

    def __init__(self, head=(A,), base=(A,), **rules):
        fields = {name: rules.pop(name) for name in ("process", "limits") if name in rules}
        self.task = make_task(**fields)
        self.plan = DuelPlan(tuple(base), **rules)
        self.heard = []
        self.referee = self.make_referee()
        self.players = {HEAD: Player(HEAD, head), BASE: Player(BASE, base)}
        self.log = []
        """(side, turn) in the order in which they were let go, those without a block left out"""

    def make_referee(self):
        return Referee(self.task, self.plan, self.heard.append)

    def play(self):
        self._say(HEAD, self.players[HEAD].start())
        self._say(BASE, self.players[BASE].start())
        while granted := list(self.referee.turns()):
            for side, turn in granted:
                self.log += [(side, turn.index)] if turn.cases else []
                self._say(side, self.players[side].take(turn))
        self.referee.close()
        return self

    def _say(self, side, messages):
        if messages is None:
            self.referee.note_end(side, DIED)
            return
        for message in messages:
            self.referee.hear(side, message)
        if OpDone() in messages:
            self.referee.note_end(side, None)

    def blocks(self, case=A):
        return [message.block for message in self.heard if isinstance(message, Measured) and message.case == case]

    def arm(self, case=A):
        """The base's arm as the case ended."""
        return next(m.case.base for m in reversed(self.heard) if isinstance(m, Finished) and m.case.case == case)


def slower(ratio):
    return lambda case, index: 100.0 * ratio


# --- which worker has the turn ----------------------------------------------------------------------------------------


def test_the_base_waits_until_head_has_prepared_its_cases():
    match = Match()
    match._say(BASE, [TurnAsked()])
    assert list(match.referee.turns()) == []

    match._say(HEAD, [Holding(), Timing("virtual"), Prepared(prepared(HEAD, A))])
    assert match.referee.ready
    assert list(match.referee.turns()) == []

    match._say(HEAD, [TurnAsked()])
    assert list(match.referee.turns()) == [(BASE, Turn(BEGIN, ()))]
    assert list(match.referee.turns()) == []


def test_both_sides_are_given_a_turn_at_once_and_the_next_one_when_both_have_ended_it():
    match = Match(head=(A, B), base=(A,))
    match._say(HEAD, match.players[HEAD].start())
    match._say(BASE, match.players[BASE].start())
    ((_, begin),) = match.referee.turns()
    match._say(BASE, match.players[BASE].take(begin))

    # The base knows one case of two, and head is told which one is taken by both.
    assert sorted(match.referee.turns()) == [(BASE, Turn(0, (A,), (A,))), (HEAD, Turn(0, (A, B), (A,)))]
    match._say(HEAD, match.players[HEAD].take(Turn(0, (A, B), (A,))))
    assert list(match.referee.turns()) == []
    match._say(BASE, match.players[BASE].take(Turn(0, (A,), (A,))))
    assert sorted(side for side, _ in match.referee.turns()) == [BASE, HEAD]


def test_blocks_are_paired_by_their_number_into_blocks_of_all_arms():
    match = Match()
    match.players[HEAD].us = lambda case, index: 100.0 + index / 100
    match.play()

    for index, block in enumerate(match.blocks()):
        assert block.index == index
        assert block.arms.keys() == {"kernel", "reference", "base"}
        assert block.arms["kernel"].time.median_us == 100.0 + index / 100
        assert block.arms["base"].time.median_us == 100.0
        assert block.shifts.keys() == {"kernel/reference", "kernel/base"}
        assert block.shifts["kernel/base"] == pytest.approx(index / 1e4, rel=1e-2, abs=1e-12)
    told = next(message for message in match.heard if isinstance(message, Measured))
    assert told.launches_us == {"kernel": (100.0,) * 3, "reference": (150.0,) * 3, "base": (100.0,) * 3}


# --- how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("ratio", [1.0, 1.02, 0.98])
def test_no_look_of_one_process_ends_a_duel(ratio, process):
    match = Match(process=process)
    match.players[HEAD].us = slower(ratio)

    assert len(match.play().blocks()) == duel_rule.BLOCKS
    assert match.arm().turns


# --- what is duelled --------------------------------------------------------------------------------------------------


def same_work(match):
    match.players[BASE].cases[A] = prepared(HEAD, A)


@pytest.mark.parametrize(
    ("same", "rules", "duelled", "blocks"),
    [
        (False, {}, True, 12),
        (True, {}, False, 0),
        (True, {"skip_unchanged": False}, False, FIRST_BLOCKS),
        (True, {"duel": DuelWhat.ALL}, True, 12),
        (True, {"audit": (A,)}, True, 12),
        (True, {"audit": (B,)}, False, 0),
        (False, {"duel": DuelWhat.NONE}, False, FIRST_BLOCKS),
        (True, {"duel": DuelWhat.NONE, "skip_unchanged": False}, False, FIRST_BLOCKS),
        (True, {"by_identity": False}, True, 12),
    ],
)
def test_what_is_duelled_follows_from_the_work_and_from_what_was_asked_for(same, rules, duelled, blocks):
    match = Match(**rules)
    if same:
        same_work(match)
    match.play()

    arm = match.arm()
    assert (arm.duelled, len(match.blocks())) == (duelled, blocks)
    assert arm.same is (same if match.plan.by_identity else None)
    assert all(("base" in block.arms) is duelled for block in match.blocks())


# --- one side fails on a case -----------------------------------------------------------------------------------------

RAISED = Reason(
    "kernel_raised", {"case": A, "error": "RuntimeError", "message": "no stream", "file": "a.py", "line": 3}
)


@pytest.mark.parametrize("at", [0, 1, 2, 7, 10])
def test_a_base_that_fails_while_it_is_timed_loses_none_of_heads_blocks(at):
    match = Match(head=(A, B), base=(A, B))
    match.players[HEAD].us = slower(1.02)
    match.players[BASE].breaks = {A: (at, RAISED)}
    match.play()

    assert match.arm(A).failure == Reason("base_raised", RAISED.facts)
    # The block that it failed at was taken by head already, or by then.
    assert [block.index for block in match.blocks(A)] == list(range(max(at + 1, FIRST_BLOCKS)))
    assert ["base" in block.arms for block in match.blocks(A)].count(True) == at
    assert (match.arm(B).failure, len(match.blocks(B))) == (None, duel_rule.BLOCKS)


# --- one side dies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [0, 1, 2, 7, 11])
def test_a_base_that_dies_while_it_is_timed_loses_none_of_heads_blocks(turn):
    """In even turns head has taken its block of the turn before, in odd ones it has not."""
    match = Match()
    match.players[HEAD].us = slower(1.02)
    match.players[BASE].dies_at = turn
    match.play()

    assert match.arm().failure.kind == "base_died"
    assert ["base" in block.arms for block in match.blocks()].count(True) == turn
    indices = [block.index for block in match.blocks()]
    assert indices == list(range(len(indices)))
    assert len(indices) >= FIRST_BLOCKS


# --- processes --------------------------------------------------------------------------------------------------------

WORKER = """
import os, signal, sys, time
from perfci.core.codec import decode
from perfci.core.model import *
from perfci.worker.protocol import *
from perfci.worker.tasks import unpack_task
task, events = unpack_task(sys.stdin.readline())
arm = task.opening.arm
open(f"{arm}.pid", "w").write(str(os.getpid()))
def say(message):
    os.write(events, pack(message))
def ask():
    say(TurnAsked())
    return decode(sys.stdin.readline(), Turn)
def summary(us):
    return Summary(3, us, us, us, us, us, us, us, us, 0.0, 0)
def run():
    base = arm == "base"
    if base:
        ask()
    say(Ready(Device("fake", "Fake One", "fake-one")))
    say(Holding())
    say(Timing("virtual"))
    case = PerformanceCase("rows=1", identity=Identity((arm,), inputs="same"))
    say(Prepared(case))
    while (turn := ask()).cases:
        misbehave(turn.index)
        arms = {"base": 100.0} if base else {"kernel": 102.0, "reference": 150.0}
        block = Block(turn.index, 0, 0.0, {arm: ArmBlock(summary(us)) for arm, us in arms.items()}, {})
        say(Doing("measure", "relu", "rows=1"))
        say(Measured("rows=1", block, {arm: (us,) * 3 for arm, us in arms.items()}))
    say(Finished(case))
    say(OpDone())
"""
WELL = "def misbehave(turn): pass\nrun()\n"


class Pair:
    """`working_in_turns` on scripts in the place of both workers."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.heard = []
        start = subprocess.Popen

        def popen(command, **options):
            return start([sys.executable, str(options["cwd"] / "worker.py")], **options)

        monkeypatch.setattr(process.subprocess, "Popen", popen)

    def run(self, head=WELL, base=WELL, limit_s=20.0, listener=None):
        sides = []
        for name, arm, script in ((HEAD, "kernel", head), (BASE, "base", base)):
            place = self.folder / name
            place.mkdir()
            (place / "worker.py").write_text(WORKER + script)
            around = WorkerEnvironment(dict(os.environ), place, place / "log", limit_s)
            sides.append(PairSide(make_task(arm=arm), around))
        with contextlib.closing(working_in_turns(*sides, DuelPlan((A,)), listener or self.heard.append)) as working:
            while True:
                try:
                    workers = next(working)
                except StopIteration as end:
                    return end.value
                process.wait(workers)

    @property
    def blocks(self):
        return [message.block for message in self.heard if isinstance(message, Measured)]

    @property
    def arm(self):
        return next(message.case.base for message in reversed(self.heard) if isinstance(message, Finished))

    def alive(self):
        """Workers that are left behind."""
        pids = [int(path.read_text()) for path in self.folder.glob("*/*.pid")]
        return [pid for pid in pids if runs(pid)]


@pytest.fixture
def pair(tmp_path, monkeypatch):
    return Pair(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("def misbehave(turn):\n    if turn == 3: os.kill(os.getpid(), signal.SIGSEGV)\nrun()\n", "worker_died"),
        ("def misbehave(turn):\n    if turn == 3: time.sleep(600)\nrun()\n", "worker_hung"),
    ],
)
def test_heads_end_is_the_failure_and_the_base_ends_with_it(pair, script, kind):
    began = time.monotonic()

    failure = pair.run(head=script, limit_s=2.0)

    assert failure.kind == kind
    assert [block.index for block in pair.blocks] == [0, 1, 2]
    assert pair.alive() == []
    assert time.monotonic() - began < 15


def test_a_base_is_heard_to_its_end_for_why_a_case_of_it_failed(pair):
    lost = """
def run():
    ask()
    say(Ready(Device("fake", "Fake One", "fake-one")))
    say(Holding())
    say(Timing("virtual"))
    say(Prepared(PerformanceCase("rows=1", identity=Identity(("base",), inputs="same"))))
    while ask().cases:
        pass
    time.sleep(0.5)
    why = Reason("kernel_raised", {"error": "OSError", "message": "no stream", "file": "a.py", "line": 3})
    say(Finished(PerformanceCase("rows=1", failure=why, raised=True)))
    say(OpDone())
run()
"""

    assert pair.run(base=lost) is None
    assert (pair.arm.failure.kind, pair.arm.failure.facts["message"]) == ("base_raised", "no stream")
    assert len(pair.blocks) == FIRST_BLOCKS


@pytest.mark.parametrize("error", [Stopped("SIGTERM"), ValueError("listener")])
@pytest.mark.parametrize("where", ["measure", "measure of the base"])
def test_whatever_interrupts_the_parent_kills_both_workers_at_once(pair, error, where):
    def listener(message):
        pair.heard.append(message)
        if isinstance(message, Doing) and message.stage == where and len(pair.blocks) == 2:
            raise error

    began = time.monotonic()
    with pytest.raises(type(error)):
        pair.run(listener=listener, base="def misbehave(turn): time.sleep(0.05)\nrun()\n", limit_s=60.0)

    assert pair.alive() == []
    assert time.monotonic() - began < 15
    assert len(pair.blocks) == 2


# --- when the time is up ----------------------------------------------------------------------------------------------


def clocked(monkeypatch, match, turns):
    """The time is up once head has taken so many blocks."""
    taken = match.players[HEAD].taken
    monkeypatch.setattr("perfci.worker.pair.time.time", lambda: float(sum(bool(cases) for _, cases in taken)))
    match.task = dataclasses.replace(match.task, until_s=float(turns))
    match.referee = match.make_referee()


def test_when_the_time_is_up_no_further_turn_is_given_and_neither_side_lacks_a_block(monkeypatch):
    match = Match((A, B), (A, B))
    clocked(monkeypatch, match, 3)

    match.play()

    assert [len(match.blocks(case)) for case in (A, B)] == [3, 3]
    assert all("base" in block.arms for block in match.blocks())
    ended = {message.case.case: message.short for message in match.heard if isinstance(message, Finished)}
    assert ended == {A: True, B: True}
    assert match.arm().failure is None
