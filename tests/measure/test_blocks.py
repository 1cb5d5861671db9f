"""Blocks, rounds and their order, on a session that takes times from a script."""

import itertools
import random
import weakref
from collections import Counter, defaultdict

import numpy as np
import pytest

from perfci.device.seam import WARMING
from perfci.measure import blocks
from perfci.measure import prepare as prepare_module
from perfci.measure.bench import InseparableError
from perfci.measure.blocks import BLOCK_WARMUP, FIRST_BLOCKS, MOST_BLOCKS, SWEEPS_A_SESSION
from perfci.measure.inputs import flat
from perfci.measure.prepare import rounds
from perfci.statistics import duel_rule
from tests.measure.scripted import (
    CASES,
    KERNEL_US,
    NAMES,
    REFERENCE_US,
    Scripted,
    noisy,
    raise_on,
    working,
)


@pytest.fixture
def scripted():
    return Scripted()


def test_a_block_launches_every_arm_once_a_round(scripted):
    scripted.measure()
    count = rounds(KERNEL_US)

    blocks = [scripted.order[start : start + 2 * count] for start in range(0, len(scripted.order), 2 * count)]

    for block in blocks:
        assert len({rows for _, rows in block}) == 1
        pairs = [{block[i][0], block[i + 1][0]} for i in range(0, len(block), 2)]
        assert pairs == [{"kernel", "reference"}] * count


# --- spread over time -------------------------------------------------------------------------------------------------


def block_order(scripted):
    return [rows for _, rows in scripted.order[:: 2 * rounds(KERNEL_US)]]


@pytest.mark.parametrize(("ratio", "stride"), [(3.9, 1), (4, 2), (100, 10)])
def test_a_slow_reference_is_launched_in_fewer_rounds(scripted, ratio, stride):
    scripted.device.window_s = lambda call, launches: launches * (5e-3 if call.arm == "reference" else 5e-3 / ratio)

    subject = next(iter(scripted.measure().values()))

    rounds = subject.blocks[0].arms["kernel"].time.launches
    wanted = -(-rounds // min(stride, rounds // 3))
    # It is also launched in the round with values that are new, if there is one.
    assert {block.arms["reference"].time.launches for block in subject.blocks} <= {wanted, wanted + 1}
    assert all(block.arms["kernel"].time.launches == rounds for block in subject.blocks)


def test_blocks_go_over_all_cases_sweep_by_sweep(scripted):
    scripted.measure()
    blocks = block_order(scripted)

    sweeps = [blocks[i : i + 3] for i in range(0, len(blocks), 3)]

    assert all(sorted(sweep) == [4, 5, 6] for sweep in sweeps)
    assert len({tuple(sweep) for sweep in sweeps}) > 2


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_every_block_of_every_case_has_inputs_of_its_own(scripted):
    scripted.measure()

    seeds = [seed for _, seed in scripted.seeds]
    # One for preparing, one a block, and other values for four of them, which are made again to see whether the kernel
    # has changed them.
    assert len(set(seeds)) == 3 * (1 + FIRST_BLOCKS + 4)
    assert sorted(map(seeds.count, set(seeds))) == [1] * 3 * (1 + FIRST_BLOCKS) + [2] * 3 * 4


def test_the_runs_seed_repeats_inputs_and_order_and_another_process_has_its_own():
    def run(**settings):
        scripted = Scripted()
        scripted.measure(**settings)
        return sorted(scripted.seeds), scripted.order

    assert run(seed=5) == run(seed=5)
    assert not set(run(seed=5)[0]) & set(run(seed=6)[0])
    assert not set(run(seed=5)[0]) & set(run(seed=5, process=1)[0])
    assert run(seed=5)[1] != run(seed=6)[1]


# --- how many blocks --------------------------------------------------------------------------------------------------


def test_a_noisy_case_gets_more_blocks_up_to_the_most():
    scripted = Scripted(noisy(0.1))

    subjects = scripted.measure(budget_s=100)

    assert {len(subject.blocks) for subject in subjects.values()} == {MOST_BLOCKS}
    assert [block.index for block in subjects[NAMES[0]].blocks] == list(range(MOST_BLOCKS))
    assert len(scripted.sessions) == MOST_BLOCKS // SWEEPS_A_SESSION


# --- what is verified -------------------------------------------------------------------------------------------------


def test_an_output_of_every_block_is_verified_and_any_since_its_values_changed_may_be_the_one(monkeypatch):
    count, drawn = rounds(KERNEL_US), random.Random(1)
    monkeypatch.setattr("perfci.measure.blocks.secrets.randbelow", drawn.randrange)
    verified, turns = [], defaultdict(set)

    def note(suite, arrays, params, inputs, output, *_):
        verified.append(int(flat(output)[0][0, 0]))

    for module in (blocks, prepare_module):
        monkeypatch.setattr(module, "wrong_output", note)
    for number in range(60):
        scripted, calls = Scripted(), itertools.count(1)
        scripted.cases, scripted.kernel = CASES[:1], lambda x, calls=calls: np.full_like(x, next(calls))
        verified.clear()
        scripted.measure(seed=number)
        # The preparation calls twice. A block warms up, and then goes its rounds.
        places = [divmod(call - 3, BLOCK_WARMUP + count) for call in verified[1:]]
        assert [block for block, _ in places] == list(range(FIRST_BLOCKS))
        for block, place in places:
            turns[block].add(place - BLOCK_WARMUP)

    # Values change before the first round of block 0, before the last one of every fourth, and never in block 1.
    assert turns[0] == turns[1] == set(range(count))
    assert turns[3] == turns[7] == {count - 1}


@pytest.mark.parametrize(("factor", "references"), [(2.0, 2), (2.000001, 2 + duel_rule.FIRST)])
def test_an_answer_with_the_bits_of_the_bases_needs_no_reference_behind_a_first_block(monkeypatch, factor, references):
    monkeypatch.setattr("perfci.measure.blocks.secrets.randbelow", lambda below: 1 % below)  # no errors are wanted
    asked = []

    def reference(x):
        asked.append(x.dtype)
        return x * 2

    scripted = Scripted()
    scripted.cases, scripted.reference = CASES[:1], reference
    scripted.kernel, scripted.base = working(10.0), working(11.0, lambda x: x * x.dtype.type(factor))
    (subject,) = scripted.measure().values()

    assert (subject.failure, len(subject.blocks)) == (None, duel_rule.FIRST)
    assert asked.count(np.float64) == references


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["kernel", "reference"])
def test_a_case_that_launches_nothing_is_named_and_the_others_are_measured(arm):
    scripted = Scripted(lambda which, rows: 0.0 if (which, rows) == (arm, 5) else KERNEL_US)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert subjects[5].failure.kind == "nothing_launched"
    assert subjects[5].failure.facts["arm"] == arm
    assert subjects[5].blocks == []
    assert [len(subjects[rows].blocks) for rows in (4, 6)] == [FIRST_BLOCKS] * 2


