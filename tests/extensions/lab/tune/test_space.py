"""What an op may declare as its search space, and what becomes of its entries."""

import functools
import json
import sys
import types
from pathlib import Path

import pytest

from perfci.core.errors import ContractError, StoredFileError, UsageError
from perfci.extensions.common.tuned import Seam
from perfci.extensions.lab.tune.files import change_tuned, list_regimes, read_numbers, read_space, read_tuned
from perfci.extensions.lab.tune.records import Choice, Regime

PLAIN = {"config": {"block": [16, 32, 64], "warps": 4}}


@pytest.fixture
def space(tmp_path):
    def written(tree):
        folder = tmp_path / "tuned"
        folder.mkdir(exist_ok=True)
        text = tree if isinstance(tree, str) else json.dumps(tree)
        (folder / "space.json").write_text(text)
        return read_space("blur", tmp_path)

    return written


def test_entries_of_the_tuned_file_come_first_and_keep_their_order(space):
    tree = PLAIN | {"entries": [{"m_max": 16}, {"m_max": 64}, {}]}
    tuned = [{"config": {"block": 32}}, {"m_max": 16, "config": {"block": 16}}]

    regimes = list_regimes(space(tree), tuned)

    assert [regime.label for regime in regimes] == ["*", "m_max=16", "m_max=64"]
    assert [regime.current for regime in regimes] == [{"block": 32, "warps": 4}, {"block": 16, "warps": 4}, None]


def test_entries_that_ask_for_the_same_are_told_apart_by_their_switches(space):
    tree = {
        "config": {"block": [1, 2], "tma": False},
        "entries": [{"itemsize": 2, "config": {"tma": True, "block": [4]}}, {"itemsize": 2}],
    }
    tuned = [{"itemsize": 2, "config": {"block": 2}}, {"itemsize": 2, "config": {"block": 4, "tma": True}}]

    plain, copied = list_regimes(space(tree), tuned)

    assert (plain.lists["tma"], copied.lists["tma"]) == ((False,), (True,))
    assert plain.label != copied.label


@pytest.mark.parametrize(
    ("rule", "names", "holds"),
    [
        ("block * warps <= shared_bytes // 4", {"shared_bytes": 512}, True),
        ("block * warps <= shared_bytes // 4", {"shared_bytes": 508}, False),
        ("descriptors or not tma", {"descriptors": False, "tma": True}, False),
        ("descriptors or not tma", {"descriptors": True, "tma": True}, True),
        ("16 <= block < 64 and kind in ('fast', 'block')", {"kind": "block"}, True),
        ("-(-rows // block) == 4", {"rows": 100}, True),
        ("min(block, 8) * max(warps, 8) == 64", {}, True),
        ("keys.block == 16", {"keys.block": 16}, True),
    ],
)
def test_rules_are_sums_and_comparisons(space, rule, names, holds):
    assert space(PLAIN | {"valid": [rule]}).is_valid({"block": 32, "warps": 4}, names) is holds


@pytest.mark.parametrize(
    "rule", ["__import__('os')", "block ** 99", "[1 for x in block]", "block[0]", "open('x')", "block +", "", 7]
)
def test_anything_else_is_no_rule(space, rule):
    with pytest.raises(StoredFileError, match=r"space\.json is not a search space"):
        space(PLAIN | {"valid": [rule]})


def test_a_rule_that_names_what_nobody_knows_says_what_is_known(space):
    with pytest.raises(UsageError, match="names blok, which is none of block, warps"):
        space(PLAIN | {"valid": ["blok > 1"]}).is_valid({"block": 1, "warps": 4}, {})


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "[]",
        "[" * 100_000,
        {},
        {"config": {}},
        {"config": [1]},
        {"config": {"block": []}},
        {"config": {"block": [[1]]}},
        PLAIN | {"entry": []},
        PLAIN | {"entries": []},
        PLAIN | {"entries": [1]},
        PLAIN | {"entries": [{"config": {"block": []}}]},
        PLAIN | {"valid": "block > 1"},
    ],
)
def test_a_damaged_space_is_named_with_what_is_wrong(space, tree):
    with pytest.raises(StoredFileError, match=r"space\.json is not a search space: .+\. Correct it"):
        space(tree)


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


ENTRIES = (
    {"m_max": 16, "config": {"block": 1, "tma": True}},
    {"m_max": 64, "config": {"block": 2, "tma": False}},
    {"config": {"block": 3, "tma": True}},
)


@pytest.fixture
def op(tmp_path, monkeypatch):
    """An op that chooses like matmul; returns its function, its seam, and the folder."""
    folder = tmp_path / "kernels" / "op"
    launch = types.ModuleType("_launch")
    launch.tuned = lambda folder, key: ({"config": {"block": 9, "tma": False}},)
    module = types.ModuleType("op_triton")
    module.__file__ = str(folder / "op_triton.py")
    monkeypatch.setitem(sys.modules, "_launch", launch)
    monkeypatch.setitem(sys.modules, "op_triton", module)

    @functools.lru_cache
    def choose(m, tma=False):
        for entry in launch.tuned(folder / "tuned", "board"):
            if bool(entry["config"].get("tma")) == tma and m <= entry.get("m_max", m):
                return types.SimpleNamespace(**entry["config"]).block
        return 0

    module.choose = choose
    return choose, Seam("op", folder, tmp_path / "kernels"), folder


def test_without_a_search_the_op_reads_its_own_file_and_the_key_is_heard(op):
    choose, seam, _ = op

    assert choose(1) == 9
    assert seam.key == "board"


def test_entries_are_in_force_at_once_though_the_op_remembers_what_it_chose(op):
    choose, seam, _ = op
    choose(16, True)

    seam.use(ENTRIES)
    assert (choose(16, True), choose(60), choose(99, True)) == (1, 2, 3)
    seam.use(None)
    assert choose(99) == 9


def test_the_entry_that_a_call_takes_is_seen_though_others_are_looked_into(op):
    choose, seam, _ = op

    def taken(*arguments):
        return seam.find_taken(ENTRIES, lambda: choose(*arguments))

    assert [taken(16, True), taken(17, True), taken(17), taken(65)] == [0, 2, 1, None]


def test_another_op_that_is_called_on_the_way_reads_its_own_file(op):
    _, seam, folder = op
    seam.use(ENTRIES)

    assert len(sys.modules["_launch"].tuned(folder.parent / "other" / "tuned", "board")) == 1


def test_an_op_that_has_no_such_function_is_told_to(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "_launch", raising=False)

    with pytest.raises(ContractError, match="op never asks for a tuned file"):
        Seam("op", tmp_path, Path(tmp_path))
