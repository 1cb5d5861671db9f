"""Peers in the kernel's blocks: warmed up once, timed beside it, and left out without harm to it if they fail."""

import numpy as np
import pytest

from perfci.measure.bench import PeerLostError
from perfci.measure.blocks import FIRST_BLOCKS, measure
from perfci.measure.prepare import prepare, warm_up_peers
from tests.measure.scripted import KERNEL_US, REFERENCE_US, Scripted, working

LENGTHS = {"kernel": KERNEL_US, "reference": REFERENCE_US, "base": KERNEL_US, "peer:near": 900.0, "peer:far": 2000.0}


def double(x):
    return x * 2


def measured(peers, lengths=LENGTHS, **fields):
    """The scripted suite with peers, and its subjects by case; gives what was told of meeting too."""
    suite = Scripted(lambda arm, rows: lengths[arm])
    suite.fields = {"peers": peers, **fields}
    return suite, *timed(suite)


def timed(suite, **settings):
    on, told = suite.bench(**settings), []
    subjects = [prepare(on, params) for params in suite.cases]
    for subject in subjects:
        warm_up_peers(on, subject, lambda case, peer: told.append((case, peer)))
    measure(on, subjects, suite.hear)
    return {subject.case: subject for subject in subjects}, told


def only(subjects):
    """The middle case, of 5 rows."""
    return subjects["rows=5,dtype=float32"]


def failures(subject):
    return {peer.name: peer.failure and peer.failure.kind for peer in subject.facts.peers}


def test_every_round_launches_every_peer_once_in_random_order():
    suite, subjects, _ = measured({"near": double, "far": double})

    arms = ["kernel", "reference", "peer:near", "peer:far"]
    order = [arm for arm, _ in suite.order]
    rounds = [tuple(order[at : at + 4]) for at in range(0, len(order), 4)]
    assert all(sorted(round_) == sorted(arms) for round_ in rounds)
    assert len(set(rounds)) > 15
    assert all(set(block.arms) == set(arms) for block in only(subjects).blocks)


def test_a_function_without_arguments_makes_the_peer_once_a_case():
    made = []

    def make():
        made.append(1)
        return double

    suite, subjects, told = measured({"near": make})

    assert len(made) == len(suite.cases) == len(told)
    assert told[1] == ("rows=5,dtype=float32", "near")
    assert "peer:near" in only(subjects).blocks[0].arms


def unsupported(x):
    if len(x) == 5:
        raise NotImplementedError("no five\nrows.")
    return x * 2


def raising(x):
    if len(x) == 5:
        raise RuntimeError("no luck")
    return x * 2


def narrowing(x):
    return x[:-1] * 2


def wrong(x):
    return x * 2 + 1


def writing(x):
    x *= 2
    return x.copy()


@pytest.mark.parametrize(
    ("peer", "kind", "case"),
    [
        (unsupported, "peer_unsupported", "rows=5,dtype=float32"),
        (raising, "peer_raised", "rows=5,dtype=float32"),
        (wrong, "peer_wrong", "rows=4,dtype=float32"),
        (narrowing, "peer_wrong", "rows=4,dtype=float32"),
        (writing, "peer_changes_inputs", "rows=4,dtype=float32"),
        (lambda: lambda x: double, "peer_wrong_type", "rows=4,dtype=float32"),
        (lambda: raising(np.zeros(5)), "peer_raised", "rows=4,dtype=float32"),
    ],
)
def test_a_peer_that_cannot_be_timed_is_left_out_of_its_case_with_a_reason(peer, kind, case):
    _, subjects, _ = measured({"bad": peer, "near": double})

    subject = subjects[case]
    assert failures(subject) == {"bad": kind, "near": None}
    assert subject.failure is None and len(subject.blocks) == FIRST_BLOCKS
    assert all(set(block.arms) == {"kernel", "reference", "peer:near"} for block in subject.blocks)


def test_a_peer_that_raises_while_it_is_timed_costs_the_kernel_no_block():
    calls = []

    def later(x):
        calls.append(len(x))
        if calls.count(5) > 40:
            raise RuntimeError("no more")
        return x * 2

    _, subjects, _ = measured({"far": later, "near": double})

    subject = only(subjects)
    assert [block.index for block in subject.blocks] == list(range(FIRST_BLOCKS))
    assert failures(subject) == {"far": "peer_raised", "near": None}
    assert {"kernel", "reference", "peer:near"} <= set(subject.blocks[-1].arms)
    assert "peer:far" not in subject.blocks[-1].arms
    assert failures(subjects["rows=4,dtype=float32"])["near"] is None


def test_peers_take_nothing_of_the_budget():
    slow = {**LENGTHS, "peer:far": 1e6}

    with_peers = only(measured({"far": double}, slow)[1])
    without, _ = timed(Scripted(lambda arm, rows: slow[arm]))

    assert with_peers.spent_s == only(without).spent_s > 0


def test_a_duel_with_peers_begins_with_the_blocks_that_an_interval_takes():
    def duelled(peers):
        suite = Scripted(lambda arm, rows: LENGTHS[arm])
        suite.kernel, suite.base, suite.fields = working(1.0), working(2.0), {"peers": peers}
        subjects, _ = timed(suite)
        return len(only(subjects).blocks)

    assert (duelled({}), duelled({"near": double})) == (4, 6)


def test_a_peer_that_takes_the_device_with_it_ends_the_process():
    def lost():
        raise RuntimeError("lost")

    suite = Scripted(lambda arm, rows: LENGTHS[arm])
    suite.fields = {"peers": {"far": raising}}
    on = suite.bench()
    subject = prepare(on, suite.cases[1])
    suite.device.synchronize = lost

    with pytest.raises(PeerLostError) as caught:
        warm_up_peers(on, subject, lambda case, peer: None)
    assert caught.value.reason.kind == "peer_lost_device"
    assert caught.value.reason.facts["peer"] == "far"
