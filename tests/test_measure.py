"""Blocks, rounds and their order, on a session that takes times from a script."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

from perfci import measure as stage
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.device.seam import Launch
from perfci.measure import FIRST_BLOCKS, MOST_BLOCKS, SWEEPS_A_SESSION, Settings, bench, prepare, rounds, suspicions
from perfci.model import PerformanceCase
from perfci.spec import Performance, case_id, grid

CASES = grid(rows=[4, 5, 6], dtype=["float32"])
KERNEL_US, REFERENCE_US = 1000.0, 1500.0


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


class Bench:
    """A device whose launches take what `time_us(arm, case)` says, and a record of all that was asked of it."""

    def __init__(self, time_us=None, **spec):
        self.device = FakeDevice(FakeSpec(**spec), 1)
        self.device.session = self.session
        self.device.window_s = lambda call, launches: launches * KERNEL_US * 1e-6
        self.time_us = time_us or (lambda arm, case: {"kernel": KERNEL_US, "reference": REFERENCE_US}[arm])
        self.sessions = []
        self.seeds = []
        self.verified = []
        self.kernel, self.reference = self.double, self.double
        self.cases = CASES
        self.fields = {}

    @contextmanager
    def session(self):
        session = ScriptedSession(self.time_us)
        self.sessions.append(session)
        yield session

    @staticmethod
    def double(x):
        return x * 2

    def make_inputs(self, rows, dtype, device, seed):
        self.seeds.append((rows, seed))
        return {"x": np.random.default_rng(seed).normal(size=(rows, 3)).astype(dtype)}

    def measure(self, seed=1, process=0, budget_s=1.0):
        """Prepare and measure all cases; gives the subjects by case."""
        suite = Performance(self.kernel, self.reference, self.make_inputs, self.cases, **self.fields)
        self.steps = []
        on = bench(suite, self.device, Settings(seed, process, budget_s, 0.0), describe, self.steps.append)
        subjects = [prepare(on, params) for params in self.cases]
        self.heard = []
        self.busy_s = stage.measure(on, subjects, lambda case, block, times: self.heard.append((case, block, times)))
        return {subject.case: subject for subject in subjects}

    @property
    def order(self):
        """(arm, rows) of every launch."""
        return [launch for session in self.sessions for launch in session.order]


class ScriptedSession:
    def __init__(self, time_us):
        self._time_us = time_us
        self._launches = []
        self.order = []
        self.pauses = []

    def launch(self, call):
        result = call()
        rows = len(call.inputs["x"])
        us = self._time_us(call.arm, rows)
        self.order.append((call.arm, rows))
        self._launches.append(Launch(us, us + 1, 5.0, 1 if us else 0))
        return result

    def pause(self):
        self.pauses.append(len(self.order))

    def launches(self):
        return self._launches

    def busy_s(self):
        return 0.25


@pytest.fixture
def scripted():
    return Bench()


def noisy(spread, seed=1):
    """Times whose block medians scatter: one draw for a run of launches of the same case."""
    rng = np.random.default_rng(seed)
    state = {"rows": None, "factor": 1.0}

    def time_us(arm, rows):
        if rows != state["rows"]:
            state.update(rows=rows, factor=float(np.exp(rng.normal(0, spread))))
        return {"kernel": KERNEL_US, "reference": REFERENCE_US}[arm] * state["factor"]

    return time_us


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_block_launches_every_arm_once_a_round(scripted):
    scripted.measure()
    count = rounds(KERNEL_US)

    blocks = [scripted.order[start : start + 2 * count] for start in range(0, len(scripted.order), 2 * count)]

    for block in blocks:
        assert len({rows for _, rows in block}) == 1
        pairs = [{block[i][0], block[i + 1][0]} for i in range(0, len(block), 2)]
        assert pairs == [{"kernel", "reference"}] * count


def test_the_order_of_the_arms_varies_from_round_to_round(scripted):
    scripted.measure()

    first = Counter(arm for arm, _ in scripted.order[::2])

    assert sum(first.values()) == 3 * 8 * rounds(KERNEL_US)
    assert 0.35 < first["kernel"] / sum(first.values()) < 0.65


def test_every_block_gives_a_sign_of_life_before_it_is_queued(scripted):
    scripted.measure()

    assert scripted.steps == [f"rows={rows},dtype=float32" for rows in block_order(scripted)]


def test_every_block_ends_with_a_pause(scripted):
    scripted.measure()

    (session,) = scripted.sessions
    assert session.pauses == [2 * rounds(KERNEL_US) * (i + 1) for i in range(len(CASES) * FIRST_BLOCKS)]


def test_a_block_holds_what_its_launches_took(scripted):
    scripted.measure()

    _, block, times = scripted.heard[0]
    assert (block.index, block.process) == (0, 0)
    assert block.arms["kernel"].time.median_us == KERNEL_US
    assert block.arms["kernel"].time.launches == rounds(KERNEL_US)
    assert (block.arms["reference"].span_us, block.arms["reference"].host_us) == (REFERENCE_US + 1, 5.0)
    assert block.arms["kernel"].activities == 1
    assert block.shifts["kernel/reference"] == pytest.approx(np.log(2 / 3))
    assert times["reference"] == (REFERENCE_US,) * rounds(KERNEL_US)
    assert block.state == scripted.device.state()


def test_arms_of_a_block_share_its_inputs(scripted):
    seen = []
    scripted.kernel = scripted.reference = lambda x: seen.append(x.ctypes.data) or x * 2
    scripted.cases = CASES[:1]
    scripted.measure()
    whole = (2 * stage.BLOCK_WARMUP) + 2 * rounds(KERNEL_US)

    # Those behind the preparation: warm-up and rounds of the last block, which is the verified last one.
    last = seen[-whole - 2 : -2]
    assert len(set(last)) == 1


# --- spread over time -------------------------------------------------------------------------------------------------


def block_order(scripted):
    return [rows for _, rows in scripted.order[:: 2 * rounds(KERNEL_US)]]


def test_blocks_go_over_all_cases_sweep_by_sweep(scripted):
    scripted.measure()
    blocks = block_order(scripted)

    sweeps = [blocks[i : i + 3] for i in range(0, len(blocks), 3)]

    assert all(sorted(sweep) == [4, 5, 6] for sweep in sweeps)
    assert len({tuple(sweep) for sweep in sweeps}) > 2


def test_a_case_follows_itself_only_where_two_sweeps_meet():
    """Chance: the last of one sweep is the first of the next in 1 of 3 seams, and there alone."""
    repeats = seams = 0
    for seed in range(20):
        scripted = Bench()
        scripted.measure(seed=seed)
        blocks = block_order(scripted)
        again = [i for i in range(1, len(blocks)) if blocks[i] == blocks[i - 1]]
        assert all(i % 3 == 0 for i in again)
        repeats, seams = repeats + len(again), seams + len(blocks) // 3 - 1

    assert repeats / seams < 0.45


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_every_block_of_every_case_has_inputs_of_its_own(scripted):
    scripted.measure()

    seeds = [seed for _, seed in scripted.seeds]
    assert len(seeds) == 3 * (1 + FIRST_BLOCKS)
    assert len(set(seeds)) == len(seeds)


def test_the_runs_seed_repeats_inputs_and_order_and_another_process_has_its_own():
    def run(**settings):
        scripted = Bench()
        scripted.measure(**settings)
        return sorted(scripted.seeds), scripted.order

    assert run(seed=5) == run(seed=5)
    assert not set(run(seed=5)[0]) & set(run(seed=6)[0])
    assert not set(run(seed=5)[0]) & set(run(seed=5, process=1)[0])
    assert run(seed=5)[1] != run(seed=6)[1]


def test_a_cases_inputs_do_not_depend_on_the_other_cases():
    alone, together = Bench(), Bench()
    alone.cases = CASES[1:2]
    alone.measure(seed=5)
    together.measure(seed=5)

    assert sorted(alone.seeds) == sorted(seed for seed in together.seeds if seed[0] == 5)


# --- how many blocks --------------------------------------------------------------------------------------------------


def test_a_quiet_case_has_enough_with_the_first_blocks(scripted):
    subjects = scripted.measure(budget_s=100)

    assert {len(subject.blocks) for subject in subjects.values()} == {FIRST_BLOCKS}
    assert len(scripted.sessions) == 1


def test_a_noisy_case_gets_more_blocks_up_to_the_most():
    scripted = Bench(noisy(0.1))

    subjects = scripted.measure(budget_s=100)

    assert {len(subject.blocks) for subject in subjects.values()} == {MOST_BLOCKS}
    assert [block.index for block in subjects[case_id(CASES[0])].blocks] == list(range(MOST_BLOCKS))
    assert len(scripted.sessions) == MOST_BLOCKS // SWEEPS_A_SESSION


def test_a_noisy_case_stops_where_the_budget_is_spent():
    spent_a_block = 2 * rounds(KERNEL_US) * ((KERNEL_US + REFERENCE_US) / 2 + stage.FLUSH_US) * 1e-6
    scripted = Bench(noisy(0.1))

    subjects = scripted.measure(budget_s=spent_a_block * FIRST_BLOCKS * 1.3)

    assert {len(subject.blocks) for subject in subjects.values()} == {2 * FIRST_BLOCKS}
    assert subjects[case_id(CASES[0])].spent_s == pytest.approx(2 * FIRST_BLOCKS * spent_a_block, rel=0.2)


def test_the_first_blocks_are_taken_whatever_the_budget():
    subjects = Bench(noisy(0.1)).measure(budget_s=1e-9)

    assert {len(subject.blocks) for subject in subjects.values()} == {FIRST_BLOCKS}


def test_a_narrow_interval_ends_a_case_while_a_wide_one_goes_on():
    rng = np.random.default_rng(2)
    scripted = Bench(lambda arm, rows: KERNEL_US * (np.exp(rng.normal(0, 0.2)) if rows == 5 else 1.0))

    subjects = scripted.measure(budget_s=100)

    blocks = {subject.params["rows"]: len(subject.blocks) for subject in subjects.values()}
    assert blocks[4] == blocks[6] == FIRST_BLOCKS
    assert blocks[5] > FIRST_BLOCKS


def test_a_remeasurement_takes_exactly_the_first_blocks():
    scripted = Bench(noisy(0.1))

    subjects = scripted.measure(process=2, budget_s=100)

    assert {len(subject.blocks) for subject in subjects.values()} == {FIRST_BLOCKS}
    assert {block.process for _, block, _ in scripted.heard} == {2}


def test_busy_time_is_that_of_all_sessions():
    scripted = Bench(noisy(0.1))
    scripted.measure(budget_s=100)

    assert scripted.busy_s == 0.25 * len(scripted.sessions) == 0.75


@pytest.mark.parametrize(("us", "count"), [(0.1, 30), (50, 30), (200, 19), (800, 8), (1e6, 8)])
def test_long_kernels_get_fewer_rounds(us, count):
    assert rounds(us) == count


def test_rounds_never_grow_with_the_kernels_length():
    counts = [rounds(us) for us in np.geomspace(1, 1e5, 200)]

    assert counts == sorted(counts, reverse=True)


# --- what is verified -------------------------------------------------------------------------------------------------


def test_the_first_a_random_and_the_last_timed_output_are_verified(monkeypatch):
    """Planted in one launch each: only a wrong launch that is among the verified ones is found."""
    count = rounds(KERNEL_US)

    def found(block, turn, seed=3):
        scripted = Bench()
        scripted.cases = CASES[:1]
        calls = {"kernel": 0}
        # The preparation calls once; a block warms up and then goes its rounds.
        wrong = 1 + block * (stage.BLOCK_WARMUP + count) + stage.BLOCK_WARMUP + turn + 1

        def kernel(x):
            calls["kernel"] += 1
            return x * 2 + (calls["kernel"] == wrong)

        scripted.kernel = kernel
        (subject,) = scripted.measure(seed=seed).values()
        return subject.failure is not None and subject.failure.kind == "timed_output_wrong"

    assert found(0, 0)
    assert not found(0, 1)
    assert found(FIRST_BLOCKS - 1, count - 1)
    assert not found(FIRST_BLOCKS - 1, count - 2)
    middle = {seed: [turn for turn in range(count) if found(FIRST_BLOCKS // 2, turn, seed)] for seed in range(4)}
    assert all(len(turns) == 1 for turns in middle.values())
    assert len({turns[0] for turns in middle.values()}) > 1
    assert not any(found(3, turn) for turn in range(count))


def test_a_case_whose_timed_output_is_wrong_gets_no_more_blocks(scripted):
    calls = Counter()

    def kernel(x):
        calls[len(x)] += 1
        return x * (3 if len(x) == 5 and calls[5] > 1 else 2)

    scripted.kernel = kernel
    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert subjects[5].failure.kind == "timed_output_wrong"
    assert subjects[5].failure.facts["count"] == 15
    assert len(subjects[5].blocks) <= 1
    assert [len(subjects[rows].blocks) for rows in (4, 6)] == [FIRST_BLOCKS] * 2


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (lambda x: x * 3, "timed_output_wrong"),
        (lambda x: np.full_like(x, np.nan), "timed_output_wrong"),
        (lambda x: (x * 2)[:-1], "wrong_shape"),
        (lambda x: (x * 2, x * 2), "wrong_count"),
        (lambda x: (x * 2).astype(np.float16), "wrong_dtype"),
    ],
)
def test_a_case_whose_first_output_is_wrong_is_not_timed(scripted, kernel, kind):
    scripted.kernel = kernel
    subjects = scripted.measure()

    assert {subject.facts.failure.kind for subject in subjects.values()} == {kind}
    assert not any(subject.facts.raised for subject in subjects.values())
    assert scripted.order == []


def test_an_output_as_close_as_the_reference_itself_is_right(scripted):
    def rough(sign):
        return lambda x: x * 2 if x.dtype == np.float64 else x * 2 + np.float32(0.01 * sign)

    scripted.reference, scripted.kernel = rough(1), rough(-1.9)
    assert all(subject.facts.failure is None for subject in scripted.measure().values())

    scripted.kernel = rough(-2.1)
    assert all(subject.facts.failure for subject in scripted.measure().values())


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["kernel", "reference"])
def test_a_case_that_launches_nothing_is_named_and_the_others_are_measured(arm):
    scripted = Bench(lambda which, rows: 0.0 if (which, rows) == (arm, 5) else KERNEL_US)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert subjects[5].failure.kind == "nothing_launched"
    assert subjects[5].failure.facts["arm"] == arm
    assert subjects[5].blocks == []
    assert [len(subjects[rows].blocks) for rows in (4, 6)] == [FIRST_BLOCKS] * 2


def raise_on(calls, error):
    """A kernel for which the case of 5 rows raises at the given calls, counted over its life."""
    seen = Counter()

    def kernel(x):
        seen[len(x)] += 1
        if len(x) == 5 and seen[5] in calls:
            raise error
        return x * 2

    return kernel


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("no stream"), "kernel_raised"), (MemoryError("32 GiB"), "out_of_memory")]
)
def test_a_case_that_raises_while_it_is_prepared_is_not_timed(scripted, error, kind):
    scripted.kernel = raise_on({1}, error)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert (subjects[5].facts.failure.kind, subjects[5].facts.raised) == (kind, True)
    assert subjects[5].facts.failure.facts["error"] == type(error).__name__
    assert [len(subjects[rows].blocks) for rows in (4, 5, 6)] == [FIRST_BLOCKS, 0, FIRST_BLOCKS]


@pytest.mark.parametrize("call", [2, 2 + stage.BLOCK_WARMUP, 9, 30])
@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("no stream"), "kernel_raised"), (MemoryError("32 GiB"), "out_of_memory")]
)
def test_a_case_that_raises_while_it_is_timed_costs_no_other_case_its_blocks(scripted, call, error, kind):
    scripted.time_us = lambda arm, rows: {"kernel": 100.0, "reference": 200.0}[arm] * rows
    scripted.kernel = raise_on({call}, error)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    whole = (call - 2) // (stage.BLOCK_WARMUP + rounds(KERNEL_US))
    assert (subjects[5].failure.kind, subjects[5].raised) == (kind, True)
    assert [len(subjects[rows].blocks) for rows in (4, 5, 6)] == [FIRST_BLOCKS, whole, FIRST_BLOCKS]
    for subject in subjects.values():
        medians = {block.arms["kernel"].time.median_us for block in subject.blocks}
        assert medians <= {100.0 * subject.params["rows"]}


def test_declarations_that_raise_are_that_cases_failure(scripted):
    scripted.fields = {"bytes_moved": lambda rows, dtype: 1 // (rows - 5)}

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert subjects[5].facts.failure.facts["error"] == "ZeroDivisionError"
    assert subjects[6].facts.bytes_moved == 1
    assert len(subjects[4].blocks) == FIRST_BLOCKS


def test_what_a_case_declares_and_holds_is_kept(scripted):
    scripted.fields = {"bytes_moved": lambda rows, dtype: 24 * rows, "flops": lambda rows, dtype: 3 * rows}

    facts = scripted.measure()["rows=5,dtype=float32"].facts

    assert (facts.bytes_moved, facts.flops, facts.dtype) == (120, 15, "float32")
    assert facts.footprint_bytes == 120
    assert facts.compile_s > 0
    assert facts.warmup_launches == 2 * stage.WARM_WINDOW


# --- warming up -------------------------------------------------------------------------------------------------------


def warmed(windows):
    device = FakeDevice(FakeSpec(), 1)
    given = iter(windows)
    device.window_s = lambda call, launches: next(given)
    return stage._warm_up(device, None)


def test_warming_up_ends_when_two_windows_agree():
    assert warmed([5e-3, 3e-3, 2.01e-3, 2e-3]) == (40, pytest.approx(200))


def test_warming_up_ends_at_its_limit_though_no_windows_agree():
    assert warmed([0.2, 0.11, 0.05]) == (20, pytest.approx(11_000))


# --- suspicions -------------------------------------------------------------------------------------------------------


def timed_case(scripted, bytes_moved):
    scripted.fields = {"bytes_moved": lambda rows, dtype: bytes_moved}
    subject = scripted.measure()["rows=5,dtype=float32"]
    return dataclasses.replace(subject.facts, blocks=tuple(subject.blocks))


def test_more_than_the_measured_bandwidth_is_suspicious(scripted):
    l2 = scripted.device.info.l2_bytes
    case = timed_case(scripted, 106_000_000 + l2)

    (found,) = suspicions(case, scripted.device, copy_gbps=100.0)

    assert found.kind == "above_bandwidth"
    assert found.facts["gbps"] == pytest.approx(106.0)
    assert suspicions(case, scripted.device, copy_gbps=102.0) == ()
    assert suspicions(case, scripted.device, copy_gbps=None) == ()


def test_what_the_cache_may_hold_is_not_held_against_memory(scripted):
    l2 = scripted.device.info.l2_bytes

    assert suspicions(timed_case(scripted, 4 * l2 - 1), scripted.device, copy_gbps=0.001) == ()
    assert len(suspicions(timed_case(scripted, 4 * l2), scripted.device, copy_gbps=0.001)) == 1


def test_a_replaced_timing_function_is_suspicious_even_without_blocks(scripted, monkeypatch):
    monkeypatch.setattr(scripted.device, "tampered", lambda: ("time.perf_counter",), raising=False)

    (found,) = suspicions(PerformanceCase("rows=5"), scripted.device, None)

    assert (found.kind, found.facts["name"]) == ("timing_function_replaced", "time.perf_counter")


def test_the_global_generator_is_left_alone(scripted):
    random.seed(1)
    np.random.seed(1)
    expected = random.Random(1).random()
    state = np.random.get_state()[1].tolist()

    scripted.measure()

    assert random.random() == expected
    assert np.random.get_state()[1].tolist() == state
