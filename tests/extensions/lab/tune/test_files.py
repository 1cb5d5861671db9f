"""Tuned files, changed entry by entry; and device descriptions, each number with a source."""

import json
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError
from perfci.extensions.lab.tune.files import change_tuned, read_numbers, read_tuned
from perfci.extensions.lab.tune.records import Regime
from perfci.extensions.lab.tune.search import Choice

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


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"configs": [1]}', '{"configs": [{}]}', '{"configs": [', "[" * 99999]
)
def test_a_damaged_file_is_named(tmp_path, text):
    path = tmp_path / "fake-one.json"
    path.write_text(text)

    with pytest.raises(StoredFileError, match=r"fake-one\.json is not a tuned file: .+ Restore it from git"):
        read_tuned(path)


# --- device descriptions

KERNELS = Path(__file__).resolve().parents[4] / "kernels"
KEYS = sorted(path.stem for path in (KERNELS / "_devices").glob("*.json"))


@pytest.mark.parametrize("key", KEYS)
def test_every_number_has_its_source_and_every_device_the_same_fields(key):
    fields, generic = (json.loads((KERNELS / "_devices" / f"{name}.json").read_text()) for name in (key, "generic"))

    assert fields.keys() == generic.keys()
    assert read_numbers(KERNELS, key)["processors"] == fields["processors"]["value"]


@pytest.mark.parametrize("text", ["", "[]", '{"processors": 3}', '{"processors": {"value": 3}}'])
def test_a_damaged_description_is_named(tmp_path, text):
    (tmp_path / "_devices").mkdir()
    (tmp_path / "_devices" / "odd.json").write_text(text)

    with pytest.raises(StoredFileError, match=r"odd\.json is not a device description"):
        read_numbers(tmp_path, "odd")
