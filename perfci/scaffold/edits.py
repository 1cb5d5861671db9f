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
    """None where there is no such file yet"""
    after: str


def read(path: Path) -> str | None:
    """A text file with its line ends as they are; None where there is none.

    Raises UsageError for a folder, for what is no UTF-8 text, and where a folder above it is a file; StoredFileError
    where it cannot be read.
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
    """Raise UsageError where one of the folders that a path needs is a file."""
    above = next((folder for folder in path.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        raise UsageError("init_no_folder", path=str(above))


def line_end(text: str) -> str:
    """The end that most of a text's lines have; that of Unix where it has none."""
    windows = text.count("\r\n")
    return "\r\n" if 2 * windows > text.count("\n") else "\n"


def appended(text: str, lines: Sequence[str]) -> str:
    """A text with lines after its last, an empty one in between, all in the text's own line ends."""
    end = line_end(text)
    if not text:
        return "".join(f"{line}{end}" for line in lines)
    ended = text if text.endswith("\n") else text + end
    blank = "" if ended.endswith(end * 2) else end
    return ended + blank + "".join(f"{line}{end}" for line in lines)


def diff(edit: Edit, home: Path) -> Iterator[str]:
    """The change as the lines of a unified diff, with paths from `home`."""
    name = edit.path.relative_to(home).as_posix() if edit.path.is_relative_to(home) else str(edit.path)
    before = "/dev/null" if edit.before is None else f"a/{name}"
    lines = (edit.before or "").splitlines(), edit.after.splitlines()
    return difflib.unified_diff(*lines, before, f"b/{name}", lineterm="")


def write(edits: Iterable[Edit]) -> None:
    """Write every file, or, where one cannot be written, none: new folders and files are taken away again.

    Each is written beside its place first. A link is followed, and a file keeps its mode. Raises StoredFileError.
    """
    with contextlib.ExitStack() as undo:
        ready = [(_beside(edit, undo), edit) for edit in edits]
        for beside, edit in ready:
            _move(beside, edit, undo)
        undo.pop_all()


def _beside(edit: Edit, undo: contextlib.ExitStack) -> Path:
    """The new text in a file beside its place, in folders made for it."""
    target = edit.path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with _telling(edit.path):
        for folder in reversed([each for each in target.parents if not each.exists()]):
            folder.mkdir()
            undo.callback(_unless_gone, folder.rmdir)
        undo.callback(_unless_gone, beside.unlink)
        beside.write_bytes(edit.after.encode())
        if target.exists():
            shutil.copymode(target, beside)
    return beside


def _move(beside: Path, edit: Edit, undo: contextlib.ExitStack) -> None:
    target = edit.path.resolve()
    with _telling(edit.path):
        beside.replace(target)
    if edit.before is None:
        undo.callback(_unless_gone, target.unlink)
    else:
        undo.callback(target.write_bytes, edit.before.encode())


@contextlib.contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


def _unless_gone(remove: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        remove()
