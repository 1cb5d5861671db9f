"""A worker's output: what is kept of it, and what its end shows of a crash."""

import re
from collections import deque
from pathlib import Path
from typing import IO

from perfci.core.files import append_regular
from perfci.core.model import as_fact
from perfci.worker.tasks import Place

LAST_WORDS, LAST_LINES = 400, 3  # characters and lines of a dead worker's output that its reason quotes at most

HEAD_BYTES, TAIL_CHUNKS = 1 << 20, 64
"""What is kept of a worker's output: its beginning and its end, as a kernel that prints may print gigabytes."""

_FATAL = "Fatal Python error: "  # how the dump of a crash begins
_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in ', re.MULTILINE)
_WARNING = re.compile(r"^.*:\d+: \w*Warning: .*\n(?: +.*\n)?", re.MULTILINE)

_CHUNK = 1 << 14


def find_last_words(text: str) -> str:
    """Returns a worker's last words: neither the dump of a crash, which follows on it, nor Python's warnings."""
    said, fatal, dump = text.partition(_FATAL)
    lines = [" ".join(line.split()) for line in _WARNING.sub("", said)[-LAST_WORDS:].splitlines() if line.strip()]
    return " / ".join(lines[-LAST_LINES:]) or (fatal + dump).partition("\n")[0] or "nothing"


def find_frame(text: str, place: Place) -> str:
    """Returns the innermost line of the op's files, else of its project's, in the dump of a crash.

    A crash may come long after what caused it, such as a write outside an array, and then the dump has none.
    """
    _, fatal, dump = text.partition(_FATAL)
    if not fatal or not place.ops:
        return as_fact("an unknown place")
    stack = dump.partition("Current thread")[2].partition("\n\n")[0] or dump
    frames = [(Path(file), line) for file, line in _FRAME.findall(stack)]
    root = place.root
    for folder in (place.ops[0].folder, place.shared_folder, root):
        for file, line in frames:
            if file.is_relative_to(folder) and not {"site-packages", "dist-packages"}.intersection(file.parts):
                return f"{(file.relative_to(root) if file.is_relative_to(root) else file).as_posix()}:{line}"
    return as_fact("a place outside its files")


def copy_output(output: IO[bytes], path: Path) -> None:
    """Write the first and the last part of a worker's output to a file, until it ends."""
    tail: deque[bytes] = deque(maxlen=TAIL_CHUNKS)
    written, dropped = 0, 0
    with output:
        try:
            if path.is_symlink():  # a run must not write where a change's link leads
                path.unlink()
            with append_regular(path) as file:
                while chunk := output.read1(_CHUNK):  # type: ignore[attr-defined]
                    if written < HEAD_BYTES:
                        written += file.write(chunk) or 0
                        continue
                    dropped += len(tail[0]) if len(tail) == TAIL_CHUNKS else 0
                    tail.append(chunk)
                if dropped:
                    file.write(f"\n[{dropped} bytes left out]\n".encode())
                file.write(b"".join(tail))
        except OSError:  # a full disk must not stop the worker, which would wait for a reader
            while output.read1(_CHUNK):  # type: ignore[attr-defined]
                pass
