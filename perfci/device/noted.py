"""What was seen of a call, put into words that stay the same as long as the device's work does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from perfci.core.model import Identity, LaunchIdentity, Reason
from perfci.device.launches import Launched
from perfci.device.source import digest, is_own, plain_function, stable

OPTIONS = {
    "shared": "shared memory",
    "num_ctas": "programs of a cluster",
    "cluster_dims": "cluster",
    "launch_cooperative_grid": "cooperative launch",
    "launch_pdl": "dependent launch",
    "tmem_size": "tensor memory",
}
"""What Triton launches with beside warps and stages: its name, and ours, which no parameter can have."""

_open: list[Captured] = []


class Captured:
    """What was seen so far; whole once the context has ended."""

    def __init__(self) -> None:
        self.launched: list[Launched] = []
        self._operations: list[str] = []
        self._launches: list[LaunchIdentity] = []
        self._choices: list[str] = []
        self._sources: dict[str, None] = {}
        self.blind: Reason | None = None
        """what could not be seen first, if anything"""
        self._storages = Storages()
        self._muted = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """Files of the functions that were launched, in order, each once."""
        return tuple(self._sources)

    def identity(self, inputs: str) -> Identity:
        """The call's identity; inputs: digest of `make_inputs`.

        Unknown where something could not be captured, and where nothing was seen at all: a call that hands out what it
        computed before would pass as unchanged whatever it held.
        """
        nothing = None if self._operations or self._launches else Reason("captured_nothing")
        return Identity(
            tuple(self._operations), tuple(self._launches), inputs, tuple(self._choices), self.blind or nothing
        )

    def operation(self, text: str) -> None:
        """Note what happens on the device beside launches."""
        if not self._muted:
            self._operations.append(text)

    def call(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Note a torch operation with its arguments."""
        words = [self.text(value) for value in args]
        words += [f"{key}={self.text(value)}" for key, value in sorted(kwargs.items())]
        self.operation(f"{name}({', '.join(words)})")

    def choice(self, text: str) -> None:
        """Note what a tuner chose, or may choose; each choice once."""
        if text not in self._choices:
            self._choices.append(text)

    def unknown(self, reason: Reason) -> None:
        """Note why the call cannot be captured; the first reason stands."""
        self.blind = self.blind or reason

    def launch(self, launch: Launched) -> None:
        """Note a launch."""
        if self._muted:
            return
        self.launched.append(replace(launch, arguments={}))  # which would keep tensors alive
        self._operations.append(f"launch {launch.name}")
        self._launches.append(self._identity(launch))
        if function := plain_function(launch.function):
            self._sources[function.__code__.co_filename] = None

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Note nothing: a tuner tries its candidates inside."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    def text(self, value: Any) -> str:
        """Any argument as a stable text."""
        return stable(value, self._special)

    def _special(self, value: Any) -> str | None:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return "cuda" if value.type == "meta" else value.type  # offline the one stands for the other
        # Streams are drawn from a pool: their numbers differ from call to call.
        kinds = (("generator", torch.Generator), ("stream", torch.Stream))
        return next((name for name, kind in kinds if isinstance(value, kind)), None)

    def _tensor(self, tensor: torch.Tensor) -> str:
        """Which storage, in order of appearance; dtype, shape, strides and, on the device, alignment."""
        host = tensor.device.type == "cpu"
        shape = f"{str(tensor.dtype).removeprefix('torch.')}[{_sides(tensor.shape)}]"
        try:
            number, address = self._storages.number(tensor), tensor.data_ptr()
        except (RuntimeError, NotImplementedError):  # sparse and nested tensors have no storage of their own
            return f"{tensor.layout} {shape}"
        text = f"#{number} {shape}({_sides(tensor.stride())})"
        return f"cpu {text}" if host else f"{text}@{alignment(address)}"

    def _identity(self, launch: Launched) -> LaunchIdentity:
        metadata = launch.kernel.metadata
        options = {ours: getattr(metadata, name, None) for name, ours in OPTIONS.items()}
        return LaunchIdentity(
            kernel=launch.name,
            artefact=artefact(launch.kernel),
            grid=launch.grid,
            warps=getattr(metadata, "num_warps", None),
            stages=getattr(metadata, "num_stages", None),
            arguments={name: self.text(value) for name, value in launch.arguments.items()}
            | {name: stable(value) for name, value in options.items() if value and value not in (1, (1, 1, 1))},
        )


class Storages:
    """Numbers storages in the order in which they are seen; none is given twice, though memory is."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, StorageWeakRef]] = {}

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        return self.of(tensor.untyped_storage())

    def of(self, storage: torch.UntypedStorage) -> int:
        """The number of a storage."""
        key = storage._cdata
        if key not in self._seen:
            # The weak reference keeps the storage's own address from being given to another.
            self._seen[key] = len(self._seen), StorageWeakRef(storage)
        return self._seen[key][0]


def artefact(kernel: Any) -> str:
    """Digest of a compiled kernel's device code: cubin, hsaco or what else its backend ends with."""
    binaries = [code for code in kernel.asm.values() if isinstance(code, bytes)]
    return digest(binaries[-1] if binaries else kernel.hash)


def alignment(address: int) -> int:
    """The largest power of two that divides an address, up to the 16 bytes that Triton tells apart."""
    return min(address & -address, 16) or 16


def note(text: str) -> None:
    """Tell every capture under way what happens on the device."""
    for capture in _open:
        capture.operation(text)


def note_choice(text: str) -> None:
    """Tell every capture under way what a tuner may choose."""
    for capture in _open:
        capture.choice(text)


def note_unknown(kind: str, what: str) -> Reason:
    """Tell every capture under way what it cannot see, and which line of the op did it."""
    reason = Reason(kind, {"what": what, **place()})
    for capture in _open:
        capture.unknown(reason)
    return reason


def place() -> dict[str, str | int | None]:
    """File and line of the innermost frame that is in a file of the project."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return {"file": Path(frame.f_code.co_filename).name if frame else None, "line": frame.f_lineno if frame else None}


def _sides(sides: Iterable[int]) -> str:
    return ",".join(map(str, sides))


@contextmanager
def listening(capture: Captured) -> Iterator[None]:
    """Have a capture hear what `note` and its like tell."""
    _open.append(capture)
    try:
        yield
    finally:
        _open.remove(capture)