def losing(*launches, arm="kernel", rows=5):
    """Times by which an arm's launches of these numbers, counted over the case's life, have no record."""
    seen = Counter()

    def time_us(which, case_rows):
        seen[which, case_rows] += 1
        lost = (which, case_rows) == (arm, rows) and seen[which, case_rows] in launches
        return 0.0 if lost else {"kernel": KERNEL_US, "reference": REFERENCE_US, "base": KERNEL_US}[which]

    return time_us


A_BLOCK = rounds(KERNEL_US)


@pytest.mark.parametrize("arm", ["kernel", "reference", "base"])
@pytest.mark.parametrize(
    "launches", [[1], [A_BLOCK + 3], range(A_BLOCK + 1, 2 * A_BLOCK + 1)], ids=["first", "later", "a whole block"]
)
def test_a_block_in_which_launches_of_an_arm_lost_their_records_is_taken_again(arm, launches):
    scripted = Scripted(losing(*launches, arm=arm))
    if arm == "base":
        scripted.kernel, scripted.base = working(10.0), working(11.0)

    subjects = scripted.measure()

    for subject in subjects.values():
        assert (subject.failure, subject.suspicion) == (None, [])
        assert sorted(block.index for block in subject.blocks) == list(range(len(subject.blocks)))
        assert len(subject.blocks) == (duel_rule.FIRST if arm == "base" else FIRST_BLOCKS)
        assert {block.arms["kernel"].time.median_us for block in subject.blocks} == {KERNEL_US}
    assert scripted.order.count((arm, 5)) == (len(subjects[NAMES[1]].blocks) + 1) * A_BLOCK


