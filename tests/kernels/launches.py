"""What the scripts beside this one, which compile kernels for an H200 without one, tell of each launch."""

from collections.abc import Callable, Iterator
from typing import Any


def launched(call: Callable[[], Any]) -> Iterator[tuple[Any, Any, str, dict[str, Any]]]:
    """Each kernel that a call launches: the launch, its identity, its PTX, and the facts that always count."""
    from perfci.device import binaries, offline

    seen = offline.compiled(call)
    assert seen.failure is None, seen.failure
    assert seen.raised is None, seen.raised
    for launch, told in zip(seen.capture.launched, seen.capture.identity("").launches, strict=True):
        yield launch, told, launch.kernel.asm["ptx"], {
            "kernel": told.kernel,
            "grid": told.grid,
            "shared": launch.kernel.metadata.shared,
            "spilled": binaries.usage(launch.kernel).local_bytes,
        }  # fmt: skip
