"""The worker's program on the fake device: its answer to each job."""

import os
import subprocess
import sys

import pytest

from perfci.core.model import AccuracyCase, Measured, PlannedOp, Suite
from perfci.ops.identity import DuelPlan
from perfci.worker import child
from perfci.worker.process import start_worker, wait
from perfci.worker.protocol import (
    Apart,
    Failed,
    Finished,
    Holding,
    OpDone,
    Prepared,
    Ready,
    Turn,
    TurnAsked,
)
from perfci.worker.tasks import BaseFiles, Describe, Measure, WorkerEnvironment
from tests.worker.task_examples import make_task

TRITON = """
from {op}_helper import US
from perfci.device import fake


def {op}(x):
    fake.work(US)
    return x * 2
"""
BASELINE = """
import numpy as np


def {op}(x):
    return x * 2


def make_inputs(rows, device, seed):
    return {{"x": np.random.default_rng(seed).normal(size=rows)}}
"""
SUITE = """
import perfci
from perfci.device import fake
from {op}_baseline import make_inputs, {op}
from {op}_triton import {op} as kernel


def reference(x):
    fake.work(150.0)
    return {op}(x)


{suite} = perfci.{kind}(kernel, reference, make_inputs, cases=[{{"rows": 8}}, {{"rows": 16}}])
"""
CASES = ("rows=8", "rows=16")


class Project:
    """A folder with ops with kernels that claim `us` of the fake device's time."""

    def __init__(self, root, ops=("twice",), us=100.0):
        self.root, self.kernels = root, root / "kernels"
        for op in ops:
            folder = self.kernels / op
            folder.mkdir(parents=True)
            (folder / f"{op}_triton.py").write_text(TRITON.format(op=op))
            (folder / f"{op}_baseline.py").write_text(BASELINE.format(op=op))
            (folder / f"{op}_helper.py").write_text(f"US = {us}\n")
            for suite, kind in (("accuracy", "Accuracy"), ("performance", "Performance")):
                (folder / f"{op}_{suite}.py").write_text(SUITE.format(op=op, suite=suite, kind=kind))

    def edit(self, op, part, before, after):
        path = self.kernels / op / f"{op}_{part}.py"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    def task(self, kind=Measure, ops=("twice",), **fields):
        given = {"seed": 7, "suites": (Suite.PERFORMANCE,)} | fields
        return make_task(kind, ops, self.kernels, self.root, **given)

    def as_base(self, op="twice", **fields):
        return BaseFiles(op, self.kernels / op, self.kernels, self.root, DuelPlan(CASES, **fields))


def say(task, folder, turns=(), environment=None):
    """Runs a worker; returns its messages and its failure. `turns` answer its questions."""
    heard, given = [], iter(turns)
    variables = {**os.environ, **(environment or {}), "PYTHONDONTWRITEBYTECODE": "1"}
    with start_worker(task, WorkerEnvironment(variables, folder, folder / "log", 30.0)) as worker:
        while not worker.over:
            wait([worker])
            for message in worker.hear():
                heard.append(message)
                if isinstance(message, TurnAsked):
                    worker.answer(next(given))
        return heard, worker.failure


def of(kind, heard):
    return [message for message in heard if isinstance(message, kind)]


@pytest.fixture
def head(tmp_path):
    return Project(tmp_path / "head")


@pytest.fixture
def base(tmp_path):
    return Project(tmp_path / "base", us=101.0)


def test_a_worker_times_kernel_base_and_reference(head, base):
    heard, failure = say(head.task(base=base.as_base()), head.root)

    assert failure is None
    assert {name for message in of(Measured, heard) for name in message.launches_us} == {"kernel", "reference", "base"}
    assert [message.case.base.same for message in of(Finished, heard)] == [False, False]
    (done,) = of(OpDone, heard)
    assert set(done.limits.matmul_tflops) == set() and done.limits.copy_gbps == 1000.0


def test_a_base_beside_head_that_does_not_import_needs_a_process_of_its_own(head, base):
    base.edit("twice", "triton", "from twice_helper", "raise OSError('port taken')\nfrom twice_helper")

    heard, failure = say(head.task(base=base.as_base()), head.root)

    assert failure is None
    (apart,) = of(Apart, heard)
    assert (apart.reason.kind, apart.reason.facts["message"]) == ("imports_alone", "port taken")
    assert of(Prepared, heard) == []