@pytest.mark.parametrize("call", [3, 3 + BLOCK_WARMUP, 10, 31])
@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("no stream"), "kernel_raised"), (MemoryError("32 GiB"), "out_of_memory")]
)
def test_a_case_that_raises_while_it_is_timed_costs_no_other_case_its_blocks(scripted, call, error, kind):
    scripted.time_us = lambda arm, rows: {"kernel": 100.0, "reference": 200.0}[arm] * rows
    scripted.kernel = raise_on({call}, error)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    whole = (call - 3) // (BLOCK_WARMUP + rounds(KERNEL_US))
    assert (subjects[5].failure.kind, subjects[5].raised) == (kind, True)
    assert [len(subjects[rows].blocks) for rows in (4, 5, 6)] == [FIRST_BLOCKS, whole, FIRST_BLOCKS]
    for subject in subjects.values():
        medians = {block.arms["kernel"].time.median_us for block in subject.blocks}
        assert medians <= {100.0 * subject.params["rows"]}


# --- duels ------------------------------------------------------------------------------------------------------------


def duelling(ratio=1.0, spread=0.0, cases=1):
    """A device on which the kernel takes `ratio` times as long as the base; `spread` of single launches, log."""
    rng = np.random.default_rng(1)
    lengths = {"kernel": KERNEL_US * ratio, "reference": REFERENCE_US, "base": KERNEL_US}
    scripted = Scripted(lambda arm, rows: lengths[arm] * float(np.exp(rng.normal(0, spread))))
    scripted.kernel, scripted.base = working(10.0), working(11.0)
    scripted.cases = CASES[:cases]
    return scripted


def blocks_of(scripted, **settings):
    return {case: len(subject.blocks) for case, subject in scripted.measure(budget_s=100, **settings).items()}


@pytest.mark.parametrize(
    ("ratio", "blocks"),
    # tau is 1 %: 0.4 of it clears after four blocks, 0.6 of it after twelve; the rest stays open.
    [(1.0, 4), (1.003, 4), (1.0045, 12), (1.02, 12), (0.997, 4), (0.98, 12)],
)
def test_a_duel_ends_at_the_look_that_clears_it_and_after_twelve_blocks_at_the_latest(ratio, blocks):
    scripted = duelling(ratio)

    assert blocks_of(scripted) == {NAMES[0]: blocks}
    assert len(scripted.sessions) == len([look for look in duel_rule.EARLY if look <= blocks])


@pytest.mark.parametrize(
    ("slow", "arm", "blocks"),
    # Of the 8 launches of a block this long one takes three times as long.
    [([], "kernel", 4), ([5], "kernel", 12), ([5], "base", 4), ([5, 13, 21, 29], "kernel", 12)],
)
def test_a_slow_launch_of_the_kernel_keeps_its_case_from_being_cleared_after_four_blocks(slow, arm, blocks):
    scripted, made = duelling(), Counter()
    usual = scripted.time_us

    def time_us(which, rows):
        made[which] += 1
        return usual(which, rows) * (3.0 if which == arm and made[which] in slow else 1.0)

    scripted.time_us = time_us

    assert blocks_of(scripted) == {NAMES[0]: blocks}


def test_an_unchanged_case_is_not_timed():
    scripted = duelling(cases=2)
    scripted.base = working(10.0)

    assert blocks_of(scripted) == {NAMES[0]: 0, NAMES[1]: 0}
    assert scripted.order == []


@pytest.mark.parametrize("call", [3, 3 + BLOCK_WARMUP, 30])
def test_a_base_that_raises_while_it_is_timed_leaves_its_case_a_first_look_without_it(call):
    scripted = duelling(cases=2)
    scripted.base = raise_on({call}, RuntimeError("no stream"))

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    lost, whole = subjects[5], subjects[4]
    assert (lost.failure, lost.facts.base.failure.kind) == (None, "base_raised")
    assert lost.facts.base.failure.facts["message"] == "no stream"
    # The block in which it raised is lost, and its number is not used again.
    indices = [block.index for block in lost.blocks]
    assert len(set(indices)) == len(indices) == FIRST_BLOCKS - 1
    assert (whole.facts.base.failure, len(whole.blocks)) == (None, duel_rule.FIRST)


