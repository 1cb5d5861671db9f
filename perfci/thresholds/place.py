"""YAML in which every value knows its file and line. Never constructed, so nothing in a file can run, grow or hang."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.wording import say

MOST_BYTES = 1 << 20  # Largest file that is read. An entry of a list takes some 100 bytes.
SHOWN = 60  # characters of a file's text in a sentence about it
_FAST_LINE, _FAST_BRACKETS = 4000, 500  # characters of a line, and brackets, up to which libyaml reads a text

_SCALARS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp"))


@dataclass(frozen=True)
class Place:
    """A value in a file, with what its error message needs."""

    file: Path
    line: int
    key: str
    node: yaml.Node

    def error(self, kind: str, **facts: str | float | None) -> StoredFileError:
        """An error about this place, to be raised."""
        return StoredFileError(kind, file=str(self.file), line=self.line, key=shorten_text(self.key), **facts)

    def unlike(self, want: str) -> StoredFileError:
        """The error of a value that is not what is wanted."""
        text = self.node.value if isinstance(self.node, yaml.ScalarNode) else say("a list or a mapping")
        return self.error("threshold_value", found=shorten_text(str(text)) or say("nothing"), want=want)

    def text(self, want: str) -> str:
        """A single value as it is written, without its quotes. Raises the error that asks for what is wanted."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag not in _SCALARS:
            raise self.unlike(want)
        return str(self.node.value)

    def is_a(self, *kinds: str) -> bool:
        """Whether YAML takes the value for one of these: str, int, float, bool, null, timestamp."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag.removeprefix("tag:yaml.org,2002:") in kinds

    def items(self) -> Iterator[Place]:
        """The entries of a mapping, each once."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.unlike(say("a mapping of names to values"))
        seen: set[str] = set()
        for key, value in self.node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise Place(self.file, line, self.key, key).unlike(say("a mapping of names to values"))
            entry = Place(self.file, line, str(key.value), value)
            if entry.key in seen:
                raise entry.error("threshold_twice")
            seen.add(entry.key)
            yield entry

    def members(self, want: str) -> tuple[Place, ...]:
        """The members of a list that stand one a line each, beginning with a dash. None of an empty value."""
        if self.is_a("null"):
            return ()
        if not isinstance(self.node, yaml.SequenceNode) or self.node.flow_style:
            raise self.unlike(want)
        return tuple(Place(self.file, node.start_mark.line + 1, self.key, node) for node in self.node.value)

    @property
    def column(self) -> int:
        """Where the value begins in its line, from 0. Of such a list its dashes."""
        return int(self.node.start_mark.column)


def shorten_text(text: str) -> str:
    """Text of a file, as much of it as a sentence holds."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def make_unknown_error(entry: Place, keys: Collection[str]) -> StoredFileError:
    """The error of a key that no one knows, with the one that was meant."""
    guess = find_meant(entry.key, keys)
    kind = "threshold_key_misspelt" if guess else "threshold_key_unknown"
    return entry.error(kind, meant=guess, keys=", ".join(sorted(keys)))


def find_meant(word: str, words: Collection[str]) -> str | None:
    """Returns the known word that is closest, if any is close."""
    return next(iter(difflib.get_close_matches(shorten_text(word), sorted(words), n=1)), None)


def list_nearest_first(word: str, words: Collection[str]) -> str:
    """The known words as a list in a sentence, the one that was probably meant first. A dash if there are none."""
    guess = find_meant(word, words)
    return ", ".join(sorted(words, key=lambda name: (name != guess, name))) or "-"


def list_yaml(folder: Path) -> dict[str, Path]:
    """The YAML files of a folder by their names without ending. None if there is no folder. Raises StoredFileError."""
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise StoredFileError("file_unreadable", path=str(folder), why=say("it is no folder"))
    yaml = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in {".yaml", ".yml"} and path.suffix != ".yaml":
            raise StoredFileError("thresholds_ending", file=str(path), name=f"{path.stem}.yaml")
        if path.suffix == ".yaml":
            yaml[path.stem] = path
    return yaml


def read(path: Path) -> Place | None:
    """The whole of a YAML file, None if it is empty. Raises StoredFileError as `read_bytes` does."""
    return parse_yaml(path, decode_text(path, read_bytes(path)))


def read_bytes(path: Path) -> bytes:
    """The content of a YAML file. Raises StoredFileError if it is too large or cannot be read."""
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def parse_yaml(path: Path, text: str) -> Place | None:
    """The same of the text that such a file holds. Raises StoredFileError."""
    # libyaml is ten times as quick, but goes down without a limit, and describes faults in its words.
    longest = max(map(len, text.split("\n")))
    deep = text.count("[") + text.count("{") > _FAST_BRACKETS or longest > _FAST_LINE
    node = None
    if not deep and hasattr(yaml, "CSafeLoader"):
        with contextlib.suppress(yaml.YAMLError):
            node = yaml.compose(text, Loader=yaml.CSafeLoader)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader) if node is None else node
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, int) else ord(error.character)
        line = text.count("\n", 0, error.position) + 1
        raise _make_unreadable_error(path, line, f"the character U+{character:04X} has no place in it") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be understood"
        raise _make_unreadable_error(path, mark.line + 1 if mark else None, problem) from error
    except RecursionError as error:
        raise _make_unreadable_error(path, 1, "it is nested too deeply") from error
    return None if node is None else Place(path, 1, path.name, node)


def decode_text(path: Path, data: bytes) -> str:
    """The bytes of such a file as text. Raises StoredFileError if they are no UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _make_unreadable_error(path, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8 text") from error


def _make_unreadable_error(path: Path, line: int | None, problem: str) -> StoredFileError:
    return StoredFileError("thresholds_unreadable", file=str(path), line=line, problem=shorten_text(problem))
