import json
from dataclasses import replace
from typing import NamedTuple

import _launch
import pytest
import torch


class Device(NamedTuple):
    type: str
    index: int = 0


@pytest.fixture
def running(monkeypatch):
    """Stands for a device with these properties of its runtime."""

    def stand_in(count=1, **properties):
        class Properties:
            pass

        class Switched:
            def __init__(self, device):
                self.device = device

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

        class Runtime:
            device = Switched

            @staticmethod
            def get_device_properties(device):
                return Properties

            @staticmethod
            def device_count():
                return count

        for name, value in properties.items():
            setattr(Properties, name, value)
        monkeypatch.setattr(torch, "standin", Runtime, raising=False)
        _launch.limits.cache_clear()
        _launch._switch.cache_clear()
        return Device("standin")

    return stand_in


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100"),
        ("NVIDIA H2000", "generic"),
        ("NVIDIA H20", "generic"),
        ("Ascend910B2", "ascend910b2"),
        ("Ascend910B3", "generic"),
        ("Ascend910_9382", "ascend910-93"),
        ("Ascend910_9362", "ascend910-93"),
        ("Ascend950PR_9589", "ascend950"),
    ],
)
def test_a_devices_file_is_found_by_the_words_of_its_name(name, key, running):
    assert _launch.limits(running(name=name)).key == key


def test_in_the_interpreter_programs_are_few_so_that_small_cases_take_several_tiles_each(monkeypatch):
    monkeypatch.delenv("KERNELS_AS_DEVICE", raising=False)
    _launch.limits.cache_clear()

    assert _launch.limits(torch.device("cpu")).programs == 7
    assert _launch.limits(torch.device("meta")).programs == 65535  # a device without a description
    _launch.limits.cache_clear()


def test_an_npu_tells_its_vector_and_cube_cores(running):
    limits = _launch.limits(running(name="Ascend910B2", vector_core_num=40, cube_core_num=20, L2_cache_size=100 << 20))

    assert (limits.processors, limits.matrix_processors, limits.l2_bytes) == (40, 20, 100 << 20)
    assert (limits.warp_size, limits.alignment, limits.shared_bytes) == (1, 32, 192 << 10)


def test_a_variable_names_the_device_to_compile_for(monkeypatch):
    _launch.limits.cache_clear()
    monkeypatch.setenv("KERNELS_AS_DEVICE", "nvidia-h200")

    assert _launch.limits(torch.device("meta")).processors == 132
    _launch.limits.cache_clear()


def test_a_smaller_twin_has_the_devices_tuned_files_and_few_processors_and_programs(monkeypatch):
    _launch.limits.cache_clear()
    monkeypatch.setenv("KERNELS_AS_DEVICE", "nvidia-h200/3/7")

    limits = _launch.limits(torch.device("meta"))

    assert (limits.key, limits.processors, limits.matrix_processors) == ("nvidia-h200", 3, 3)
    assert (limits.programs, limits.grid) == (7, (7, 7, 7))
    assert (limits.shared_bytes, limits.descriptors) == (232448, True)
    _launch.limits.cache_clear()


def test_every_field_of_every_device_names_its_source():
    for key in _launch._keys():
        fields = json.loads((_launch._DEVICES / f"{key}.json").read_text())
        assert set(fields) == set(_launch.Limits.__dataclass_fields__) - {"key"}
        assert all(field["source"] for field in fields.values())


@pytest.mark.parametrize(
    ("x", "rows"),
    [
        (torch.zeros(3, 4), (3, 4, 4, 1)),
        (torch.zeros(5), (1, 5, 5, 1)),
        (torch.zeros(2, 3, 4), (6, 4, 4, 1)),
        (torch.zeros(3, 8)[:, ::2], (3, 4, 8, 2)),
        (torch.zeros(3, 4).t(), (4, 3, 1, 4)),
        (torch.zeros(1, 4).expand(3, 4), (3, 4, 0, 1)),
        (torch.zeros(2, 1, 3, 8)[..., :4], (6, 4, 8, 1)),
        (torch.zeros(1, 8)[:, ::2], (1, 4, 4, 2)),
        (torch.zeros(1, 1, 4).expand(2, 3, 4), (6, 4, 0, 1)),
    ],
)
def test_views_are_walked_as_rows(x, rows):
    assert _launch.as_rows("op", x) == rows


def test_a_damaged_tuned_file_is_named(tmp_path):
    (tmp_path / "torn.json").write_text('{"configs": [')
    (tmp_path / "foreign.json").write_text("{}")

    for key in ("torn", "foreign"):
        with pytest.raises(ValueError, match=rf"{key}\.json is not a tuned file: .* Restore it from git"):
            _launch.tuned(tmp_path, key)


@pytest.fixture
def entries(tmp_path):
    """Writes generic.json, and returns what a call with these facts gets from it."""

    def chosen(configs, **facts):
        (tmp_path / "generic.json").write_text(json.dumps({"configs": configs}))
        _launch.tuned.cache_clear()
        return _launch.config(tmp_path, _launch.limits(torch.device("meta")), **facts)

    return chosen


@pytest.mark.parametrize(
    ("facts", "block"),
    [
        ({"m": 16, "kind": "a"}, 1),
        ({"m": 17, "kind": "a"}, 2),
        ({"m": 16, "kind": "c"}, 3),
        ({"m": 17, "kind": "d"}, None),
    ],
)
def test_the_first_entry_that_fits_the_facts_is_taken(entries, facts, block):
    configs = [
        {"m_max": 16, "kind": ["a", "b"], "config": {"block": 1}},
        {"kind": "a", "config": {"block": 2}},
        {"kind": "c", "config": {"block": 3}},
    ]

    entry = entries(configs, **facts)

    assert (entry and entry["block"]) == block


def test_a_pointwise_tile_is_that_of_the_tuned_file_where_there_is_one(entries, tmp_path):
    limits = _launch.limits(torch.device("meta"))
    sizes = ((None, 8192, 4),)

    assert _launch.pointwise_tile(64, 4096, 2, limits, sizes, 2048, tmp_path) == (4, 1024, 4)
    entries([{"bytes_max": 1 << 20, "config": {"tile_bytes": 4096, "row_bytes": 1024, "warps": 2}}], bytes=0)
    assert _launch.pointwise_tile(64, 4096, 2, limits, sizes, 2048, tmp_path) == (4, 512, 2)
    assert _launch.pointwise_tile(640, 4096, 2, limits, sizes, 2048, tmp_path) == (4, 1024, 4)
    _launch.tuned.cache_clear()


def test_a_tile_is_cut_to_what_fits_only_on_a_chip_without_registers():
    chip = replace(_launch.limits(Device("meta")), registers=0, shared_bytes=192 << 10)

    assert [_launch.fitting(4096, size, chip) for size in (16, 64, 128)] == [4096, 2048, 1024]
    assert _launch.fitting(4096, 128, replace(chip, registers=65536)) == 4096
