"""An op of another process, where its calls are repeated from recordings."""

import os
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from perfci.core.model import Reason, Suite
from perfci.device.arrays import Damage
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.device.numpy_arrays import NumpyArrays
from perfci.measure.bench import Rig
from perfci.measure.suspect import calls_reference
from perfci.ops.recording import RecordedStep, Recording
from perfci.ops.spec import Performance
from perfci.worker.handover import DONE, READY, RETURNED, Arena, Called, HostLostError
from perfci.worker.remote import RemoteDevice, RemoteOp, repeat_own


class Repeating:
    """A device that repeats calls, each recording as a function of its inputs."""

    can_replay = True

    def __init__(self):
        self.arrays = NumpyArrays()

    def key_of(self, inputs):
        return repr([(name, getattr(value, "shape", value)) for name, value in inputs.items()])

    def watch_races(self):
        raise NotImplementedError

    def record_kernels(self):
        return nullcontext()

    def out_of_memory(self, error):
        return False

    def synchronize(self):
        pass

    def play(self, recording, folder):
        return lambda x, **_: x


class Recorded:
    """The op's process: it gives a recording of any call, and hears nothing once it was ended."""

    over = failure = None

    def __init__(self):
        self.ended, self.asked = False, 0
        self.reading, self.writing = os.pipe()

    def fileno(self):
        return self.reading

    def patience(self):
        return 0.0

    def answer(self, call):
        assert not self.ended
        self.asked += 1

    def hear(self):
        return [Called(recording=Recording("", (), (), {"tensor": 0}))]

    def end(self):
        self.ended = True


def make_inputs(rows, device, seed):
    return {"x": np.full(rows + (seed % 2 if rows == 7 else 0), seed, float), "seed": seed, "rate": 0.5 + seed}


@pytest.fixture
def rig():
    suite = Performance(
        kernel=lambda x, seed, rate: x,
        reference=lambda x, seed, rate: x,
        make_inputs=make_inputs,
        cases=({"rows": 4}, {"rows": 7}),
    )
    return Rig(suite, Repeating(), lambda _: {}, seed=1, process=0, budget_s=1.0, run_started=0.0)


@pytest.fixture
def remote(rig):
    process = Recorded()
    yield RemoteOp(process, rig.device, Arena.create(), Path(), Path(), lambda: None), process
    os.close(process.reading)
    os.close(process.writing)


def test_a_number_that_is_drawn_from_the_seed_stays_the_one_that_was_recorded(rig, remote):
    op, process = remote
    kernel = op.kernel(Suite.PERFORMANCE)
    kernel(**rig.make_inputs(rig.suite, {"rows": 4}, 10))
    op.end()

    later = rig.make_inputs(rig.suite, {"rows": 4}, 11)

    assert (later["seed"], later["rate"]) == (10, 10.5)
    assert later["x"].tolist() == [11.0] * 4
    assert op.can_repeat(later)
    assert kernel(**later) is later["x"]
    assert process.asked == 1


def test_inputs_whose_shape_changes_with_the_seed_cannot_be_repeated(rig, remote):
    op, _ = remote
    op.kernel(Suite.PERFORMANCE)(**rig.make_inputs(rig.suite, {"rows": 7}, 10))

    assert not op.can_repeat(rig.make_inputs(rig.suite, {"rows": 7}, 11))


def test_what_goes_on_in_the_process_is_seen_by_way_of_a_device_of_its_own_and_the_device_is_left_alone():
    device = FakeDevice(FakeSpec(), 1)
    before = {**vars(device)}, {**vars(device.arrays)}
    layer = RemoteDevice(device)
    answer = Called(damage=Damage(2, 3, 0), races=(("two stores", 4, (0, 1)),), launched=("tile",), in_use=7)

    with layer.arrays.watch_allocations("nan") as watch, layer.watch_races() as races:
        layer.see(answer)
        assert (layer.arrays.filler, watch.find_damage().zones, [race.kind for race in races]) == (
            "nan",
            2,
            ["two stores"],
        )

    out_of_memory = type("RemoteError", (RuntimeError,), {"kinds": ("OutOfMemoryError",)})()
    assert layer.out_of_memory(out_of_memory) and not device.out_of_memory(out_of_memory)
    lost = type("RemoteError", (RuntimeError,), {"kinds": ("DeviceLost",)})()
    assert layer.is_lost(lost) and not layer.is_lost(out_of_memory)
    device.start_timer()
    assert (layer.timer, layer.info, layer.arrays.kind) == ("virtual", device.info, np.ndarray)
    assert (vars(device).keys(), vars(device.arrays)) == (before[0].keys(), before[1])


@pytest.mark.torch
@pytest.mark.parametrize(("launched", "operation"), [(("tile",), None), ((), "aten.clone")])
def test_launches_in_the_process_show_that_torch_does_not_do_the_work_whose_answer_is_copied_here(launched, operation):
    import torch

    from perfci.device.cpu import CpuDevice

    layer, x = RemoteDevice(CpuDevice()), torch.zeros(4)
    with layer.seam.capture_work() as kernel:
        x.expand(3, 4).clone()  # as the answer's memory is
        layer.see(Called(launched=launched))
    with layer.seam.capture_work() as reference:
        x.expand(3, 4).clone()

    assert calls_reference(kernel.identity(""), reference.identity("")) == operation


