"""How many devices later looks may be spread over: those that are alike."""

import pytest

from perfci.device import open_device


def test_the_fake_device_has_as_many_boards_as_it_is_told():
    assert open_device("fake", seed=1).count() == 1
    assert open_device("fake", seed=1, fake={"devices": 4}).count() == 4


def test_a_fake_board_keeps_its_name_from_seed_to_seed(monkeypatch):
    monkeypatch.delenv("FAKE_VISIBLE_DEVICES", raising=False)
    assert {open_device("fake", seed=seed).info.uuid for seed in (1, 2)} == {"FAKE-0"}

    monkeypatch.setenv("FAKE_VISIBLE_DEVICES", "3,4")
    assert open_device("fake", seed=1).info.uuid == "FAKE-3"


@pytest.mark.torch
def test_without_an_accelerator_there_is_one_device():
    assert open_device("cpu", seed=1).count() == 1


@pytest.mark.torch
@pytest.mark.parametrize(
    ("names", "count"), [(["H200"], 1), (["H200"] * 4, 4), (["H200", "H200", "T4"], 1), (["T4", "H200"], 1)]
)
def test_boards_of_another_model_do_not_count(monkeypatch, names, count):
    import torch

    from perfci.device.cuda import CudaDevice

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])

    assert CudaDevice.count(object.__new__(CudaDevice)) == count


def test_boards_of_several_models_are_seen_and_do_not_count_as_alike(monkeypatch):
    fake = {"devices": 2, "models": ["Fake One", "Fake Two"]}
    found = []
    for index in ("0", "1"):
        monkeypatch.setenv("FAKE_VISIBLE_DEVICES", index)
        found.append(open_device("fake", seed=1, fake=fake))

    assert [(device.info.name, device.info.key, device.info.uuid) for device in found] == [
        ("Fake One", "fake-one", "FAKE-0"),
        ("Fake Two", "fake-two", "FAKE-1"),
    ]
    assert {(device.count(), device.visible()) for device in found} == {(1, 2)}
    assert open_device("fake", seed=1, fake={"devices": 3}).visible() == 3


@pytest.mark.torch
def test_torch_tells_how_many_devices_a_process_sees(monkeypatch):
    import torch

    from perfci.device.cuda import CudaDevice

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)

    assert CudaDevice.visible(object.__new__(CudaDevice)) == 3
    assert open_device("cpu", seed=1).visible() == 1
