"""Gives an op other entries of its tuned file than it has, and sees which one a call takes."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfci.core.errors import ContractError

_ENOUGH_READ = 2
"""Values of an entry that an op has read when it has taken it: one alone may have been asked of every entry."""

Entries = tuple[Mapping[str, Any], ...]


class Seam:
    """Replaces `_launch.tuned`."""

    def __init__(self, op: str, folder: Path, shared: Path) -> None:
        module: Any = sys.modules.get("_launch")
        if not hasattr(module, "tuned"):
            raise ContractError("tune_not_asked", op=op)
        self._folder, self._shared = (folder / "tuned").resolve(), shared
        self._real: Callable[..., Entries] = module.tuned
        self._entries: Entries | None = None
        self._modules = 0
        self._clears: list[Callable[[], None]] = []
        self.key: str | None = None  # of the device, as the op asks
        module.tuned = self._answer

    def _answer(self, folder: Path, key: str) -> Entries:
        answer = Path(folder).resolve() == self._folder
        self.key = key if answer else self.key
        return self._entries if answer and self._entries is not None else self._real(folder, key)

    def use(self, entries: Entries | None) -> None:
        """Have the op read these entries from its next call on. None: those of its file."""
        if entries is not self._entries:
            self._entries = entries
            self.forget()

    def forget(self) -> None:
        """Have the op choose anew: clear the caches of the ops' modules. Limits of the device stay known."""
        if len(sys.modules) != self._modules:  # between two launches there is no time to look through them all
            self._modules = len(sys.modules)
            files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
            names = [name for name, file in files.items() if file and Path(file).is_relative_to(self._shared)]
            values = [value for name in names if name != "_launch" for value in vars(sys.modules[name]).values()]
            self._clears = [value.cache_clear for value in values if hasattr(value, "cache_clear")]
        for clear in self._clears:
            clear()

    def find_taken(self, entries: Entries, call: Callable[[], object]) -> int | None:
        """Returns the place of the entry that a call takes. None if it takes none."""
        reads: list[tuple[int, str | None]] = []
        self.use(
            tuple({**entry, "config": _RecordingConfig(entry["config"], at, reads)} for at, entry in enumerate(entries))
        )
        try:
            call()
        finally:
            self.use(None)
        whole = [at for at, name in reads if name is None]
        if whole or not reads:
            return whole[-1] if whole else None
        last = reads[-1][0]
        enough = min(_ENOUGH_READ, len(entries[last]["config"]))
        return last if len({name for at, name in reads if at == last}) >= enough else None


class _RecordingConfig(Mapping[str, Any]):
    """A configuration that notes which of its values are read, None for all of them."""

    def __init__(self, values: Mapping[str, Any], place: int, reads: list[tuple[int, str | None]]) -> None:
        self._values, self._place, self._reads = values, place, reads

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        self._reads.append((self._place, name))
        return value

    def __iter__(self) -> Iterator[str]:
        self._reads.append((self._place, None))
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
