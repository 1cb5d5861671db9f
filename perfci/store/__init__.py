"""Runs, baselines and launches on disk: versioned JSON that people can read in a diff, written whole or not at all.

A damaged, foreign or newer file is a StoredFileError that names the file and the place. Nothing ever writes over one.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.core import locks
from perfci.core.errors import StoredFileError
from perfci.core.model import Baseline, Run
from perfci.store import signature
from perfci.store.files import decode, encode, refuse_to_overwrite_unreadable, write_atomically

HISTORY_ENDING = ".history.jsonl"  # of a file of accepted runs, which lies beside a baseline
NAME = re.compile(r"\w[\w.@+-]{0,99}")  # an op's name or a device's key that names a file: no path, no hidden file
RUN_FILE = "run.json"  # the artefact of a run, in the reports folder


@contextmanager
def claim_reports(
    folder: Path, waiting: Callable[[str], None] = lambda _: None, limit_s: float = 0.0
) -> Iterator[None]:
    """Hold a reports folder for one run, and make it if it is missing. The lock's file stays there.

    If another process writes there, `waiting` is called once with its name. Raises StoredFileError if that lasts longer
    than the limit, if the folder cannot be written, or if its run.json is unreadable.
    """
    handle = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = locks.open_lock(folder / ".lock")
        until, told = time.monotonic() + limit_s, False
        while not locks.take_if_possible(handle):
            if time.monotonic() >= until:
                raise StoredFileError("reports_taken", folder=str(folder), holder=locks.holder(handle))
            if not told:
                waiting(locks.holder(handle))
            told = True
            time.sleep(locks.POLL_S)
        locks.sign(handle)  # which notices a full disk
    except OSError as error:
        why = "a file has that name" if folder.is_file() else error.strerror or str(error)
        raise StoredFileError("reports_unwritable", folder=str(folder), why=why) from error
    else:
        refuse_to_overwrite_unreadable(folder / RUN_FILE)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def read_run(path: Path) -> Run:
    """A stored run, from its file or from the folder that holds it. Raises StoredFileError."""
    return decode(path / RUN_FILE if path.is_dir() else path, Run)


def write_run(run: Run, folder: Path) -> Path:
    """Write `folder/run.json` and give its path. Raises StoredFileError, also for an unreadable file in its place."""
    path = folder / RUN_FILE
    refuse_to_overwrite_unreadable(path)
    data = encode(run, path)
    signature.sign(path, data)
    return write_atomically(path, data)


def baseline_path(root: Path, device_key: str, op: str) -> Path:
    """Path of an op's baseline on a device model. Raises StoredFileError for a name that no file there may have."""
    for name in (device_key, op):
        if not NAME.fullmatch(name):
            raise StoredFileError("baseline_name", name=name[:100])
    return root / device_key / f"{op}.json"


def read_baseline(path: Path) -> Baseline:
    """One op's stored baseline. Raises StoredFileError, also for a file that lies under another op's name."""
    baseline = decode(path, Baseline)
    if (baseline.op, baseline.device) != (path.stem, path.parent.name):
        raise StoredFileError("baseline_misplaced", path=str(path), op=baseline.op, device=baseline.device)
    return baseline


def read_baselines(root: Path, device_key: str) -> dict[str, Baseline]:
    """Every baseline of a device model by op. None if its folder does not exist. Raises StoredFileError."""
    paths = sorted(baseline_path(root, device_key, "op").parent.glob("*.json"))
    return {path.stem: read_baseline(path) for path in paths if not path.name.startswith(".")}


def encode_baseline(baseline: Baseline, root: Path) -> tuple[Path, bytes]:
    """Returns the path of a baseline's file and its content. Raises StoredFileError as `write_run` does."""
    path = baseline_path(root, baseline.device, baseline.op)
    refuse_to_overwrite_unreadable(path)
    return path, encode(baseline, path)
