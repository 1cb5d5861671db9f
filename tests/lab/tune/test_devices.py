"""Device descriptions: each number with a source, variants of what they vary, and names that nobody knows."""

import json
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError, UsageError
from perfci.device.targets import TARGETS
from perfci.lab.tune.devices import described, describing

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
KEYS = sorted(path.stem for path in (KERNELS / "_devices").glob("*.json"))


def test_the_devices_of_the_project_are_described():
    assert {"nvidia-h100", "nvidia-h200", "nvidia-a100", "ascend910b2", "low-bw", "half-registers", "generic"} <= {
        *KEYS
    }


@pytest.mark.parametrize("key", KEYS)
def test_every_number_has_its_source_and_every_device_the_same_fields(key):
    found = described(KERNELS, key)

    assert all(found.sources.values())
    assert found.values.keys() == described(KERNELS, "generic").values.keys()


@pytest.mark.parametrize(
    ("variant", "field", "share"), [("low-bw", "bandwidth_gbps", 0.7), ("half-registers", "registers", 0.5)]
)
def test_a_variant_differs_in_what_it_is_about(variant, field, share):
    lesser, whole = described(KERNELS, variant), described(KERNELS, "nvidia-h200")
    differing = {name for name, value in lesser.values.items() if value != whole.values[name]}

    assert lesser.values["like"] == "nvidia-h200"
    assert lesser.values[field] == pytest.approx(share * whole.values[field])
    assert differing <= {field, "like", "tile_elements"}


@pytest.mark.parametrize("key", [key for key in KEYS if described(KERNELS, key).values["target"]])
def test_what_is_compiled_for_agrees_with_the_published_facts_of_its_target(key):
    found, target = described(KERNELS, key).values, TARGETS[described(KERNELS, key).values["target"]]

    assert found["processors"] == target.processors
    assert found["shared_bytes"] == target.shared_block
    assert found["warp_size"] == target.warp_size
    assert key == "half-registers" or found["registers"] == target.registers


def test_an_ascend_has_vector_cores_and_their_buffers():
    found = described(KERNELS, "ascend910b2").values

    assert (found["processors"], found["matrix_processors"], found["warp_size"]) == (48, 24, 1)
    assert (found["shared_bytes"], found["matrix_bytes"], found["l2_bytes"]) == (192 << 10, 512 << 10, 192 << 20)
    assert (found["grid"][0], found["alignment"], found["registers"], found["target"]) == (65535, 32, 0, None)


def test_a_name_close_to_one_is_guessed_and_any_other_gets_the_list():
    with pytest.raises(UsageError, match="no device description low_bw: did you mean --device-spec low-bw"):
        described(KERNELS, "low_bw")
    with pytest.raises(UsageError, match=r"no device description zzz: .*generic, half-registers, low-bw"):
        described(KERNELS, "zzz")


@pytest.mark.parametrize("text", ["", "[]", '{"processors": 3}', '{"processors": {"value": 3}}'])
def test_a_damaged_description_is_named(tmp_path, text):
    (tmp_path / "_devices").mkdir()
    (tmp_path / "_devices" / "odd.json").write_text(text)

    with pytest.raises(StoredFileError, match=r"odd\.json is no device description"):
        described(tmp_path, "odd")


def test_numbers_for_rules_are_those_of_the_longest_key_that_fits_else_the_generic_ones(tmp_path):
    folder = tmp_path / "_devices"
    folder.mkdir()
    for key, size in (("generic", 1), ("nvidia-h100", 2), ("nvidia-h100-nvl", 3)):
        (folder / f"{key}.json").write_text(json.dumps({"size": {"value": size, "source": "x"}}))

    assert [describing(tmp_path, key)["size"] for key in ("nvidia-h100-nvl", "nvidia-h100-mig", "nvidia-h1000")] == [
        3,
        2,
        1,
    ]
    assert describing(tmp_path / "nowhere", "x") == {}
