"""A process that compiles for a device that it does not have."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.errors import DeviceError
from perfci.core.model import Reason
from perfci.device.tritons import explain_unknown_triton
from perfci.extensions.common.targets import LINE_FREE, Target
from perfci.extensions.offline import library
from perfci.worker.apart import forget_others
from perfci.worker.load import describe_exception, import_from
from perfci.worker.protocol import Message
from perfci.worker.tasks import OpFiles, Task

if TYPE_CHECKING:
    from perfci.extensions.offline.compiling import CallOutcome

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
"""A device that the machine may have is not the target's."""

Send = Callable[[Message], None]


def install_target(target: Target) -> None:
    """Have this process compile for the target. Raises DeviceError if torch or Triton do not allow that."""
    library.load_early()
    os.environ.update(LINE_FREE | HIDDEN)
    os.environ.pop("TRITON_INTERPRET", None)
    if unknown := explain_unknown_triton():
        raise DeviceError(unknown.kind, **unknown.facts)
    try:
        from perfci.extensions.offline import compiling
    except ImportError as error:
        raise DeviceError("static_needs_triton", error=str(error)) from error
    compiling.install(target)


def import_path(task: Task, files: OpFiles) -> AbstractContextManager[None]:
    """The op's folders, for imports that its functions make when they are called."""
    forget_others(files.folder, task.shared_folder)
    return import_from(files.folder, task.shared_folder)


def explain_failure(seen: CallOutcome, folder: Path, case: str, kind: str) -> Reason | None:
    """Returns why a call was not captured: what it needed of a device, what does not compile, or what it raised."""
    why = seen.failure or seen.capture.blind
    if why is None and seen.raised is not None:
        why = Reason(kind, {"case": case, **describe_exception(seen.raised, folder)})
    return why
