"""A search's cases for which a kernel launches so many programs that the interpreter would be at it for minutes."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from perfci.core.model import Reason, Suite
from perfci.core.wording import sentence
from perfci.device import open_device
from perfci.extensions.interpreter import bounds
from perfci.measure import search
from perfci.measure.verify import LEFT, Check, verify
from perfci.ops.spec import Accuracy, Performance, grid
from perfci.worker import work
from perfci.worker.handover import Arena
from perfci.worker.load import LoadedOp
from perfci.worker.remote import RemoteOp
from perfci.worker.serve import _Server
from perfci.worker.work import Worker
from tests.worker.task_examples import make_task

MOST_COLUMNS = 32768  # a literal: the search tries one column more


@triton.jit
def negate_column(x_ptr, out_ptr, rows, columns, block: tl.constexpr):
    place = tl.arange(0, block)
    for row in range(rows):
        at = row * columns + tl.program_id(0) + place
        tl.store(out_ptr + at, -tl.load(x_ptr + at, mask=place < 1), mask=place < 1)


def negate(x):
    out = torch.empty_like(x)
    negate_column[(x.shape[1],)](x, out, *x.shape, 1)
    return out


def make_inputs(rows, cols, dtype, device, seed):
    return {"x": torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed)).to(dtype)}


CASES = grid(rows=[1, 3], cols=[1, 5, 33, 34], dtype=[torch.float32])
SUITE = Accuracy(negate, torch.neg, make_inputs, CASES, layouts=("contiguous",))
LONG = {"rows": 1, "cols": MOST_COLUMNS + 1, "dtype": torch.float32}


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(search, "MOST_S", 0.05)
    return open_device("cpu", seed=1)


def describe(error):
    return {"error": type(error).__name__, "message": str(error)}


def make(params, device, suite=SUITE):
    return search.search(suite, device, Check(params, "edges", "contiguous", 1, fresh=True), describe, None)


def test_a_searched_case_with_a_program_for_each_of_many_columns_is_left_out_and_its_op_is_right(device, monkeypatch):
    monkeypatch.setattr(search, "SHARE", 1)
    said = []

    class Channel:
        send = staticmethod(said.append)

    task = make_task(ops=("negate",), device="cpu", seed=7, suites=(Suite.ACCURACY,))
    loaded = LoadedOp(SUITE, Performance(negate, torch.neg, make_inputs, CASES))
    worker = Worker(task, Channel(), device, loaded)

    assert worker.verify()
    worker.measure(right=True)

    (note,) = said[-1].notes
    assert note.kind == LEFT
    assert int(note.facts["count"]) >= 1
    assert "such as rows=" in sentence(note)


def test_of_many_long_cases_two_spend_their_time_and_the_rest_is_left_out(device, monkeypatch):
    planned = [Check({**LONG, "rows": rows}, "edges", "contiguous", 1, fresh=True) for rows in (2, 1, 1, 3)]
    short = Check({**LONG, "cols": 7}, "edges", "contiguous", 1, fresh=True)
    tried, said = [], []

    def take_long(suite, device, check, *_):
        tried.append(check)
        return None if check is short else check.result(unchecked=Reason(LEFT, {"case": check.case, "count": 1}))

    class Channel:
        send = staticmethod(said.append)

    monkeypatch.setattr(work, "plan_search", lambda *_, **__: [*planned, short])
    monkeypatch.setattr(work, "search", take_long)
    task = make_task(ops=("negate",), device="cpu", seed=7, suites=(Suite.ACCURACY,))
    worker = Worker(task, Channel(), device, LoadedOp(SUITE, Performance(negate, torch.neg, make_inputs, CASES)))

    assert worker.verify()
    worker.measure(right=True)

    assert tried == [*planned[:2], short]
    assert [(note.kind, note.facts["count"]) for note in said[-1].notes] == [(LEFT, 4)]


def test_a_case_that_the_search_has_time_for_is_checked_and_the_suites_own_cases_have_no_limit(device):
    assert make({**LONG, "cols": 40}, device) is None
    assert make(LONG, device).unchecked == Reason(LEFT, {"case": "rows=1,cols=32769,dtype=float32", "count": 1})
    own = Check({**LONG, "cols": 2000}, "normal", "contiguous", 1, fresh=True)
    assert verify(SUITE, device, own, describe).unchecked is None


def test_each_call_of_a_base_has_a_time_of_its_own_and_one_that_takes_longer_is_told(device, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bounds, "time", SimpleNamespace(process_time=lambda: now[0]))

    def spend(share, sign):
        def kernel(x):
            now[0] += share * search.MOST_S
            return sign * negate(x)

        return kernel

    check = Check({**LONG, "cols": 3}, "edges", "contiguous", 1, fresh=True)
    faulty, right = (replace(SUITE, kernel=spend(0.4, sign)) for sign in (-1, 1))

    assert search.search(faulty, device, check, describe, spend(0.8, 1)).failure.kind == "wrong_values"
    assert search.search(right, device, check, describe, spend(0.8, 1)) is None
    for suite in (faulty, right):  # of the second neither is seen whether it is less exact
        assert search.search(suite, device, check, describe, spend(1.2, 1)).unchecked.kind == LEFT


def test_a_reference_that_takes_long_at_half_a_size_leaves_the_case_out(device, monkeypatch):
    monkeypatch.setattr(search, "SLOW_S", -1.0)

    assert make({**LONG, "cols": 100}, device).unchecked.kind == LEFT


class Process:
    """The op's process, in this one: it answers a call as it is asked."""

    over = failure = None

    def __init__(self, server):
        self.server, self.answers = server, []
        self.reading, self.writing = os.pipe()
        os.write(self.writing, b".")

    def fileno(self):
        return self.reading

    def patience(self):
        return 0.0

    def answer(self, call):
        self.answers, self.most_s = [self.server.answer(call)], call.most_s

    def hear(self):
        return self.answers


def test_a_kernel_that_another_process_calls_has_the_same_limit(device, tmp_path):
    arena = Arena.create()
    process = Process(_Server(arena, open_device("cpu", seed=1), LoadedOp(SUITE, SUITE), tmp_path, None))
    remote = RemoteOp(process, device, arena, tmp_path, tmp_path / "negate.py", lambda: None)
    there = replace(SUITE, kernel=remote.kernel(Suite.ACCURACY))

    assert make(LONG, remote.device, there).unchecked.kind == LEFT
    assert process.most_s == search.MOST_S
    with remote.device.bound_calls(2.0):
        with remote.device.bound_calls(1.0):
            assert remote.device.most_s == 1.0
        assert remote.device.most_s == 2.0
