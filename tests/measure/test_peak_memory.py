"""The most device memory of a call, of the kernel and of its base."""

from contextlib import contextmanager

import pytest

from perfci.device.seam import PeakMemory
from tests.measure.scripted import Scripted, working

INPUTS = 1000


class Memory:
    """A device's memory as its kernels fill it."""

    def __init__(self, bench):
        self.held = self.most = INPUTS
        bench.device.arrays.memory_in_use = lambda: self.held
        bench.device.peak_memory = self.watched

    @contextmanager
    def watched(self):
        peak = PeakMemory()
        self.most = self.held
        yield peak
        peak.bytes = self.most

    def kernel(self, us, needs, keeps=0):
        """A kernel that takes so many bytes while it runs, and keeps some from its first call on."""
        work, calls = working(us), []

        def call(x):
            self.held += 0 if calls else keeps
            calls.append(x)
            self.most = max(self.most, self.held + needs)
            return work(x)

        return call


@pytest.fixture
def scripted():
    return Scripted()


def _peaks(scripted, kernel, base, process=0):
    scripted.kernel, scripted.base = kernel, base
    facts = scripted.prepare(process=process).facts
    return facts.peak_bytes, facts.base.peak_bytes


def test_kernel_and_base_are_each_seen_with_the_inputs(scripted):
    memory = Memory(scripted)

    assert _peaks(scripted, memory.kernel(1.0, 500), memory.kernel(2.0, 300)) == (INPUTS + 500, INPUTS + 300)


def test_what_the_kernel_keeps_from_call_to_call_is_not_put_down_to_the_base(scripted):
    memory = Memory(scripted)

    now, before = _peaks(scripted, memory.kernel(1.0, 500, keeps=4000), memory.kernel(2.0, 300))

    assert (now, before) == (INPUTS + 4000 + 500, INPUTS + 300)
