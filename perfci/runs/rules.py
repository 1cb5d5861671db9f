"""The rules by which a change is judged: thresholds, baselines and lists of boards, the base's or the project's."""

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Base, Expected, board_key
from perfci.core.settings import FILE as SETTINGS_FILE
from perfci.core.settings import Settings, read_table
from perfci.core.settings import at as settings_at
from perfci.git.base import PROPOSALS, How
from perfci.ops.discover import ops
from perfci.ops.fingerprint.pins import pins_changed
from perfci.runs.bench import Bench, move_path, stamp
from perfci.store import HISTORY_ENDING
from perfci.store.files import read_whole
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load

PLACES = ("kernels", "baselines", "thresholds")  # settings by which a change is judged: folders of the project
LISTS = "quarantine", "cleared"  # settings that list boards


def move_settings(settings: Settings, root: Path) -> Settings:
    """Returns the settings of another tree, by its account. Reports and the lock stay in their places."""
    # If the settings there cannot be read no board is quarantined, which is stricter.
    there: dict[str, Any] = dict.fromkeys(LISTS, ())
    there |= {name: move_path(getattr(settings, name), settings.root, root) for name in PLACES}
    with contextlib.suppress(UsageError):
        # A change must not lead to other ops and rules of the base than the base itself has.
        theirs = settings_at(root)
        there = {name: getattr(theirs, name) for name in (*PLACES, *LISTS)}
    return dataclasses.replace(settings, root=root, **there)


def choose_rules(base: Base | None, theirs: Settings | None, ours: Settings) -> Settings:
    """Returns the settings with the thresholds and baselines that judge a run: those of the base of a merge request."""
    return theirs if theirs and is_judged_by_base(base) else ours


def is_judged_by_base(base: Base | None) -> bool:
    """Whether a change is judged by other thresholds and baselines than it has itself."""
    return base is not None and base.rules and bool(base.changed_rules)


def hash_rules(rules: Settings) -> str:
    """SHA-256 of the thresholds and baselines by which a run is judged, with their names. Histories judge nothing."""
    digest = hashlib.sha256()
    for folder in (rules.thresholds, rules.baselines):
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and HISTORY_ENDING not in path.name):
            content = hashlib.sha256(_read(path)).hexdigest()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()}\0{content}\n".encode(errors="replace"))
    for name in LISTS:
        for board in sorted(map(board_key, getattr(rules, name))):
            digest.update(f"{name}\0{board}\n".encode(errors="replace"))
    return digest.hexdigest()


def verify_rules_unchanged(bench: Bench, *projects: Settings) -> None:
    """Note the thresholds and baselines of projects before a kernel runs. Raises UsageError if they differ later.

    The same for what was written for this run: the base's files, and copies of what ops need.
    """
    for project in projects:
        digest = hash_rules(project)
        if bench.sealed.setdefault(project.root, digest) != digest:
            raise UsageError("rules_edited", folder=str(project.root))
    for folder, before in bench.stamps.items():
        if folder.is_dir() and stamp(folder) != before:
            raise UsageError("copies_edited", folder=str(folder))


def compare_rules(base: Base, theirs: Settings, ours: Settings) -> Base:
    """The base with what the change does to the rules by which it is judged."""
    if base.how == How.BASELINE:  # baselines are always younger than the commit that they record
        return base
    rules = (
        *_list_differing(ours.thresholds, theirs.thresholds, ours.root),
        *_list_differing(ours.baselines, theirs.baselines, ours.root),
    )
    table: dict[str, Any] | None = None
    with contextlib.suppress(UsageError):
        table = read_table(theirs.root)
    if read_table(ours.root) != table:
        rules = (*rules, SETTINGS_FILE)
    expected: tuple[Expected, ...] = ()
    if rules:
        # A note names the change's expected entries, even if it is judged by its rules.
        before = change = load(ours.thresholds, list_known_ops(ours), ours.root)
        try:
            before = load(theirs.thresholds)
        except StoredFileError:
            if base.rules:
                raise
        expected = mark_added(change, before)
    branch = os.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "")
    below = move_path(ours.baselines, ours.root, Path())
    return dataclasses.replace(
        base,
        changed_rules=rules,
        changed_baselines=tuple(path for path in rules if Path(path).is_relative_to(below)),
        proposed_on=branch if branch.startswith(PROPOSALS) else None,
        changed_pins=pins_changed(ours.root, theirs.root),
        expected=expected,
    )


def mark_added(change: Thresholds, base: Thresholds) -> tuple[Expected, ...]:
    """All expected entries of a change, those marked that its base lacks."""
    entries = [entry for op in sorted(change.ops) for entry in change.ops[op].expected]
    return tuple(dataclasses.replace(entry, added=entry not in base.expected(entry.op)) for entry in entries)


def list_known_ops(settings: Settings) -> list[str] | None:
    """Names of the project's ops. None if it has no folder of them."""
    return [op.op for op in ops(settings)] if settings.kernels.is_dir() else None


def _read(path: Path) -> bytes:
    """The content of a file, or where a link leads: what that is no one asks. Raises StoredFileError."""
    return os.fsencode(path.readlink()) if path.is_symlink() else read_whole(path)


def _list_differing(ours: Path, theirs: Path, root: Path) -> list[str]:
    """Returns the files that only one of two folders has, or that differ, by their names below the project's root."""
    below = move_path(ours, root, Path())
    now, before = (
        {str(below / path.relative_to(folder)): _read(path) for path in folder.rglob("*") if path.is_file()}
        for folder in (ours, theirs)
    )
    return sorted(path for path in {*now, *before} if now.get(path) != before.get(path))
