"""Which ops say that they are for several ranks, by their accuracy files alone: nothing is imported."""

import ast
from contextlib import suppress
from pathlib import Path

from perfci.core.files import read_regular
from perfci.extensions.ranks.spec import list_sizes
from perfci.ops.discover import OpFolder

ACCURACY = 2
"""Place of the accuracy file among an op's files."""


def find_sizes(op: OpFolder) -> tuple[int, ...]:
    """Sizes of groups that an op is for, ascending, those of one rank left out. Empty if it says nothing of ranks."""
    return read_sizes(op.files[ACCURACY])


def read_sizes(path: Path) -> tuple[int, ...]:
    """The same by the path of its accuracy file."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        text = read_regular(path.resolve())
        for node in ast.walk(ast.parse(text)) if b"ranks" in text else ():
            if isinstance(node, ast.keyword) and node.arg == "ranks":
                return tuple(size for size in list_sizes(ast.literal_eval(node.value)) if size > 1)
    return ()