@pytest.mark.parametrize("arm", ["kernel", "base"])
def test_a_process_that_lost_its_device_cannot_tell_whose_fault_it_was(arm):
    scripted = duelling(cases=2)
    setattr(scripted, arm, raise_on({5}, RuntimeError("an illegal memory access")))
    on, lost = scripted.device, RuntimeError("an illegal memory access")

    def raise_lost(*_):
        raise lost

    original = on.session
    on.session = lambda: setattr(on, "synchronize", raise_lost) or original()

    with pytest.raises(InseparableError) as caught:
        scripted.measure()

    assert caught.value.reason.kind == "lost_together"
    assert caught.value.reason.facts["message"] == "an illegal memory access"


@pytest.mark.parametrize("beside", [True, False])
def test_a_planted_slow_down_is_exact(beside):
    scripted = duelling()
    scripted.settings = {"planted": 2.0}
    if not beside:
        scripted.base = None
    scripted.measure()

    _, block, times = scripted.heard[0]
    # Twice tau, which is 1 % of a kernel of this length.
    assert block.arms["kernel"].time.median_us == pytest.approx(1.02 * KERNEL_US)
    assert set(times["kernel"]) == {1.02 * KERNEL_US}
    assert block.arms["reference"].time.median_us == REFERENCE_US


@pytest.mark.parametrize("repeated", [True, False])
def test_how_long_the_host_takes_to_repeat_a_call_is_not_sent_but_kept_to_find_hidden_work(repeated):
    scripted = duelling()
    scripted.settings = {"repeated": repeated}
    subject = next(iter(scripted.measure().values()))

    _, block, _ = scripted.heard[0]
    assert {arm.host_us for arm in block.arms.values()} == {None if repeated else 5.0}
    assert {arm.host_us for arm in subject.blocks[0].arms.values()} == {5.0}


# --- cheats -----------------------------------------------------------------------------------------------------------


def test_a_first_launch_on_other_values_is_verified_each_third_time(scripted, monkeypatch):
    monkeypatch.setattr("perfci.measure.blocks.secrets.randbelow", lambda most: 0)  # drawn: it, and else the last
    given = []

    def kernel(x):
        alike = [np.array_equal(x, other) for other in given[-BLOCK_WARMUP - 1 :]]
        same = [np.array_equal(given[-1], other) for other in given[-BLOCK_WARMUP - 1 :]]
        given.append(x.copy())
        # The values change in the first round, behind the calls that warm up.
        return np.zeros_like(x) if same == [False] + BLOCK_WARMUP * [True] and not any(alike) else x * 2

    scripted.kernel, scripted.cases = kernel, CASES[:1]

    assert scripted.measure()["rows=4,dtype=float32"].failure.kind == "timed_output_wrong"


def test_a_kernel_that_remembers_its_answer_by_the_inputs_place_is_wrong(scripted):
    kept = {}

    def kernel(x):
        key = x.ctypes.data, x.shape
        if key not in kept:
            kept.clear()
            kept[key] = x * 2
        return kept[key].copy()

    scripted.kernel, scripted.cases = kernel, CASES[:1]
    (subject,) = scripted.measure().values()

    assert subject.failure.kind == "timed_output_wrong"
    assert len(subject.blocks) <= duel_rule.FIRST


class Pool:
    """Memory as an allocator hands it out: a block that was freed is the next one's."""

    def __init__(self):
        self.free = []

    def empty(self, size):
        block = self.free.pop() if self.free else np.zeros(size, np.float32)
        array = block[:]
        weakref.finalize(array, self.free.append, block)
        return array


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_kernel_that_skips_its_work_where_its_memory_holds_the_answer_is_wrong(beside, cache):
    """It looks at two elements of each tile of 256, so that it takes the answer of any arm, its own too."""
    scripted, pool, skipped = Scripted(), Pool(), Counter()
    scripted.make_inputs = lambda rows, dtype, device, seed: {"x": np.random.default_rng(seed).random(4096, np.float32)}

    def honest(x):
        np.multiply(x, 2, out=(out := pool.empty(x.size)))
        return out

    def kernel(x):
        out = pool.empty(x.size)
        for tile in range(0, x.size, 256):
            part = slice(tile, tile + 256)
            skips = all(out[tile + at] == 2 * x[tile + at] for at in (0, 101))
            skipped[skips] += 1
            if not skips:
                np.multiply(x[part], 2, out=out[part])
        return out

    scripted.kernel, scripted.reference, scripted.cases = kernel, honest, CASES[:1]
    scripted.fields = {"cache": cache}
    scripted.base = honest if beside else None
    (subject,) = scripted.measure().values()

    assert skipped[True] > 3 * skipped[False]
    assert subject.failure.kind == "timed_output_wrong"
    assert subject.begun <= (duel_rule.FIRST if beside else FIRST_BLOCKS)