def test_a_base_alone_waits_to_be_let_onto_the_device_and_is_timed_as_the_base(head, base):
    task = base.task(arm="base", baton=99, lock=False, head_root=str(head.root))

    heard, failure = say(task, base.root, [Turn(-1, ()), Turn(0, CASES), Turn(1, CASES[:1]), Turn(2, ())])

    assert failure is None
    first = next(i for i, message in enumerate(heard) if isinstance(message, TurnAsked))
    assert (
        of(Ready, heard[:first])
        and not of(Holding, heard[:first])
        and not of(Prepared, heard[:first])
        and not of(AccuracyCase, heard)
    )
    assert sorted((message.case, message.block.index) for message in of(Measured, heard)) == [
        ("rows=16", 0),
        ("rows=8", 0),
        ("rows=8", 1),
    ]
    assert {name for message in of(Measured, heard) for name in message.launches_us} == {"base", "reference"}
    assert [message.case.identity.operations for message in of(Prepared, heard)] == [("work(101.0 us)",)] * 2
    assert of(OpDone, heard)[0].limits.copy_gbps is None


def test_a_file_that_calls_exit_does_not_wait_for_the_parent(head):
    head.edit("twice", "triton", "from twice_helper", "exit()\nfrom twice_helper")

    _, failure = say(head.task(), head.root)

    assert (failure.kind, failure.facts["error"]) == ("import_failed", "SystemExit")


def absolute_import(path):
    return (
        "import importlib.util, sys\n"
        f"_spec = importlib.util.spec_from_file_location('by_path', {str(path)!r})\n"
        "_module = importlib.util.module_from_spec(_spec)\n"
        "sys.modules['by_path'] = _module\n_spec.loader.exec_module(_module)\n"
        "US = _module.US\n"
    )


def test_a_base_that_reads_heads_files_is_refused_in_its_own_process_and_when_it_is_described(head, base):
    (base.kernels / "twice" / "twice_helper.py").write_text(absolute_import(head.kernels / "twice" / "twice_helper.py"))

    beside, _ = say(head.task(base=base.as_base()), head.root)
    alone, failure = say(base.task(arm="base", baton=99, head_root=str(head.root)), base.root, [Turn(-1, ())])
    described, _ = say(base.task(Describe, head_root=str(head.root)), base.root)

    assert of(Apart, beside)[0].reason.kind == "imports_other_code"
    assert failure.kind == "base_reaches_head" and failure.facts["file"].startswith(str(head.root))
    assert not of(Holding, alone) and not of(Failed, alone)
    assert of(PlannedOp, described)[0].failure.kind == "base_reaches_head"


@pytest.mark.parametrize(
    ("version", "stale"),
    [("3.4.0", True), ("3.2.0", True), ("3.5.1", False), ("3.10.0+git1", False), ("4.0", False)],
)
def test_a_triton_whose_cache_may_be_stale_compiles_anew(version, stale, monkeypatch):
    """Before 3.5 a kernel with another global constant, of another op or revision, would get the first one's code."""
    monkeypatch.setattr(child, "find_triton_versions", lambda: [version])
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "0")

    child.shun_stale_caches()

    assert (os.environ["TRITON_ALWAYS_COMPILE"] == "1") is stale


# --- what it starts with ----------------------------------------------------------------------------------------------

RARE = (
    "yaml", "email", "zipfile", "importlib.metadata", "tomllib", "socket", "perfci.extensions.lab", "perfci.git",
    "perfci.core.settings", "perfci.thresholds.place", "perfci.thresholds.read",
    "perfci.worker.process",
)  # fmt: skip
"""Modules that few workers come to need, and that would be paid for at every start of one."""

MEASURING = ("perfci.measure.verify", "perfci.measure", "perfci.measure.outputs", "perfci.statistics.exact")
"""What a worker needs that does not only describe."""


@pytest.mark.parametrize(
    ("module", "unwanted"), [("perfci.worker.child", (*RARE, *MEASURING)), ("perfci.worker.work", RARE)]
)
def test_a_worker_starts_without_what_it_may_never_need(module, unwanted):
    code = (
        f"import sys; before = set(sys.modules); import {module}; "
        f"print([name for name in {unwanted} if name in sys.modules.keys() - before])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
