"""Gives an op the entries that a search wants it to have, and sees which one a call takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfci.core.errors import ContractError

_ENOUGH_READ = 2
"""Values of an entry that an op has read when it has taken it: one alone may have been asked of every entry."""

Entries = tuple[Mapping[str, Any], ...]


class Seam:
    """Stands for `_launch.tuned`: gives an op the entries that a search wants it to have."""

    def __init__(self, op: str, folder: Path, shared: Path) -> None:
        module: Any = sys.modules.get("_launch")
        if not hasattr(module, "tuned"):
            raise ContractError("tune_not_asked", op=op)
        self._folder, self._shared = folder / "tuned", shared
        self._real: Callable[..., Entries] = module.tuned
        self._entries: Entries | None = None
        self._watch: Watch | None = None
        self._modules = 0
        self._clears: list[Callable[[], None]] = []
        self.key: str | None = None
        """of the device, as the op asks"""
        module.tuned = self._answer

    def use(self, entries: Entries | None) -> None:
        """Have the op read these entries from its next call on. None: those of its file."""
        if entries is not self._entries:
            self._entries = entries
            self.forget()

    def forget(self) -> None:
        """Have the op choose anew."""
        if len(sys.modules) != self._modules:  # between two launches there is no time to look through them all
            self._modules, self._clears = len(sys.modules), _caches(self._shared)
        for clear in self._clears:
            clear()

    @contextmanager
    def watch(self, entries: Entries) -> Iterator[Watch]:
        """Look which entry a call takes."""
        self._watch = Watch(len(entries))
        self.use(
            tuple({**entry, "config": _Asked(entry["config"], self._watch, at)} for at, entry in enumerate(entries))
        )
        try:
            yield self._watch
        finally:
            self.use(None)

    def _answer(self, folder: Path, key: str) -> Entries:
        if Path(folder).resolve() != self._folder.resolve():
            return self._real(folder, key)
        self.key = key
        return self._real(folder, key) if self._entries is None else self._entries


class Watch:
    """What was read of the entries."""

    def __init__(self, entries: int) -> None:
        self._read: list[set[str]] = [set() for _ in range(entries)]
        self._whole: int | None = None
        self._last: int | None = None

    def read(self, entry: int, name: str) -> None:
        """Note a value that was read."""
        self._read[entry].add(name)
        self._last = entry

    def note_whole(self, entry: int) -> None:
        """Note an entry of which all was read."""
        self._whole = entry

    def find_taken(self, sizes: Sequence[int]) -> int | None:
        """Returns the entry that was taken. None if none was."""
        if self._whole is not None or self._last is None:
            return self._whole
        enough = min(_ENOUGH_READ, sizes[self._last])
        return self._last if len(self._read[self._last]) >= enough else None


class _Asked(Mapping[str, Any]):
    """A configuration that notes what is read of it."""

    def __init__(self, values: Mapping[str, Any], watch: Watch, entry: int) -> None:
        self._values, self._watch, self._entry = values, watch, entry

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        self._watch.read(self._entry, name)
        return value

    def __iter__(self) -> Iterator[str]:
        self._watch.note_whole(self._entry)
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _caches(shared: Path) -> list[Callable[[], None]]:
    """What forgets earlier choices in the modules of ops. Limits of the device stay known."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name != "_launch" and Path(file).is_relative_to(shared):
            found += [value.cache_clear for value in vars(module).values() if hasattr(value, "cache_clear")]
    return found
