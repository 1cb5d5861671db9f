"""Files as they are and as they are to be: read with their line ends, shown as a diff, written all or none."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError


@dataclass(frozen=True)
class Edit:
    """One file's change."""

    path: Path
    before: str | None
    """None if there is no such file yet"""
    after: str


def read(path: Path) -> str | None:
    """A text file with its line ends as they are. None if there is none.

    Raises UsageError for a folder, for what is no UTF-8 text, and if a folder above it is a file; StoredFileError
    if it cannot be read.
    """
    refuse_file_above(path)
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise UsageError("init_no_file", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError("init_no_text", path=str(path)) from error
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def refuse_file_above(path: Path) -> None:
    """Raise UsageError if one of the folders that a path needs is a file."""
    above = next((folder for folder in path.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        raise UsageError("init_no_folder", path=str(above))


def append_lines(text: str, lines: Sequence[str]) -> str:
    """A text with lines after its last, an empty one in between, all in the text's own line ends."""
    end = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    added = "".join(f"{line}{end}" for line in lines)
    if not text:
        return added
    ended = text if text.endswith("\n") else text + end
    return ended + ("" if ended.endswith(end * 2) else end) + added


def diff(edit: Edit, home: Path) -> Iterator[str]:
    """The change as the lines of a unified diff, with paths from `home`."""
    name = edit.path.relative_to(home).as_posix() if edit.path.is_relative_to(home) else str(edit.path)
    before = "/dev/null" if edit.before is None else f"a/{name}"
    lines = (edit.before or "").splitlines(), edit.after.splitlines()
    return difflib.unified_diff(*lines, before, f"b/{name}", lineterm="")


def write(edits: Iterable[Edit]) -> None:
    """Write every file, or none if one cannot be written: new folders and files are removed again.

    Each is written beside its place first. A link is followed, and a file keeps its mode. Raises StoredFileError.
    """
    with contextlib.ExitStack() as undo:
        ready = []
        for edit in edits:
            target = edit.path.resolve()
            beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            with _raise_stored(edit.path):
                for folder in reversed([each for each in target.parents if not each.exists()]):
                    folder.mkdir()
                    undo.callback(_try_to, folder.rmdir)
                undo.callback(_try_to, beside.unlink)
                beside.write_bytes(edit.after.encode())
                if target.exists():
                    shutil.copymode(target, beside)
            ready.append((beside, target, edit))
        for beside, target, edit in ready:
            with _raise_stored(edit.path):
                beside.replace(target)
            if edit.before is None:
                undo.callback(_try_to, target.unlink)
            else:
                undo.callback(target.write_bytes, edit.before.encode())
        undo.pop_all()


@contextlib.contextmanager
def _raise_stored(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


def _try_to(remove: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        remove()
