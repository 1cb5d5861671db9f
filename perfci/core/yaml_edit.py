"""YAML files that perfci edits: comments, order, quotes and line ends that people chose stay."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

_INDENTS = ((2, 2, 0), (2, 4, 2), (4, 4, 0), (4, 4, 2), (2, 6, 4))
"""Of mappings, of sequences, and of a sequence's dashes: the first that gives the text back is the file's own."""


@dataclass
class YamlDocument:
    """One document with all of its text."""

    data: Any  # mappings, sequences and scalars, which all are text as it is written. None if the file holds no value
    parser: Any
    mark: str  # byte order mark
    line_end: str

    def write(self) -> str:
        """The file's text with the changes made to `data`."""
        stream = io.StringIO()
        self.parser.dump(self.data, stream)
        return self.mark + stream.getvalue().replace("\n", self.line_end)


def read_document(text: str) -> YamlDocument | None:
    """A file's text for editing. None if it would not be written back as it is, apart from its last line end."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    line_end = "\r\n" if "\r\n" in text else "\n"
    body = text.removeprefix(mark).replace(line_end, "\n")
    if body and not body.endswith("\n"):
        body += "\n"
    for mapping, sequence, offset in _INDENTS:
        parser = _make_parser()
        parser.indent(mapping=mapping, sequence=sequence, offset=offset)
        try:
            document = YamlDocument(parser.load(body), parser, mark, line_end)
            if document.data is not None and document.write() == (mark + body).replace("\n", line_end):
                return document
        except _list_errors():
            return None
    return None


def load_text(text: str) -> Any:
    """The last document's mappings, sequences and scalars, all scalars as text. Raises YamlError."""
    try:
        documents = list(_make_parser().load_all(text))
    except _list_errors() as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlError(mark.line + 1 if mark else 1) from error
    return documents[-1] if documents else None


class YamlError(Exception):
    """A text that is no YAML."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


def _list_errors() -> tuple[type[Exception], ...]:
    from ruamel.yaml.error import YAMLError

    return YAMLError, ValueError, RecursionError


def _make_parser() -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver

    class TextResolver(VersionedResolver):
        """Takes every scalar for text, so that numbers and dates keep their spelling."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            return self.DEFAULT_SCALAR_TAG if kind is ScalarNode else super().resolve(kind, value, implicit)

    parser = YAML(typ="rt")
    parser.preserve_quotes = True
    parser.width = 1 << 30
    parser.Resolver = TextResolver
    return parser


def quote(text: str) -> Any:
    """A text that is written in double quotes."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    return DoubleQuotedScalarString(text)


def rename_key(mapping: Any, old: str, new: Any) -> None:
    """Put another key in the place of an old one, with its value and comments."""
    comment = mapping.ca.items.pop(old, None)
    position, value = list(mapping).index(old), mapping[old]
    del mapping[old]
    mapping.insert(position, new, value)
    if comment is not None:
        mapping.ca.items[new] = comment


def make_mapping(**values: str) -> Any:
    """A mapping that can be put into a document."""
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap(values)


def make_sequence(*values: Any) -> Any:
    """A sequence that can be put into a document."""
    from ruamel.yaml.comments import CommentedSeq

    return CommentedSeq(values)
