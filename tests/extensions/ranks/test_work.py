"""Kernel and base do the same work on a rank if all of their launches are the same, whoever tells of them."""

import ctypes
import struct
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from perfci.device import launches  # noqa: E402
from perfci.device.capture import CoverOperations, watch_calls  # noqa: E402
from perfci.extensions.ranks.records import BASE, KERNEL  # noqa: E402
from perfci.extensions.ranks.work import compare_work  # noqa: E402
from tests.extensions.driver.test_driver import elf, machine  # noqa: E402, F401

pytestmark = pytest.mark.torch

ADDRESS = 0x7F0000000000


@pytest.fixture
def board(machine, monkeypatch):  # noqa: F811
    """A device that hears the stand-in's launches, and a call that launches: a kernel, a parameter, an address."""
    cuda, heard = machine
    functions = {name: cuda.load(at << 8, elf(name)) for at, name in enumerate(("spin", "copy"), 1)}
    cuda.memory |= {ADDRESS, ADDRESS + 64}

    def launch(name, value=1, address=ADDRESS):
        numbers = struct.pack("<QQ", address, value)
        cuda.launch(functions[name], struct.pack("<Q", address), numbers, struct.pack("<f", value))

    @contextmanager
    def record_kernels():
        with CoverOperations(), heard.listen(launches.is_covered):
            yield {}

    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: launch("spin", cycles))
    device = SimpleNamespace(capture_work=watch_calls, record_kernels=record_kernels, synchronize=lambda: None)
    return device, launch, cuda


def compare(board, kernel, base):
    """Whether two calls are the same, each behind the same operation of torch."""
    x = torch.ones(3)
    return compare_work({KERNEL: lambda: (x + 1, kernel()), BASE: lambda: (x + 1, base())}, board[0])["same"]


def test_a_launch_that_neither_torch_nor_triton_tells_of_counts_with_its_parameters(board):
    _, launch, _ = board
    same = lambda: [launch("copy", 3), launch("spin", 5)]  # noqa: E731

    assert compare(board, same, same)
    assert compare(board, same, lambda: [launch("copy", 3, ADDRESS + 64), launch("spin", 5)])  # of other memory
    assert not compare(board, same, lambda: [launch("copy", 3), launch("spin", 9)])
    assert not compare(board, same, lambda: [launch("copy", 3)])
    assert not compare(board, same, lambda: [launch("copy", 3), launch("copy", 5)])
    assert not compare(board, lambda: torch.cuda._sleep(1000), lambda: None)


def test_work_of_which_the_driver_tells_the_name_alone_is_not_the_same(board):
    _, _, cuda = board
    replay = lambda: cuda.cupti.tell("cuGraphLaunch", ctypes.c_int())  # noqa: E731

    assert not compare(board, replay, replay)


def test_nothing_is_the_same_where_the_driver_is_not_heard(board):
    device, launch, _ = board
    device.record_kernels = watch_calls

    assert not compare(board, lambda: launch("copy"), lambda: launch("copy"))


def test_without_a_base_nothing_is_the_same_and_the_reason_says_so(board):
    device, launch, _ = board
    said = compare_work({KERNEL: lambda: launch("copy")}, device)

    assert (said["same"], said["unknown"].kind) == (False, "ranks_no_base")
