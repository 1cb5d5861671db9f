"""Host time: which cases have it, what a block of it holds, and who is to blame if a call of it raises."""

import math
from collections import Counter

import pytest

from perfci.core.errors import HandoverError
from perfci.core.model import DuelWhat, Reason
from perfci.device.fake import keep_host
from perfci.measure import blocks
from perfci.measure.host import MOST_LAUNCHES, TURNS
from perfci.measure.prepare import prepare
from tests.measure.scripted import NAMES, Scripted, working


class Short(Scripted):
    """Kernels of 20 us on the device, whose calls keep the host for 5 us and as much more as is planted."""

    def __init__(self, more_us=0.0, device_us=20.0, **spec):
        super().__init__(lambda arm, rows: device_us, **({"host_noise": 0.0} | spec))
        self.device.window_s = lambda call, launches: launches * device_us * 1e-6
        self.cases = self.cases[:1]
        self.kernel, self.base = waiting(more_us, device_us), waiting(0.0, device_us)

    def host(self, **settings):
        (subject,) = self.measure(**settings).values()
        return subject


def waiting(us, device_us):
    kernel = working(device_us)

    def call(x):
        keep_host(us)
        return kernel(x)

    return call


def test_a_block_holds_how_long_a_call_of_each_arm_keeps_the_host_and_what_a_loop_takes():
    subject = Short(more_us=1.0).host()

    first = subject.host[0]
    assert {name: (arm.host_us, arm.loop_us) for name, arm in first.arms.items()} == {
        "kernel": (pytest.approx(6.0), pytest.approx(20.0)),
        "base": (pytest.approx(5.0), pytest.approx(20.0)),
    }
    assert first.shift == pytest.approx(math.log(6 / 5))


def test_a_loop_takes_the_host_time_where_that_is_the_longer_one():
    subject = Short(more_us=30.0).host()

    assert subject.host[0].arms["kernel"].loop_us == pytest.approx(35.0)


@pytest.mark.parametrize(("more_us", "count"), [(0.0, 4), (1.0, 4), (2.0, 12), (30.0, 12)])
def test_four_blocks_clear_a_growth_of_half_of_what_is_allowed_and_others_get_twelve(more_us, count):
    assert len(Short(more_us).host().host) == count


@pytest.mark.parametrize(("device_us", "count"), [(99.0, 4), (101.0, 0)])
def test_host_time_matters_to_kernels_of_less_than_100_us(device_us, count):
    scripted = Short(device_us=device_us)
    scripted.against = {"duel": DuelWhat.ALL}

    assert len(scripted.host().host) == count


def test_a_later_process_takes_all_its_blocks_of_a_case_that_is_compared():
    subject = Short().host(process=1)

    assert {block.process for block in subject.host} == {1}
    assert len(subject.host) == 12


def test_work_proven_the_same_is_not_timed_but_its_host_time_is_compared():
    scripted = Short(more_us=30.0)

    subject = scripted.host()

    assert subject.facts.base.same
    assert not subject.blocks
    assert all(block.shift == pytest.approx(math.log(7)) for block in subject.host)


@pytest.mark.parametrize(("more_us", "count"), [(30.0, 0), (400.0, 12)])
def test_what_is_not_timed_has_host_times_if_a_loop_of_its_calls_is_bound_by_the_host(more_us, count):
    assert len(Short(more_us, device_us=500.0).host().host) == count


@pytest.mark.parametrize("settings", [{"duel": DuelWhat.NONE}, {"cases": ()}])
def test_without_a_base_to_compare_with_the_kernels_own_host_time_is_taken_in_the_first_process(settings):
    scripted = Short(more_us=1.0)
    scripted.against = settings | {"skip_unchanged": False}

    first, later = scripted.host(), scripted.host(process=1)

    assert [(set(block.arms), block.shift) for block in first.host] == [({"kernel"}, None)] * 4
    assert not later.host


def test_a_base_with_the_same_files_is_not_compared_with():
    scripted = Short()
    opponent = scripted.opponent
    scripted.opponent = lambda: type(opponent())(**vars(opponent()) | {"differs": False})

    assert {block.shift for block in scripted.host().host} == {None}


def test_a_kernel_that_raises_in_a_turn_ends_the_case():
    scripted = Short(more_us=1.0)
    scripted.kernel = counted(scripted.kernel, 60)

    subject = scripted.host()

    assert (subject.failure.kind, subject.raised) == ("kernel_raised", True)


