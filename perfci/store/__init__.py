"""Runs, baselines and raw launches on disk: versioned JSON that people can read in a diff.

A damaged, foreign or newer file is a StoredFileError that names the file and the place; nothing ever writes over one.
Every file is written whole or not at all: beside its place first, then moved there.
"""

from __future__ import annotations

from pathlib import Path

from perfci.errors import StoredFileError
from perfci.model import Baseline, Run
from perfci.store.files import decode, encode, refuse_to_overwrite_unreadable, write_atomically
from perfci.store.launches import Launches, LaunchRow, append_launches, clear_launches, read_launches
from perfci.store.schemas import write_schemas

__all__ = [
    "RUN_FILE",
    "LaunchRow",
    "Launches",
    "append_launches",
    "baseline_path",
    "clear_launches",
    "read_baseline",
    "read_baselines",
    "read_launches",
    "read_run",
    "write_baseline",
    "write_run",
    "write_schemas",
]

RUN_FILE = "run.json"
"""The artefact of a run, in the reports folder."""


def read_run(path: Path) -> Run:
    """A stored run, from its file or from the folder that holds it. Raises StoredFileError."""
    return decode(path / RUN_FILE if path.is_dir() else path, Run)


def write_run(run: Run, folder: Path) -> Path:
    """Write `folder/run.json` and give its path.

    Raises StoredFileError where that cannot be written, or where an unreadable file stands in its place: call it once
    before measuring, and such a file is found out early.
    """
    path = folder / RUN_FILE
    refuse_to_overwrite_unreadable(path)
    return write_atomically(path, encode(run, path))


def baseline_path(root: Path, device_key: str, op: str) -> Path:
    """Where the baseline of an op on a device model lies under the baselines folder."""
    return root / device_key / f"{op}.json"


def read_baseline(path: Path) -> Baseline:
    """One op's stored baseline. Raises StoredFileError, also for a file that lies under another op's name."""
    baseline = decode(path, Baseline)
    if (baseline.op, baseline.device) != (path.stem, path.parent.name):
        raise StoredFileError("baseline_misplaced", path=str(path), op=baseline.op, device=baseline.device)
    return baseline


def read_baselines(root: Path, device_key: str) -> dict[str, Baseline]:
    """Every baseline of a device model by op; none where its folder does not exist. Raises StoredFileError."""
    paths = sorted((root / device_key).glob("*.json"))
    return {path.stem: read_baseline(path) for path in paths if not path.name.startswith(".")}


def write_baseline(baseline: Baseline, root: Path) -> Path:
    """Write `root/<device key>/<op>.json` and give its path. Raises StoredFileError as `write_run` does."""
    path = baseline_path(root, baseline.device, baseline.op)
    refuse_to_overwrite_unreadable(path)
    return write_atomically(path, encode(baseline, path))
