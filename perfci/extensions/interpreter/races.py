"""Races of interpreted launches and accesses outside their tensors, by every access of every program.

Two programs of one launch race if both store different values to one address, or if one stores a value that differs
from what the other loads there. Races of a launch with atomics or volatile loads are left alone: they may synchronise
it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from perfci.device.seam import OUTSIDE, Race
from perfci.extensions.interpreter.memory import guard

Array = np.ndarray[Any, Any]

MOST_ACCESSES = 4_000_000  # a launch with more is not looked at: noting it would take more memory than running it

_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


Access = tuple[Array, Array, Array, int]  # addresses, values, mask and program of a load or store


class _Log:
    """One launch's accesses."""

    def __init__(self) -> None:
        self.loads: list[Access] = []
        self.stores: list[Access] = []
        self.count = 0
        self.program = -1
        self.synchronised = False

    def note(self, kept: list[Access], pointers: Array, values: Array, mask: Array | bool) -> None:
        if self.synchronised or self.count > MOST_ACCESSES:
            return
        access = pointers, values, np.broadcast_to(mask, pointers.shape), self.program
        if kept and kept[-1][3] == self.program and _are_same(kept[-1], access):  # it waits for a flag
            return
        self.count += pointers.size
        kept.append(access)

    def race(self) -> Race | None:
        if self.synchronised or self.count > MOST_ACCESSES or not self.program:
            return None
        loads, stores = map(_join_accesses, (self.loads, self.stores))
        return _two_stores(stores) or _load_and_store(loads, stores)


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

    def atomic_rmw(self, *args: Any) -> Any:
        self._log.synchronised = True
        return self._memory.atomic_rmw(*args)

    def atomic_cas(self, *args: Any) -> Any:
        self._log.synchronised = True
        return self._memory.atomic_cas(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


@contextmanager
def watch_races() -> Iterator[list[Race]]:
    """Collect races of every interpreted launch inside, and what it uses outside its tensors.

    Needs a process that runs with TRITON_INTERPRET=1.
    """
    from triton.runtime import interpreter

    races: list[Race] = []
    memory = guard()
    builder, run = interpreter.interpreter_builder, interpreter.GridExecutor.__call__
    place, load = builder.set_grid_idx, builder.create_masked_load

    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        log = _Log()

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
            if (made := memory.launch) and made.outside:
                count = np.unique(np.concatenate(made.outside)).size
                races.append(Race(OUTSIDE, count, (made.program, made.program), made.facts))
            elif race := log.race():
                races.append(race)

    with mock.patch.object(interpreter.GridExecutor, "__call__", launch):
        yield races


def _are_same(one: Access, other: Access) -> bool:
    """Whether two accesses have the same addresses and values. Most differ in the first."""
    (pointers, values, mask, _), (others, other_values, other_mask, _) = one, other
    if pointers.shape != others.shape or pointers.item(0) != others.item(0):
        return False
    pairs = ((pointers, others), (values, other_values), (mask, other_mask))
    return all(np.array_equal(left, right) for left, right in pairs)


def _join_accesses(accesses: list[Access]) -> tuple[Array, Array, Array]:
    """Addresses, bits and programs of all accesses, sorted by address."""
    none = np.empty(0, np.uint64)
    addresses, bits, programs = [none], [none], [none.astype(int)]
    for pointers, values, mask, program in accesses:
        chosen = mask.astype(bool)  # the interpreter may hold int32
        addresses.append(pointers[chosen].astype(np.uint64))
        bits.append(np.ascontiguousarray(values).view(_WIDTHS[values.dtype.itemsize])[chosen].astype(np.uint64))
        programs.append(np.full(addresses[-1].size, program))
    joined = [np.concatenate(parts) for parts in (addresses, bits, programs)]
    order = np.argsort(joined[0], kind="stable")
    return joined[0][order], joined[1][order], joined[2][order]


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


def _describe_clash(kind: str, clash: Array, addresses: Array, programs: Array, others: Array) -> Race | None:
    if not clash.any():
        return None
    first = int(clash.argmax())
    return Race(kind, np.unique(addresses[clash]).size, (int(programs[first]), int(others[first])))
