"""Peers in the kernel's blocks: met once, timed beside it, and left out without harm to it where they fail."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from perfci.device.fake import work
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
    assert all(sorted(each) == sorted(arms) for each in rounds)
    assert len(set(rounds)) > 15
    assert all(set(block.arms) == set(arms) for block in only(subjects).blocks)


def test_a_peers_shift_is_the_kernels_against_it():
    _, subjects, _ = measured({"near": double, "far": double})

    for block in only(subjects).blocks:
        assert block.shifts["kernel/peer:near"] == pytest.approx(math.log(KERNEL_US / 900))
        assert block.shifts["kernel/peer:far"] == pytest.approx(math.log(KERNEL_US / 2000))
        assert block.shifts["kernel/reference"] == pytest.approx(math.log(KERNEL_US / REFERENCE_US))


def test_a_function_without_arguments_makes_the_peer_once_a_case():
    made = []

    def make():
        made.append(1)
        return double

    suite, subjects, told = measured({"near": make})

    assert len(made) == len(suite.cases) == len(told)
    assert told[1] == ("rows=5,dtype=float32", "near")
    (peer,) = only(subjects).facts.peers
    assert peer.first_call_s > 0 and "peer:near" in only(subjects).blocks[0].arms


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

    found = subjects[case]
    assert failures(found) == {"bad": kind, "near": None}
    assert found.failure is None and len(found.blocks) == FIRST_BLOCKS
    assert all(set(block.arms) == {"kernel", "reference", "peer:near"} for block in found.blocks)


def test_what_a_peer_says_of_an_unsupported_case_is_kept_on_one_line():
    _, subjects, _ = measured({"far": unsupported})

    (peer,) = only(subjects).facts.peers
    assert peer.failure.facts["message"] == "no five rows"
    assert "peer:far" in subjects["rows=4,dtype=float32"].blocks[0].arms


def test_values_that_a_peer_wrote_into_its_inputs_reach_no_other_peer():
    seen = {}

    def looking(x):
        seen.setdefault(len(x), x.copy())
        return x * 2

    suite, _, _ = measured({"bad": writing, "near": looking})

    seed = suite.bench().draw_seed("rows=5,dtype=float32", "peers")
    assert np.array_equal(seen[5], suite.make_inputs(5, "float32", "cpu", seed)["x"])


def test_a_peer_that_raises_while_it_is_timed_costs_the_kernel_no_block():
    calls = []

    def later(x):
        calls.append(len(x))
        if calls.count(5) > 40:
            raise RuntimeError("no more")
        return x * 2

    _, subjects, _ = measured({"far": later, "near": double})

    found = only(subjects)
    assert [block.index for block in found.blocks] == list(range(FIRST_BLOCKS))
    assert failures(found) == {"far": "peer_raised", "near": None}
    assert {"kernel", "reference", "peer:near"} <= set(found.blocks[-1].arms)
    assert "peer:far" not in found.blocks[-1].arms
    assert failures(subjects["rows=4,dtype=float32"])["near"] is None


def test_a_peer_that_does_nothing_on_the_device_has_no_time():
    _, subjects, _ = measured({"idle": double, "near": double}, {**LENGTHS, "peer:idle": 0.0})

    found = only(subjects)
    assert failures(found) == {"idle": "peer_idle", "near": None}
    assert len(found.blocks) == FIRST_BLOCKS
    assert all(set(block.arms) == {"kernel", "reference", "peer:near"} for block in found.blocks)


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


def test_peers_are_not_called_where_the_kernel_failed():
    def broken(x):
        raise RuntimeError("no kernel")

    called = []
    suite = Scripted()
    suite.kernel, suite.fields = broken, {"peers": {"near": called.append}}
    subject = suite.prepare()

    warm_up_peers(suite.bench(), subject, lambda case, peer: called.append(peer))

    assert (subject.facts.failure.kind, called) == ("kernel_raised", [])


def test_inputs_that_cannot_be_made_again_end_the_case_and_not_the_process():
    suite = Scripted()
    suite.fields = {"peers": {"near": double}}
    make, made = suite.make_inputs, []

    def once(rows, dtype, device, seed):
        made.append(rows)
        if len(made) > 1:
            raise RuntimeError("no memory")
        return make(rows, dtype, device, seed)

    suite.make_inputs = once
    on = suite.bench()
    subject = prepare(on, suite.cases[0])
    warm_up_peers(on, subject, lambda case, peer: None)

    assert (subject.facts.failure, subject.failure.kind, subject.raised) == (None, "reference_raised", True)


def test_a_warm_peer_is_timed_warm_too():
    suite, _, _ = measured({"near": double}, cache="warm")

    assert suite.sessions and all(all(session.warm) for session in suite.sessions)


def test_a_peers_own_work_is_what_is_timed():
    """On the fake device's own session, with its noise."""
    suite = Scripted()
    del suite.device.session, suite.device.window_s
    suite.kernel, suite.reference = working(10.0), working(20.0)

    def near(x):
        work(8.0)
        return x * 2

    suite.fields = {"peers": {"near": near}}
    subjects, _ = timed(suite)

    medians = [block.arms["peer:near"].time.median_us for block in only(subjects).blocks]
    assert statistics.median(medians) == pytest.approx(8.0, rel=0.02)
