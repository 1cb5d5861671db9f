import dataclasses

import numpy as np
import pytest

from perfci.core.errors import RecordsLostError, UsageError
from perfci.device import detect, fake, open_device
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.device.numpy_arrays import NumpyArrays

QUIET = FakeSpec(launch_noise=0.0, block_noise=0.0, spike_share=0.0)


class Arm:
    def __init__(self, us, arm="kernel"):
        self.us, self.arm = us, arm

    def __call__(self):
        for us in np.atleast_1d(self.us):
            fake.work(float(us))
        return self.us


def times(device, arms, blocks=1):
    with device.session() as session:
        for _ in range(blocks):
            for arm in arms:
                session.launch(arm)
            session.pause()
    return [launch.time_us for launch in session.launches()]


def test_every_work_is_an_activity_and_none_is_no_time():
    with FakeDevice(QUIET, 1).session() as session:
        session.launch(Arm([3.0, 4.0]))
        session.launch(lambda: "cached")

    assert [(launch.activities, launch.time_us > 0) for launch in session.launches()] == [(2, True), (0, False)]


def test_a_warm_launch_takes_its_planted_share_and_the_calls_that_warm_are_not_timed():
    device = FakeDevice(dataclasses.replace(QUIET, warm_factor=0.5), 1)
    with device.session() as session:
        results = [session.launch(Arm([3.2, 3.2]), warm=warm) for warm in (True, False)]

    assert [launch.time_us for launch in session.launches()] == pytest.approx([3.2, 6.4])
    assert [launch.activities for launch in session.launches()] == [2, 2]
    assert results == [[3.2, 3.2]] * 2


def test_planted_drift_and_speed_show():
    drifting = FakeSpec(**{**vars(QUIET), "drift_per_block": 0.01, "speed": 0.5})

    measured = times(FakeDevice(drifting, 1), [Arm(1000.0)], blocks=3)

    assert measured == pytest.approx([2000.0, 2000 * np.exp(0.01), 2000 * np.exp(0.02)], rel=1e-4)


def test_a_process_effect_is_an_arms_own_and_lasts_the_whole_process():
    biased = FakeSpec(launch_noise=0.0, block_noise=0.0, spike_share=0.0, process_noise=0.05)
    device = FakeDevice(biased, 1)

    first = times(device, [Arm(1000.0), Arm(1000.0, "reference")])
    again = times(device, [Arm(1000.0), Arm(1000.0, "reference")])

    assert first == again
    assert first[0] != first[1]


def test_state_and_limits_are_what_is_planted():
    spec = FakeSpec.read({"throttle": ["thermal"], "foreign_processes": 2, "speed": 0.9, "model": "Fake Two"})
    device = open_device("fake", seed=1, fake={"model": "Fake Two"})

    state = FakeDevice(spec, 1).state()

    assert (state.throttle, state.foreign_processes) == (("thermal",), 2)
    assert FakeDevice(spec, 1).limits(["float16"]).matmul_tflops == {"float16": pytest.approx(90.0)}
    assert (device.info.key, device.absent, device.timer) == ("fake-two", None, "virtual")


def claimed(device, *arms):
    with device.capture_work() as capture:
        for arm in arms:
            arm()
    return capture.identity("inputs")


def test_a_kernels_identity_is_the_work_that_it_claims():
    device = FakeDevice(QUIET, 1)

    assert claimed(device, Arm([12.8, 3.0])).operations == ("work(12.8 us)", "work(3.0 us)")
    assert claimed(device, Arm(5.0)) == claimed(FakeDevice(QUIET, 2), Arm(5.0)) != claimed(device, Arm(5.5))
    assert claimed(device, Arm(5.0)).unknown is None


def test_an_unknown_setting_or_device_is_a_usage_error():
    with pytest.raises(UsageError) as setting:
        FakeSpec.read({"nois": 1})
    with pytest.raises(UsageError) as device:
        open_device("tpu", seed=1)

    assert setting.value.reason.facts["key"] == "nois"
    assert "launch_noise" in setting.value.reason.facts["known"]
    assert device.value.reason.kind == "unknown_device"


@pytest.mark.torch
def test_the_interpreter_shows_nothing_of_what_a_device_would_do():
    device = open_device("cpu", seed=1)
    with device.capture_work() as capture, device.peak_memory() as peak:
        pass

    assert capture.identity("inputs").unknown is not None
    assert (capture.identity("inputs").inputs, capture.sources, peak.bytes) == ("inputs", (), None)


@pytest.mark.torch
def test_auto_is_the_gpu_or_else_the_cpu():
    import torch

    assert detect() == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_share_of_the_time_that_launches_claim_really_passes(monkeypatch):
    slept = []
    monkeypatch.setattr("perfci.device.fake.time.sleep", slept.append)
    with FakeDevice(
        FakeSpec(launch_noise=0.0, block_noise=0.0, spike_share=0.0, wall_share=2.0), 1
    ).session() as opened:
        opened.launch(lambda: fake.work(320.0))

    assert slept == pytest.approx([640e-6])


def test_lost_records_leave_launches_without_a_time_and_the_others_as_they_were():
    def times(**lost):
        with FakeDevice(FakeSpec(**lost), 1).session() as opened:
            for _ in range(200):
                opened.launch(lambda: fake.work(3.2))
        return [(launch.time_us, launch.activities) for launch in opened.launches()]

    whole, some = times(), times(lost_launches=0.25)

    assert {(0.0, 0)} == {seen for seen, right in zip(some, whole, strict=True) if seen != right}
    assert 0.15 < some.count((0.0, 0)) / 200 < 0.35
    assert set(times(lost_launches=1.0)) == {(0.0, 0)}
    with pytest.raises(RecordsLostError, match="200 flushes"):
        times(lost_flushes=0.01)


def test_boards_of_several_models_are_seen_and_do_not_count_as_alike(monkeypatch):
    fake = {"devices": 2, "models": ["Fake One", "Fake Two"]}
    seen = []
    for index in ("0", "1"):
        monkeypatch.setenv("FAKE_VISIBLE_DEVICES", index)
        seen.append(open_device("fake", seed=1, fake=fake))

    assert [(device.info.name, device.info.key, device.info.uuid) for device in seen] == [
        ("Fake One", "fake-one", "FAKE-0"),
        ("Fake Two", "fake-two", "FAKE-1"),
    ]
    assert {(device.count(), device.visible()) for device in seen} == {(1, 2)}
    assert open_device("fake", seed=1, fake={"devices": 3}).visible() == 3


# --- arrays -----------------------------------------------------------------------------------------------------------

arrays = NumpyArrays()


def test_refilling_changes_the_values_and_neither_the_buffers_nor_their_layout():
    strided = np.zeros((3, 8), np.float32)[:, ::2]
    inputs = {"x": np.ones(4), "ys": [strided, 3], "k": 3}
    places = [value.ctypes.data for value in (inputs["x"], strided)]

    arrays.refill(inputs, {"x": np.full(4, 2.0), "ys": [np.full((3, 4), 5, np.float32), 3], "k": 3})

    assert inputs["x"].tolist() == [2.0] * 4 and (strided == 5).all()
    assert [value.ctypes.data for value in (inputs["x"], strided)] == places
    assert strided.strides == (32, 8)
