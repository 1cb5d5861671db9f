"""Files that are there, and what is added to them."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import Reason
from perfci.scaffold.edits import Edit


@dataclass(frozen=True)
class Note:
    """Something that is left to the user."""

    reason: Reason
    lines: str = ""  # to be copied as they are


def template(name: str) -> str:
    """Returns the text of a file that `perfci init` writes."""
    return resources.files("perfci.extensions.setup").joinpath("templates", name).read_text(encoding="utf-8")


def read(path: Path) -> str | None:
    """Returns a text file with its line ends, or None if there is none. Raises StoredFileError if it is no text."""
    try:
        return read_regular(path.resolve()).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StoredFileError("file_unreadable", path=str(path), why=str(error)) from error


def append_lines(text: str, lines: Sequence[str]) -> str:
    """Returns a text with lines after its last and an empty one in between, all in the text's line ends."""
    end = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    added = "".join(f"{line}{end}" for line in lines)
    if not text:
        return added
    ended = text if text.endswith("\n") else text + end
    return ended + ("" if ended.endswith(end * 2) else end) + added


def diff(edit: Edit, home: Path) -> Iterator[str]:
    """Yields the change as the lines of a unified diff, with paths from `home`."""
    name = edit.path.relative_to(home).as_posix() if edit.path.is_relative_to(home) else str(edit.path)
    before = "/dev/null" if edit.before is None else f"a/{name}"
    lines = (edit.before or "").splitlines(), edit.after.splitlines()
    return difflib.unified_diff(*lines, before, f"b/{name}", lineterm="")
