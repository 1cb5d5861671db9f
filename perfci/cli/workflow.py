"""Runners of GitHub and Azure obey lines of a job's log: nothing that perfci prints there becomes such a command.

`::error::` and its like count at the start of a line, `##[error]` and `##vso[...]` anywhere in one.
"""

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO, cast

RUNNERS = ("GITHUB_ACTIONS", "TF_BUILD")
"""Variables of runners that read what is printed. Gitea's and Forgejo's set the first too."""

_COMMAND = re.compile(r"(?P<colon>(?:^|(?<=[\r\n]))[^\S\r\n]*:)(?=:)|(?P<hash>#)(?=#(?:vso)?\[)")


def make_harmless(text: str) -> str:
    """Returns whole lines, with a blank before what would be a command.

    >>> make_harmless("::error::x ##[error]y std::vector")
    ': :error::x # #[error]y std::vector'
    """
    return _COMMAND.sub(r"\g<0> ", text)


@contextlib.contextmanager
def guard_output(variables: Mapping[str, str]) -> Iterator[None]:
    """Within, what is printed on such a runner is harmless to it. Elsewhere it stays as it is."""
    if not any(variables.get(name) for name in RUNNERS):
        yield
        return
    out, err = _Lines(sys.stdout), _Lines(sys.stderr)
    with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, err)):
        try:
            yield
        finally:
            for stream in (out, err):
                with contextlib.suppress(OSError, ValueError):  # anyone who read it has gone
                    stream.flush()


class _Lines:
    """A stream that is written line by line, since a command may come in pieces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = ""

    def write(self, text: str) -> int:
        whole, end, rest = (self._rest + text).rpartition("\n")
        self._rest = rest
        if end:
            self._stream.write(make_harmless(whole) + end)
        return len(text)

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        self._stream.write(make_harmless(rest))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