def test_a_kernel_that_returns_the_same_memory_again_and_again_is_right(scripted):
    """As one of a CUDA graph does: the launch that is verified lies where later ones do."""
    out = {}

    def kernel(x):
        kept = out.setdefault(x.shape, np.empty_like(x))
        np.multiply(x, 2, out=kept)
        return kept

    scripted.kernel, scripted.cases = kernel, CASES[:1]
    (subject,) = scripted.measure().values()

    assert subject.failure is None


# --- a warm cache -----------------------------------------------------------------------------------------------------


def test_every_launch_of_every_arm_is_as_warm_as_the_suite_says_and_a_case_notes_it(scripted):
    scripted.base = working(1.0)

    for cache in ("cold", "warm"):
        scripted.sessions, scripted.fields = [], {"cache": cache}
        subjects = scripted.measure()

        assert {subject.facts.cache for subject in subjects.values()} == {cache}
        assert {warm for session in scripted.sessions for warm in session.warm} == {cache == "warm"}
        assert {arm for arm, _ in scripted.order} == {"kernel", "reference", "base"}


def test_between_the_calls_that_warm_and_the_timed_one_nothing_changes(scripted):
    seen = []
    scripted.kernel = lambda x: seen.append((x.ctypes.data, x.sum())) or x * 2
    scripted.cases, scripted.fields = CASES[:1], {"cache": "warm"}
    scripted.measure()

    group, renewed = 1 + WARMING, (0, 2, 3, 7)
    at, changing = 2, []  # behind what prepares
    for index in range(FIRST_BLOCKS):
        calls = at + BLOCK_WARMUP, at + BLOCK_WARMUP + group * (rounds(KERNEL_US) + (index in renewed))
        groups = [seen[start : start + group] for start in range(*calls, group)]
        changing.append([calls for calls in groups if len(set(calls)) > 1])
        at = calls[1]
    assert at == len(seen)
    # Only in some blocks do values change, before the last call of a group that is not timed.
    assert [len(groups) for groups in changing] == [1 if index in renewed else 0 for index in range(FIRST_BLOCKS)]
    assert all(len(set(calls[:WARMING])) == 1 for groups in changing for calls in groups)


def worked_out_beforehand():
    """A kernel that does its work in the calls that warm, and hands the answer back when it is timed."""
    state = {"place": None, "calls": 0, "out": None}

    def kernel(x):
        if state["place"] != x.ctypes.data:
            state.update(place=x.ctypes.data, calls=0)
        state["calls"] += 1
        if state["calls"] <= BLOCK_WARMUP or (state["calls"] - BLOCK_WARMUP) % (1 + WARMING):
            state["out"] = x * 2
        return state["out"].copy()

    return kernel


def test_an_answer_worked_out_in_the_calls_that_warm_is_wrong(scripted):
    scripted.kernel, scripted.cases = worked_out_beforehand(), CASES[:1]
    scripted.fields = {"cache": "warm"}
    (subject,) = scripted.measure().values()

    assert subject.failure.kind == "timed_output_wrong"


def test_a_kernel_that_writes_into_its_input_gets_the_same_values_in_every_launch():
    scripted = Scripted()

    def double(x):
        x *= 2
        return x

    scripted.cases, scripted.kernel, scripted.reference = CASES[:1], double, double
    scripted.fields = {"mutates": ("x",)}

    (subject,) = scripted.measure().values()

    assert subject.failure is None and subject.facts.failure is None and subject.blocks


def test_a_kernel_that_writes_something_wrong_into_its_input_is_not_timed():
    scripted = Scripted()

    def double(x, factor=2):
        x *= factor

    scripted.cases, scripted.kernel, scripted.reference = CASES[:1], lambda x: double(x, 3), double
    scripted.fields = {"mutates": ("x",)}

    (subject,) = scripted.measure().values()

    assert subject.facts.failure.kind == "timed_output_wrong"
