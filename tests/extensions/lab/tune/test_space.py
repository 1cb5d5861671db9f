"""What an op may declare as its search space, and what becomes of its entries."""

import json

import pytest

from perfci.core.errors import StoredFileError, UsageError
from perfci.extensions.lab.tune.files import list_regimes, read_space

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
    "rule",
    ["__import__('os')", "block ** 99", "[1 for x in block]", "block[0]", "open('x')", "block +", "", 7],
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
