"""Races of interpreted launches and accesses outside its tensors, by every access of every program.

Two programs of one launch race if both store different values to one address, or if one stores a value that differs
from what the other loads there. Races of a launch with atomics or volatile loads are left alone: they may synchronise
it. A launch that can have read addresses from one of its tensors may use memory of none of them, except what lies
around its tensors' elements in their storage.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from perfci.device.arrays import leaves
from perfci.device.seam import OUTSIDE, Race
from perfci.device.tensors import GUARD_BYTES

Array = np.ndarray[Any, Any]

MOST_ACCESSES = 4_000_000  # a launch with more is not looked at: noting it would take more memory than running it

_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class _Log:
    """One launch's accesses."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        # Addresses, bits and program of each load or store.
        self.loads: list[tuple[Array, Array, int]] = []
        self.stores: list[tuple[Array, Array, int]] = []
        self.atomics: list[tuple[Array, Array, int]] = []
        self.count = 0
        self.program = -1
        self.synchronised = False

    def note(self, kept: list[tuple[Array, Array, int]], pointers: Array, values: Array, mask: Array | bool) -> None:
        if self.count > MOST_ACCESSES:
            return
        chosen = np.broadcast_to(mask, pointers.shape).reshape(-1).astype(bool)  # the interpreter may hold int32
        bits = np.ascontiguousarray(values).reshape(-1)
        wide = bits.view(_WIDTHS[bits.dtype.itemsize]).astype(np.uint64)
        addresses, wide = pointers.reshape(-1)[chosen], wide[chosen]
        if kept and kept[-1][2] == self.program:
            before = kept[-1]
            if np.array_equal(before[0], addresses) and np.array_equal(before[1], wide):  # it waits for a flag
                return
        self.count += pointers.size
        kept.append((addresses, wide, self.program))

    def race(self) -> Race | None:
        if self.count > MOST_ACCESSES:
            return None
        loads, stores, atomics = map(_join_accesses, (self.loads, self.stores, self.atomics))
        clash = None if self.synchronised else _two_stores(stores) or _load_and_store(loads, stores)
        return clash or _outside(self._tensors, loads, stores, atomics)


