"""A group's processes: one that dies or hangs is named with those that wait for it, and none is left behind."""

import ctypes
import os
import signal
import time

import pytest

from perfci.core.codec import encode
from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.extensions.ranks.group import BrokenGroupError, Frame, Group, find_frame, make_places, sort_silent
from perfci.extensions.ranks.progress import Position, Progress, Step, open_stack, watch_stack
from perfci.extensions.ranks.records import Answer, Ask, OpPlace, RankPlace
from tests.processes import runs

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LIMIT_S = 3.0


def serve(place, pipe, others):
    """A rank without torch: it does what the ask's case says of it."""
    for end in others:
        end.close()
    progress = Progress(place.places, place.ranks)
    with open_stack(place.stack) as stack:
        while True:
            ask_case = pipe.recv_bytes().decode()  # as JSON
            progress.begin(place.rank)
            with watch_stack(stack, place.limit_s):
                _do(ask_case, place, progress)
            progress.note(place.rank, Step.ANSWERED)
            lost = "loses" in ask_case and place.rank == 0
            failure = Reason("ranks_raised", {"error": "ConnectionError"}) if lost else None
            pipe.send_bytes(encode(Answer(failure, {"rank": place.rank})))


def _do(ask_case, place, progress):
    progress.note(place.rank, Step.CALLING)
    if "dies" in ask_case and place.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if "shy" in ask_case:
        _start_thread_of_c()
    if "shy" in ask_case or "deaf" in ask_case:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if "sleeps" in ask_case and place.rank == 2:
        _sleep_in_the_op()
    if "alone" in ask_case and place.rank == 1:
        time.sleep(0.5)  # until the others have answered
        os.kill(os.getpid(), signal.SIGKILL)
    if "loses" in ask_case and place.rank == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    if "dies" in ask_case or "sleeps" in ask_case:
        await_flag()
    if "unsent" in ask_case:
        progress.note(place.rank, Step.WAITING, 5 if place.rank == 3 else 4)
        await_flag()


def _start_thread_of_c():
    """As CUDA has them: it takes a signal that the main thread blocks."""
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    start, seconds = ctypes.cast(libc.sleep, ctypes.c_void_p), ctypes.c_void_p(1000)
    assert libc.pthread_create(ctypes.byref(thread), None, start, seconds) == 0


def _sleep_in_the_op():
    time.sleep(1000)


def await_flag():
    """As kernels wait for their peers."""
    while True:
        time.sleep(0.01)


@pytest.fixture
def group(tmp_path):
    here = OpPlace("talk", tmp_path, tmp_path, tmp_path)
    first = RankPlace(0, 4, "cpu", here, None, tmp_path, tmp_path, tmp_path, LIMIT_S)
    with Group(make_places(first, range(4), tmp_path), lambda: None, serve) as running:
        yield running


def break_by(group, case):
    began = time.monotonic()
    with pytest.raises(BrokenGroupError) as caught:
        group.ask(Ask("block", case, order=("kernel",) * 9))
    took_s = time.monotonic() - began
    group.end()
    assert not any(map(runs, group.pids))
    return caught.value.reason, took_s


def test_all_ranks_answer_in_their_order(group):
    assert [answer.body["rank"] for answer in group.ask(Ask("list"))] == [0, 1, 2, 3]


def test_a_rank_that_dies_is_named_with_its_signal_and_what_the_others_wait_in(group):
    reason, took_s = break_by(group, "dies")

    assert (reason.kind, reason.facts["rank"], reason.facts["how"]) == ("ranks_died", 1, "SIGKILL")
    assert str(reason.facts["waiting"]).count("await_flag") == 3
    said = sentence(reason)
    assert "Rank 1 of 4 died (SIGKILL) in talk at dies (the others: 0: test_group.py:" in said
    assert took_s < LIMIT_S + 2


def test_a_rank_that_dies_is_named_where_a_peer_has_raised_an_error_by_then(group):
    reason, _ = break_by(group, "loses")

    assert (reason.kind, reason.facts["rank"]) == ("ranks_died", 1)
    assert reason.facts["waiting"] == "0: ConnectionError"


def test_a_rank_that_dies_when_the_others_have_answered_is_named_alone(group):
    reason, _ = break_by(group, "alone")

    assert (reason.kind, reason.facts["rank"]) == ("ranks_died_last", 1)
    assert "died (SIGKILL) in talk at alone after the others had ended their part." in sentence(reason)


@pytest.mark.parametrize("how", ["shy", "deaf"])
def test_stacks_are_of_the_main_thread_if_another_thread_gets_the_signal_or_none_does(group, how):
    reason, _ = break_by(group, f"{how} sleeps")

    assert (reason.kind, reason.facts["late"], reason.facts["waiting"]) == ("ranks_hung_late", "2", "0, 1, 3")
    assert "_sleep_in_the_op" in str(reason.facts["at"])


def test_a_rank_that_hangs_is_named_with_its_line_and_with_those_that_wait_for_it(group):
    reason, took_s = break_by(group, "sleeps")

    assert (reason.kind, reason.facts["late"], reason.facts["waiting"]) == ("ranks_hung_late", "2", "0, 1, 3")
    assert "_sleep_in_the_op" in str(reason.facts["at"])
    assert LIMIT_S <= took_s < LIMIT_S + 4


def test_ranks_that_wait_in_a_launch_that_another_has_ended_wait_for_what_it_never_sent(group):
    reason, _ = break_by(group, "unsent")

    assert (reason.kind, reason.facts["waiting"], reason.facts["others"]) == ("ranks_hung_unsent", "0, 1, 2", "3")
    assert (reason.facts["launch"], reason.facts["number"]) == ("kernel", 5)


def test_a_stack_says_where_a_rank_waits_else_its_last_line_of_the_op(tmp_path):
    op, shared = tmp_path / "talk.py", tmp_path / "_symmetric.py"
    sleeping = (
        f'Current thread 0x1 (most recent call first):\n  File "{op}", line 7 in talk\n  File "/x.py", line 2 in run\n'
    )
    waiting = f'Thread 0x1:\n  File "/y.py", line 3 in load\n  File "{shared}", line 9 in await_flag\n'
    other = f'Thread 0x2 (most recent call first):\n  File "{op}", line 3 in log\n\n'

    assert find_frame(sleeping, tmp_path) == Frame(str(op), 7, "talk")
    assert find_frame(other + waiting + f'  File "{op}", line 7 in talk\n', tmp_path) == Frame(
        str(shared), 9, "await_flag"
    )
    assert find_frame("", tmp_path) is None


def test_ranks_that_wait_for_the_device_or_in_a_collective_are_not_the_late_ones():
    positions = {
        0: Position(3, Step.WAITING, 1), 1: Position(3, Step.CALLING, 1), 2: Position(3, Step.CALLING, 1)
    }  # fmt: skip
    frames = {2: Frame("/lib/torch/distributed/c10d.py", 5, "all_gather"), 1: Frame("/k/op.py", 5, "op")}

    assert sort_silent(positions, frames) == ([1], [0, 2])
