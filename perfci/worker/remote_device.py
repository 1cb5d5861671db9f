"""The device as the judge's process sees it: with what goes on in the op's process, as far as its calls go."""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from perfci.core.model import CompiledKernel
from perfci.device.arrays import AllocationWatch, Arrays, Damage
from perfci.device.seam import Accelerator, Layer, Race
from perfci.worker.handover import Called


class _Watch:
    """Damage of guard zones, here and in the op's process."""

    def __init__(self, here: AllocationWatch) -> None:
        self._here, self.damage = here, Damage()

    def find_damage(self) -> Damage:
        return self.damage.join(self._here.find_damage())


class RemoteArrays(Layer[Arrays]):
    """The device's arrays. Memory is watched in both processes."""

    def __init__(self, below: Arrays) -> None:
        super().__init__(below)
        self.watch: _Watch | None = None
        self.filler: str | None = None  # what the op's process is to fill fresh memory with
        self.in_use: int | None = None  # bytes that it holds on the device
        self.counts_there = False  # memory in use is that of the op's process

    def memory_in_use(self) -> int | None:
        """Bytes that one of the two processes holds."""
        return self.in_use if self.counts_there else self.below.memory_in_use()

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_Watch]:
        """Watch memory here and there."""
        with self.below.watch_allocations(filler) as here:
            self.watch, self.filler = _Watch(here), filler
            try:
                yield self.watch
            finally:
                self.watch = self.filler = None


class RemoteDevice(Layer[Accelerator]):
    """The device. Of calls that are made in the op's process, it shows their answers."""

    def __init__(self, below: Accelerator) -> None:
        super().__init__(below)
        self.arrays = RemoteArrays(below.arrays)
        self.races: list[Race] | None = None  # that were seen, if they are watched for
        self._launched: dict[str, CompiledKernel] = {}

    @property
    def seam(self) -> Accelerator:
        """Itself, by its type."""
        return cast(Accelerator, self)

    def see(self, answer: Called) -> None:
        """Take over what was seen of a call there."""
        if self.arrays.watch:
            self.arrays.watch.damage = self.arrays.watch.damage.join(answer.damage)
        if self.races is not None:
            self.races += [Race(*race) for race in answer.races]
        self._launched |= {name: CompiledKernel(name) for name in answer.launched}
        self.below.spend(answer.spent_us)
        self.below.note_launches(answer.launched)

    @contextmanager
    def record_kernels(self) -> Iterator[Mapping[str, CompiledKernel] | None]:
        """Collect launches of calls that are made there, and of those that are repeated here."""
        with self.below.record_kernels() as here:
            self._launched = {}
            yield None if here is None else ChainMap(self._launched, cast(dict[str, CompiledKernel], here))

    @contextmanager
    def watch_races(self) -> Iterator[list[Race]]:
        """Collect races here and there."""
        with self.below.watch_races() as here:
            self.races = []
            try:
                yield self.races
            finally:
                self.races.extend(here)
                self.races = None

    def out_of_memory(self, error: BaseException) -> bool:
        """Also for an exception of the op's process, which has the names of its classes."""
        return "OutOfMemoryError" in getattr(error, "kinds", ()) or self.below.out_of_memory(error)
