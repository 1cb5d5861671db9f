"""Groups of boards are taken whole or not at all, and given back whole."""

import os

import pytest

from perfci.core import locks
from perfci.core.errors import ContractError, DeviceError
from perfci.extensions.ranks.boards import choose_boards, hold_boards, turn
from perfci.extensions.ranks.spec import bind_rank

BOARDS = ("GPU-1", "GPU-2", "GPU-3")


def is_free(name, folder):
    handle = locks.open_lock(locks.find_lock(name, folder))
    try:
        return locks.take(handle)
    finally:
        os.close(handle)


def test_a_group_holds_every_board_and_gives_all_back(tmp_path):
    with hold_boards(BOARDS, tmp_path, lambda _: None):
        assert not any(is_free(name, tmp_path) for name in BOARDS)

    assert all(is_free(name, tmp_path) for name in BOARDS)


def test_a_group_takes_no_board_while_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    taken = locks.open_lock(locks.find_lock("GPU-2", tmp_path))
    locks.take(taken)
    locks.sign(taken)
    free, told = [], []

    def wait(holder):
        free.append([is_free(name, tmp_path) for name in BOARDS])
        told.append(holder)
        locks.give_back(taken)

    with hold_boards(BOARDS, tmp_path, wait):
        held = [is_free(name, tmp_path) for name in BOARDS]
    os.close(taken)

    assert free == [[True, False, True]]
    assert f"process {os.getpid()}" in told[0]
    assert held == [False, False, False]


def test_a_group_that_waits_too_long_gives_up(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    taken = locks.open_lock(locks.find_lock("GPU-1", tmp_path))
    locks.take(taken)
    with (
        pytest.raises(DeviceError) as caught,
        hold_boards(BOARDS, tmp_path, lambda _: None, limit_s=0.05),
    ):
        pytest.fail("it was not free")
    os.close(taken)

    assert caught.value.reason.kind == "device_taken"
    assert is_free("GPU-3", tmp_path)


def test_sick_boards_are_in_no_group_and_ranks_change_boards_from_process_to_process():
    assert choose_boards(["0", "1", "2"], ["a", "b", "c"], ["GPU-a"]) == [1, 2]
    assert choose_boards(["0", "1"], [], []) == [0, 1]
    assert [turn([1, 2], process) for process in range(3)] == [[1, 2], [2, 1], [1, 2]]


def test_inputs_are_made_with_a_rank_or_it_is_said_that_they_take_none():
    assert bind_rank(lambda m, **more: more, 1, 2)(m=8) == {"rank": 1, "ranks": 2}
    with pytest.raises(ContractError, match="its make_inputs takes no `rank` and `ranks`"):
        bind_rank(lambda m, device, seed: {}, 0, 2)(m=8, device="cpu", seed=0)
