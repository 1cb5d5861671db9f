"""Tuned files: changed entry by entry, and left alone otherwise."""

import json

import pytest

from perfci.core.errors import StoredFileError
from perfci.lab.tune.records import Regime
from perfci.lab.tune.search import Choice
from perfci.lab.tune.tuned_file import changed, diff, read_tuned

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


def test_where_nothing_changes_the_text_is_the_files_own(file):
    choices = (Choice(SMALL, None), Choice(REST, dict(REST.current)))

    assert changed(file, (SMALL, REST), choices) == TEXT
    assert diff(file, TEXT, "x.json") == []


def test_one_entry_changes_and_the_others_stay_letter_by_letter(file):
    text = changed(file, (SMALL, REST), (Choice(REST, {"keys.block": 64, "warps": 4}),))

    assert text == TEXT.replace('{"block": 32}', '{"block": 64}')
    assert [line for line in diff(file, text, "x.json") if line.startswith(("-   ", "+   "))] == [
        '-    {"config": {"keys": {"block": 32}, "warps": 4}}',
        '+    {"config": {"keys": {"block": 64}, "warps": 4}}',
    ]


def test_an_entry_of_the_same_bounds_behind_the_one_that_changes_goes_on_serving_what_that_cannot(tmp_path):
    path = tmp_path / "fake-one.json"
    path.write_text(TEXT.replace('{"m_max": 16,', '{"m_max": 16, "config": {"block": 8}},\n    {"m_max": 16,'))
    groups = Regime("m_max=16", {"m_max": 16}, {"block": (8, 16, 32)}, {"block": 8})

    text = changed(read_tuned(path), (groups, SMALL, REST), (Choice(groups, {"block": 32}), Choice(SMALL, None)))

    assert text == path.read_text().replace('{"block": 8}', '{"block": 32}')


def test_a_new_entry_comes_behind_those_of_the_file_and_one_without_a_choice_is_left_out(file):
    text = changed(file, (SMALL, REST, NEW), (Choice(SMALL, {"block": 32}), Choice(NEW, {"block": 16})))

    assert json.loads(text)["configs"] == [
        {"m_max": 16, "config": {"block": 32}},
        {"config": {"keys": {"block": 32}, "warps": 4}},
        {"kind": "fast", "config": {"block": 16}},
    ]


def test_a_device_that_varies_another_gets_all_of_its_entries(tmp_path):
    file = read_tuned(tmp_path / "low-bw.json")

    text = changed(file, (SMALL, REST, NEW), (Choice(SMALL, {"block": 32}),), "By the model.")

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

    with pytest.raises(StoredFileError, match=r"fake-one\.json is no tuned file: .+ Restore it from git"):
        read_tuned(path)
