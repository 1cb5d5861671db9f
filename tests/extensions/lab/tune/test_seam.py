"""How an op gets a search's entries, and how the search sees which one it takes."""

import functools
import sys
import types
from pathlib import Path

import pytest

from perfci.core.errors import ContractError
from perfci.extensions.common.tuned import Seam

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
