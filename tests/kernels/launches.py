"""What the scripts beside this one, which compile kernels for an H200 without one, report of each launch."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfci.extensions.common.targets import LINE_FREE, target_named

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def print_report(report: Callable[[], list[dict[str, Any]]], *ops: str) -> None:
    """Prints a function's answer about kernels of these ops as JSON. The process is useless for anything else then."""
    os.environ.update(LINE_FREE)
    os.environ.pop("TRITON_INTERPRET", None)
    from perfci.extensions.offline import compiling as offline

    offline.install(target_named("sm_90"))
    sys.path[:0] = [str(KERNELS), *(str(KERNELS / op) for op in ops)]
    print(json.dumps(report()), flush=True)
    os._exit(0)  # without taking apart all of torch


def launched(call: Callable[[], Any]) -> Iterator[tuple[Any, Any, str, dict[str, Any]]]:
    """Each kernel that a call launches: the launch, its identity, its PTX, and the facts that always count."""
    from perfci.extensions.common import binaries
    from perfci.extensions.offline import compiling as offline

    seen = offline.compile_call(call)
    assert seen.failure is None, seen.failure
    assert seen.raised is None, seen.raised
    for launch, told in zip(seen.capture.launched, seen.capture.identity("").launches, strict=True):
        yield launch, told, launch.kernel.asm["ptx"], {
            "kernel": told.kernel,
            "grid": told.grid,
            "shared": launch.kernel.metadata.shared,
            "spilled": binaries.usage(launch.kernel).local_bytes,
        }  # fmt: skip
