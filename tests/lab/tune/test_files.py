"""Tuned files, changed entry by entry; and device descriptions, each number with a source."""

import json
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError
from perfci.lab.tune.files import change_tuned, read_description, read_numbers, read_tuned
from perfci.lab.tune.records import Regime
from perfci.lab.tune.search import Choice

TEXT = """{
  "about": "First that fits.",
  "configs": [
    {"m_max": 16, "config": {"block": 16}},
    {"config": {"keys": {"block": 32}, "warps": 4}}
  ]
}
"""
SMALL = Regime("m_max=16", {"m_max": 16}, {"block": (16, 32)}, {"block": 16})
REST = Regime("*", {}, {"keys.block": (32, 64)}, {"keys.block": 32, "warps": 4})
NEW = Regime("kind=fast", {"kind": "fast"}, {"block": (16,)})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "fake-one.json"
    path.write_text(TEXT)
    return read_tuned(path)


def test_one_entry_changes_and_the_others_stay_letter_by_letter(file):
    text = change_tuned(file, (SMALL, REST), (Choice(REST, {"keys.block": 64, "warps": 4}),))

    assert text == TEXT.replace('{"block": 32}', '{"block": 64}')


def test_a_new_entry_comes_behind_those_of_the_file_and_one_without_a_choice_is_left_out(file):
    text = change_tuned(file, (SMALL, REST, NEW), (Choice(SMALL, {"block": 32}), Choice(NEW, {"block": 16})))

    assert json.loads(text)["configs"] == [
        {"m_max": 16, "config": {"block": 32}},
        {"config": {"keys": {"block": 32}, "warps": 4}},
        {"kind": "fast", "config": {"block": 16}},
    ]


def test_a_device_that_varies_another_gets_all_of_its_entries(tmp_path):
    file = read_tuned(tmp_path / "low-bw.json")

    text = change_tuned(file, (SMALL, REST, NEW), (Choice(SMALL, {"block": 32}),), "By the model.")

    assert json.loads(text) == {
        "about": "By the model.",
        "configs": [{"m_max": 16, "config": {"block": 32}}, {"config": {"keys": {"block": 32}, "warps": 4}}],
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"configs": [1]}', '{"configs": [{}]}', '{"configs": [', "[" * 99999]
)
def test_a_damaged_file_is_named(tmp_path, text):
    path = tmp_path / "fake-one.json"
    path.write_text(text)

    with pytest.raises(StoredFileError, match=r"fake-one\.json is not a tuned file: .+ Restore it from git"):
        read_tuned(path)


# --- device descriptions

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
KEYS = sorted(path.stem for path in (KERNELS / "_devices").glob("*.json"))


@pytest.mark.parametrize("key", KEYS)
def test_every_number_has_its_source_and_every_device_the_same_fields(key):
    found = read_description(KERNELS, key)

    assert found.values.keys() == read_description(KERNELS, "generic").values.keys()


@pytest.mark.parametrize("text", ["", "[]", '{"processors": 3}', '{"processors": {"value": 3}}'])
def test_a_damaged_description_is_named(tmp_path, text):
    (tmp_path / "_devices").mkdir()
    (tmp_path / "_devices" / "odd.json").write_text(text)

    with pytest.raises(StoredFileError, match=r"odd\.json is not a device description"):
        read_description(tmp_path, "odd")


def test_numbers_for_rules_are_those_of_the_longest_key_that_fits_else_the_generic_ones(tmp_path):
    folder = tmp_path / "_devices"
    folder.mkdir()
    for key, size in (("generic", 1), ("nvidia-h100", 2), ("nvidia-h100-nvl", 3)):
        (folder / f"{key}.json").write_text(json.dumps({"size": {"value": size, "source": "x"}}))

    assert [read_numbers(tmp_path, key)["size"] for key in ("nvidia-h100-nvl", "nvidia-h100-mig", "nvidia-h1000")] == [
        3,
        2,
        1,
    ]
    assert read_numbers(tmp_path / "nowhere", "x") == {}