@pytest.mark.parametrize("error", [AttributeError("save"), KeyError("kernel"), ValueError("aten.save.default")])
def test_a_recording_that_cannot_be_one_ends_its_process_and_says_what_was_sent(rig, remote, monkeypatch, error):
    op, process = remote
    told = []
    process.refuse = lambda message: told.append(message) or Reason("worker_unasked", {"message": message})
    monkeypatch.setattr(rig.device, "play", mock.Mock(side_effect=error))

    with pytest.raises(HostLostError) as caught:
        op.kernel(Suite.PERFORMANCE)(**make_inputs(4, "cpu", 1))

    assert caught.value.reason.kind == "worker_unasked"
    assert told == [f"Called with what is no recording: {error}"]


# --- turns of calls ---------------------------------------------------------------------------------------------------


class Turning(Recorded):
    """The op's process: answers each call with the next of these messages. Sets so many marks of a turn before."""

    def __init__(self, answers, marks):
        super().__init__()
        self.over = False
        self.answers, self.marks = [Called(), *answers], marks
        self.calls, self.still, self.arena = [], [], Arena.create()

    def answer(self, call):
        self.calls.append((call.calls, bool(call.inputs)))
        for mark in (READY, RETURNED, DONE)[: 0 if call.inputs else self.marks]:
            self.arena.marks[mark] = 1

    def stand_still(self, *, still):
        self.still.append(still)

    def hear(self):
        return [self.answers.pop(0)]


@pytest.fixture
def turning(rig):
    opened = []

    def make(*answers, timer="activity", marks=3):
        rig.device.timer = timer
        process = Turning(answers, marks)
        opened.append(process)
        return RemoteOp(process, rig.device, process.arena, Path(), Path(), lambda: None), process

    yield make
    for process in opened:
        os.close(process.reading)
        os.close(process.writing)


INPUTS = {"x": np.zeros(4)}


def test_a_turn_is_timed_by_the_judges_clock_whatever_the_process_claims(turning):
    op, process = turning(Called(turn_s=(1e6, 1e6)))

    host_s, loop_s = op.hold(INPUTS)(50)

    assert 0 < host_s <= loop_s < 1e6
    # The inputs are handed over once.
    assert process.calls == [(0, True), (50, False)]


def test_on_a_device_without_hardware_a_turn_takes_what_is_claimed(turning):
    op, _ = turning(Called(turn_s=(2.0, 3.0)), timer="virtual")

    assert op.hold(INPUTS)(50) == (2.0, 3.0)


@pytest.mark.parametrize("marks", [0, 1, 3])
def test_the_answers_of_two_turns_are_not_mixed_up(turning, marks):
    # A process that sets no marks, as it has stopped at some, has answered all the same.
    op, _ = turning(Called(turn_s=(1.0, 1.0)), Called(turn_s=(2.0, 2.0)), timer="virtual", marks=marks)

    turn = op.hold(INPUTS)

    assert [turn(50), turn(50)] == [(1.0, 1.0), (2.0, 2.0)]


@pytest.mark.parametrize("marks", [0, 1, 2, 3])
def test_what_the_kernel_raises_in_a_turn_is_raised_here(turning, marks):
    op, _ = turning(Called(error={"message": "too large"}, kinds=("ValueError",)), marks=marks)

    with pytest.raises(ValueError, match="too large"):
        op.hold(INPUTS)(50)


def test_the_process_runs_during_its_turns_alone(turning):
    op, process = turning(Called())

    op.hold(INPUTS)(50)

    assert process.still == [False, True, False, True]


def test_a_process_that_stands_still_goes_on_to_give_a_recording(turning):
    op, process = turning(Called(recording=Recording("", (), (), {"tensor": 0})))
    op.hear()
    op.stand_still()

    op.kernel(Suite.PERFORMANCE)(x=np.ones(3))

    assert process.still == [True, False, True]


@pytest.mark.parametrize(("operation", "elsewhere"), [("driver.launch", True), ("aten.add.Tensor", False)])
def test_a_base_is_called_in_its_process_where_only_the_driver_shows_what_head_does(rig, operation, elsewhere):
    """Also if the base comes first, as in every second process."""
    recording = Recording("", (), (RecordedStep(operation),), {"tensor": 0})
    process = Recorded()
    process.hear = lambda: [Called(recording=recording)]
    head = RemoteOp(process, rig.device, Arena.create(), Path(), Path(), lambda: None)
    rig.device.record = lambda function, inputs: None

    def there(inputs):
        return (lambda **_: "there") if head.does_more(inputs) else None

    call = repeat_own(lambda **_: "here", rig.device, Path(), there)

    assert call(x=np.ones(3)) == ("there" if elsewhere else "here")
    assert process.asked == 1
    assert call(x=np.ones(3)) == ("there" if elsewhere else "here")
    assert process.asked == 1
    os.close(process.reading)
    os.close(process.writing)


def test_a_process_that_has_ended_takes_no_turn(turning):
    op, process = turning()
    process.over, process.failure = True, Reason("worker_silent")

    with pytest.raises(HostLostError) as caught:
        op.hold(INPUTS)
    assert caught.value.reason.kind == "worker_silent"
