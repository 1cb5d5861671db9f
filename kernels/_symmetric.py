"""Memory of each rank that all ranks of the default group reach: on GPUs symmetric memory, on a CPU mapped files.

A workspace holds flags and two halves of data. Calls of a kernel write to the halves by turns, so a rank may begin its
next call while its peers still read what it sent for this one: it cannot end a call before all peers have sent for it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import _launch

ALIGNMENT = 256
"""Bytes that halves begin at a multiple of."""


@dataclass(frozen=True)
class Workspace:
    """One rank's view of a workspace."""

    rank: int
    ranks: int
    addresses: torch.Tensor
    """(ranks,) int64 on the device: where the workspace of each rank lies, as this process reaches it"""
    state: torch.Tensor
    """(2,) int32: calls that have ended, and programs of the call under way that have"""
    flags: int
    """how many int32 flags there are at the beginning of each workspace"""
    half: int
    """bytes of a half"""
    kept: tuple[Any, ...]
    """what the memory lives in"""

    @property
    def data(self) -> int:
        """Where the first half begins: bytes from the beginning."""
        return _rounded(4 * self.flags)


_workspaces: dict[tuple[str, torch.device], Workspace] = {}


def find_group() -> tuple[int, int]:
    """Returns this process's rank and how many there are: 0 and 1 without a group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def refuse_apart(op: str, limits: _launch.Limits) -> None:
    """Raises NotImplementedError for chips on which no rank reaches the memory of another: Ascend's, in Triton."""
    if not limits.registers:
        raise NotImplementedError(f"{op}: no rank reaches the memory of another on an {limits.key}")


def workspace(op: str, device: torch.device, flags: int, half: int) -> Workspace:
    """Returns the op's workspace on a device, of so many flags and bytes at least: all ranks have to ask for the same.

    One that is too small is made anew, which waits for the device and for all ranks.
    """
    now = _workspaces.get((op, device))
    if now is None or now.flags < flags or now.half < half:
        flags, half = max(flags, now.flags if now else 0), max(_rounded(half), now.half if now else 0)
        now = _workspaces[op, device] = _make(device, flags, half)
    return now


def _make(device: torch.device, flags: int, half: int) -> Workspace:
    rank, ranks = find_group()
    size = _rounded(4 * flags) + 2 * half
    state = torch.zeros(2, dtype=torch.int32, device=device)
    if ranks == 1:
        memory = torch.zeros(size, dtype=torch.uint8, device=device)
        places, kept = [memory.data_ptr()], (memory,)
    elif device.type == "cpu":
        places, kept = _map_files(size, ranks)
    else:
        places, kept = _share_memory(size, device)
    return Workspace(rank, ranks, torch.tensor(places, dtype=torch.int64, device=device), state, flags, half, kept)


def _share_memory(size: int, device: torch.device) -> tuple[list[int], tuple[Any, ...]]:
    """Symmetric memory of a device, filled with zeros on all ranks."""
    import torch.distributed._symmetric_memory as symmetric

    memory = symmetric.empty(size, dtype=torch.uint8, device=device)
    memory.zero_()
    handle = symmetric.rendezvous(memory, dist.group.WORLD)
    torch.cuda.synchronize(device)
    dist.barrier()
    torch.cuda.synchronize(device)
    return [int(place) for place in handle.buffer_ptrs], (memory, handle)


def _map_files(size: int, ranks: int) -> tuple[list[int], tuple[Any, ...]]:
    """A file of each rank, which every rank maps. They are removed as soon as all have."""
    with tempfile.NamedTemporaryFile(prefix="symmetric-") as file:
        file.truncate(size)
        names: list[Any] = [None] * ranks
        dist.all_gather_object(names, file.name)
        kept = tuple(torch.UntypedStorage.from_file(str(Path(name)), True, size) for name in names)
        dist.barrier()
    return [storage.data_ptr() for storage in kept], kept


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@triton.jit
def place(addresses_ptr, rank, offset, like_ptr):
    """A pointer to what lies `offset` bytes behind the beginning of a rank's workspace, of the type of another one."""
    address = tl.load(addresses_ptr + rank) + offset
    return tl.multiple_of(address.to(like_ptr.dtype), 16)


@triton.jit
def flag(addresses_ptr, rank, number):
    """A pointer to a flag of a rank's workspace."""
    address = tl.load(addresses_ptr + rank) + number.to(tl.int64) * 4
    return address.to(tl.pointer_type(tl.int32))


@triton.jit
def raise_flag(addresses_ptr, rank, number, value):
    """Set a flag of another rank, once all threads have written what it tells of."""
    tl.debug_barrier()
    tl.atomic_xchg(flag(addresses_ptr, rank, number), value, sem="release", scope="sys")


@triton.jit
def await_flag(addresses_ptr, rank, number, value):
    """Wait until a flag of this rank has a value, or one of a later call: what it tells of can be read then."""
    at = flag(addresses_ptr, rank, number)
    while tl.atomic_add(at, 0, sem="acquire", scope="sys") < value:
        pass
    tl.debug_barrier()


@triton.jit
def end_call(state_ptr, call):
    """Count a program that has ended. The last one ends the call."""
    tl.debug_barrier()
    if tl.atomic_add(state_ptr + 1, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:
        tl.store(state_ptr + 1, 0)
        tl.store(state_ptr, call)