class _Watched:
    """Stands in for the interpreter's memory, notes every access, and passes it on."""

    def __init__(self, memory: Any, log: _Log) -> None:
        self._memory = memory
        self._log = log

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Any:
        result = self._memory.load(pointers, mask, other, dtype)
        self._log.note(self._log.loads, pointers, result, mask)
        return result

    def store(self, pointers: Array, values: Array, mask: Array) -> Any:
        self._log.note(self._log.stores, pointers, values, mask)
        return self._memory.store(pointers, values, mask)

    def atomic_rmw(self, kind: Any, pointers: Array, values: Array, mask: Array, order: Any) -> Any:
        self._note_atomic(pointers, values, mask)
        return self._memory.atomic_rmw(kind, pointers, values, mask, order)

    def atomic_cas(self, pointers: Array, expected: Array, values: Array, order: Any) -> Any:
        self._note_atomic(pointers, values, True)
        return self._memory.atomic_cas(pointers, expected, values, order)

    def _note_atomic(self, pointers: Array, values: Array, mask: Array | bool) -> None:
        self._log.synchronised = True
        self._log.note(self._log.atomics, pointers, np.broadcast_to(values, pointers.shape), mask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


@contextmanager
def watch_races() -> Iterator[list[Race]]:
    """Collect a race of every interpreted launch inside. Needs a process that runs with TRITON_INTERPRET=1."""
    from triton.runtime import interpreter

    races: list[Race] = []
    memory, run = interpreter._interpreter, interpreter.GridExecutor.__call__
    builder = interpreter.interpreter_builder
    place, load = builder.set_grid_idx, builder.create_masked_load

    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        given = leaves([args, kwargs])
        log = _Log(
            [tensor for tensor in (getattr(one, "base", one) for one in given) if isinstance(tensor, torch.Tensor)]
        )

        def start_program(*index: int) -> None:
            log.program += 1
            place(*index)

        def read(*asked: Any, **named: Any) -> Any:
            log.synchronised |= bool(named.get("is_volatile", asked[-1]))  # a volatile load waits for other programs
            return load(*asked, **named)

        try:
            with (
                mock.patch.object(interpreter, "_interpreter", _Watched(memory, log)),
                mock.patch.object(builder, "set_grid_idx", start_program),
                mock.patch.object(builder, "create_masked_load", read),
            ):
                return run(executor, *args, **kwargs)
        finally:
            if race := log.race():
                races.append(race)

    with mock.patch.object(interpreter.GridExecutor, "__call__", launch):
        yield races


def _join_accesses(accesses: list[tuple[Array, Array, int]]) -> tuple[Array, Array, Array]:
    """Addresses, bits and programs of all accesses, sorted by address."""
    none = np.empty(0, np.uint64)
    addresses = np.concatenate([none, *(access.astype(np.uint64) for access, _, _ in accesses)])
    bits = np.concatenate([none, *(access for _, access, _ in accesses)])
    programs = np.concatenate([none.astype(int), *(np.full(access.size, program) for access, _, program in accesses)])
    order = np.argsort(addresses, kind="stable")
    return addresses[order], bits[order], programs[order]


def _two_stores(stores: tuple[Array, Array, Array]) -> Race | None:
    addresses, bits, programs = stores
    clash = (addresses[1:] == addresses[:-1]) & (programs[1:] != programs[:-1]) & (bits[1:] != bits[:-1])
    return _describe_clash("two stores", clash, addresses[1:], programs, programs[1:])


def _load_and_store(loads: tuple[Array, Array, Array], stores: tuple[Array, Array, Array]) -> Race | None:
    """Loads of an address that another program stores to. The first store to an address stands for all of them."""
    addresses, bits, programs = loads
    stored, stored_bits, stored_by = stores
    if not stored.size:
        return None
    place = np.searchsorted(stored, addresses)
    place[place == stored.size] = 0
    clash = (stored[place] == addresses) & (stored_by[place] != programs) & (stored_bits[place] != bits)
    return _describe_clash("load and store", clash, addresses, programs, stored_by[place])


def _outside(tensors: Sequence[torch.Tensor], *accesses: tuple[Array, Array, Array]) -> Race | None:
    """Accesses of no tensor's elements, nor of what its storage has between guards."""
    wide = [tensor for tensor in tensors if tensor.dtype in {torch.int64, torch.uint64} and tensor.numel()]
    holds_addresses = any(bool((tensor.view(torch.int64) > 1 << 32).any()) for tensor in wide)
    storages = [tensor.untyped_storage() for tensor in tensors]
    wholes = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
    spans = []
    for tensor, (first, last) in zip(tensors, wholes, strict=True):
        extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        begin = tensor.data_ptr()
        end = begin + extent * tensor.element_size()
        spans.append((min(begin, first + GUARD_BYTES), max(end, last - GUARD_BYTES)))
    for addresses, _, programs in accesses:
        stray = ~_lies_in(addresses, spans)
        if holds_addresses:
            stray &= _lies_in(addresses, wholes)
        if stray.any():
            return _describe_clash(OUTSIDE, stray, addresses, programs, programs)
    return None


def _lies_in(addresses: Array, spans: Iterable[tuple[int, int]]) -> Array:
    inside = np.zeros(addresses.size, bool)
    for begin, end in spans:
        inside |= (addresses >= begin) & (addresses < end)
    return inside


def _describe_clash(kind: str, clash: Array, addresses: Array, programs: Array, others: Array) -> Race | None:
    if not clash.any():
        return None
    first = int(clash.argmax())
    return Race(kind, np.unique(addresses[clash]).size, (int(programs[first]), int(others[first])))
