"""A device with launches that take scripted times, and a record of all its calls."""

from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from perfci.core.model.measured import Launch
from perfci.device.fake import FakeDevice, FakeSpec, work
from perfci.device.seam import warm_cache
from perfci.device.source import inputs_digest
from perfci.measure import blocks
from perfci.measure.bench import BaseKernel, Rig
from perfci.measure.prepare import prepare
from perfci.ops.identity import DuelPlan
from perfci.ops.spec import Performance, grid

CASES = grid(rows=[4, 5, 6], dtype=["float32"])
NAMES = tuple(f"rows={rows},dtype=float32" for rows in (4, 5, 6))
KERNEL_US, REFERENCE_US = 1000.0, 1500.0
BASE_ROOT, HEAD_ROOT = Path("/base"), Path("/head")


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def working(us, double=lambda x: x * 2):
    """A kernel that claims so much of the fake device's time: its identity."""

    def kernel(x):
        work(us)
        return double(x)

    return kernel


def raise_on(calls, error):
    """A kernel for which the case of 5 rows raises at the given calls, counted over its life."""
    seen = Counter()

    def kernel(x):
        seen[len(x)] += 1
        if len(x) == 5 and seen[5] in calls:
            raise error
        return x * 2

    return kernel


class Scripted:
    """A suite of three cases, its device, and what was measured."""

    def __init__(self, time_us=None, **spec):
        self.device = FakeDevice(FakeSpec(**spec), 1)
        self.device.session = self.session
        self.device.window_s = lambda call, launches: launches * KERNEL_US * 1e-6
        lengths = {"kernel": KERNEL_US, "reference": REFERENCE_US, "base": KERNEL_US}
        self.time_us = time_us or (lambda arm, rows: lengths[arm])
        self.sessions = []
        self.seeds = []
        self.kernel, self.reference = self.double, self.double
        self.base = None
        """the base's kernel, if there is one"""
        self.against = {}
        """further fields of the opponent"""
        self.limits = {}
        self.cases = CASES
        self.fields = {}
        self.settings = {}
        self.heard = []
        self.steps = []

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

    def opponent(self):
        if self.base is None:
            return None
        plan = DuelPlan(**({"cases": NAMES} | self.against))
        return BaseKernel(self.base, BASE_ROOT, HEAD_ROOT, inputs_digest(self.make_inputs), plan)

    def bench(self, seed=1, process=0, budget_s=1.0):
        suite = Performance(self.kernel, self.reference, self.make_inputs, self.cases, **self.fields)
        return Rig(
            suite, self.device, describe, seed, process, budget_s, 0.0, self.steps.append, self.opponent(), self.limits,
            **self.settings,
        )  # fmt: skip

    def prepare(self, **settings):
        """The first case's subject."""
        return prepare(self.bench(**settings), self.cases[0])

    def measure(self, **settings):
        """Prepares and measures all cases; returns the subjects by case."""
        on = self.bench(**settings)
        subjects = [prepare(on, params) for params in self.cases]
        self.heard = []
        blocks.measure(on, subjects, self.hear)
        return {subject.case: subject for subject in subjects}

    def hear(self, measured):
        self.heard.append((measured.case, measured.block, measured.launches_us))

    @property
    def order(self):
        """(arm, rows) of every launch."""
        return [launch for session in self.sessions for launch in session.order]


class ScriptedSession:
    def __init__(self, time_us):
        self._time_us = time_us
        self._launches = []
        self.order = []
        self.warm = []
        """of every launch, whether it was one behind a call that warms"""
        self.pauses = []
        self.asides = []

    def launch(self, call, *, warm=False, rest_us=0.0):
        if warm:
            warm_cache(call)
        self.warm.append(warm)
        result = call()
        rows = len(call.inputs["x"])
        us = self._time_us(call.arm, rows)
        self.order.append((call.arm, rows))
        self._launches.append(Launch(us, us + 1, 5.0, 1 if us else 0))
        return result

    def pause(self):
        self.pauses.append(len(self.order))

    def aside(self):
        self.asides.append(len(self.order))

    def launches(self):
        return self._launches


def noisy(spread, seed=1):
    """Times with block medians that scatter: one draw for a run of launches of the same case."""
    rng = np.random.default_rng(seed)
    state = {"rows": None, "factor": 1.0}

    def time_us(arm, rows):
        if rows != state["rows"]:
            state.update(rows=rows, factor=float(np.exp(rng.normal(0, spread))))
        return {"kernel": KERNEL_US, "reference": REFERENCE_US, "base": KERNEL_US}[arm] * state["factor"]

    return time_us