def test_a_base_that_raises_in_a_turn_ends_the_comparison_and_nothing_else():
    scripted = Short(more_us=1.0)
    scripted.base = counted(scripted.base, 60)

    subject = scripted.host()

    assert not subject.broken
    assert subject.facts.unhosted.kind == "unhosted"
    assert subject.facts.unhosted.facts["message"] == "enough"
    assert set(subject.host[-1].arms) == {"kernel"}


def counted(function, most):
    """A kernel that raises from a number of calls on."""
    seen = Counter()

    def kernel(x):
        seen["calls"] += 1
        if seen["calls"] > most:
            raise ValueError("enough")
        return function(x)

    return kernel


# --- calls in another process -----------------------------------------------------------------------------------------


class Elsewhere:
    """Makes turns that take scripted times: so much for asking, so much for each call."""

    def __init__(self, call_us, asking_us=200.0, loop_us=0.0):
        self.call_us, self.asking_us, self.loop_us = call_us, asking_us, loop_us
        self.made = []

    def hold(self, inputs):
        assert set(inputs) == {"x"}
        return self.turn

    def turn(self, calls):
        self.made.append(calls)
        host_us = self.asking_us + calls * self.call_us
        return host_us / 1e6, (host_us + calls * self.loop_us) / 1e6


def elsewhere(kernel, base, scripted=None):
    scripted = scripted or Short()
    scripted.settings = {"callers": {"kernel": kernel.hold, "base": base.hold}}
    return scripted.host()


def test_what_asking_another_process_takes_is_taken_out():
    subject = elsewhere(Elsewhere(8.0), Elsewhere(4.0, asking_us=300.0))

    arms = subject.host[0].arms
    assert (arms["kernel"].host_us, arms["base"].host_us) == (pytest.approx(8.0), pytest.approx(4.0))


def test_both_arms_make_turns_of_as_many_calls_that_fill_no_queue():
    kernel, base = Elsewhere(0.1), Elsewhere(0.1)

    subject = elsewhere(kernel, base)

    assert subject.host[-1].calls == MOST_LAUNCHES
    assert [arm.made.count(MOST_LAUNCHES) >= TURNS * len(subject.host) for arm in (kernel, base)] == [True, True]
    assert max(kernel.made + base.made) == MOST_LAUNCHES


def test_a_turn_of_calls_that_keep_the_device_long_has_few_of_them():
    subject = elsewhere(Elsewhere(5.0, loop_us=85.0), Elsewhere(5.0, loop_us=85.0))

    assert subject.host[-1].calls == 22  # two milliseconds


def test_a_base_whose_process_is_lost_leaves_the_kernel_its_own_host_time():
    class Lost(Elsewhere):
        def turn(self, calls):
            raise HandoverError(Reason("worker_silent"))

    subject = elsewhere(Elsewhere(5.0), Lost(5.0))

    assert not subject.broken
    assert subject.facts.unhosted.facts["case"] == NAMES[0]
    assert [set(block.arms) for block in subject.host] == [{"kernel"}] * 4


def test_a_kernel_whose_process_is_lost_ends_more_than_its_case():
    class Lost(Elsewhere):
        def turn(self, calls):
            raise HandoverError(Reason("worker_silent"))

    with pytest.raises(HandoverError):
        elsewhere(Lost(5.0), Elsewhere(5.0))


def test_time_that_is_up_before_host_times_were_compared_leaves_a_case_short():
    scripted = Short(more_us=30.0)
    bench = scripted.bench()
    subject = prepare(bench, scripted.cases[0])

    blocks.measure(bench, [subject], scripted.hear)
    enough = is_short_when_late(bench, subject)
    subject.host.pop()

    assert (enough, is_short_when_late(bench, subject)) == (False, True)


def is_short_when_late(bench, subject):
    object.__setattr__(bench, "until_s", 0.0)
    return blocks.is_short(bench, subject)


@pytest.mark.parametrize(("device_us", "sessions"), [(20.0, 2), (400.0, 1)])
def test_half_of_a_first_look_comes_after_the_first_host_times_of_the_process(device_us, sessions):
    scripted = Short(device_us=device_us)
    scripted.against = {"duel": DuelWhat.ALL}

    assert len(scripted.host().blocks) == 4
    assert len(scripted.sessions) == sessions
