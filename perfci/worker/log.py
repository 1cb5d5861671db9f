"""What a worker prints: kept from its beginning and its end, since a kernel that prints may print gigabytes."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import IO

HEAD_BYTES = 1 << 20
TAIL_CHUNKS = 64
_CHUNK = 1 << 14
_CLOSE_S = 5.0


class CappedLog:
    """Reads a worker's output in a thread of its own and writes its first and last part to a file."""

    def __init__(self, output: IO[bytes], path: Path) -> None:
        self._output = output
        self._path = path
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything that was printed is in the file; the worker has ended.

        A process that fled from the worker's group may hold its output open for ever, and is not waited for.
        """
        self._thread.join(_CLOSE_S)

    def _copy(self) -> None:
        with self._output:
            try:
                self._write()
            except OSError:  # a full disk must not stop the worker, which would wait for a reader
                while self._output.read1(_CHUNK):  # type: ignore[attr-defined]
                    pass

    def _write(self) -> None:
        tail: deque[bytes] = deque(maxlen=TAIL_CHUNKS)
        written, dropped = 0, 0
        with self._path.open("ab", buffering=0) as file:
            while chunk := self._output.read1(_CHUNK):  # type: ignore[attr-defined]
                if written < HEAD_BYTES:
                    written += file.write(chunk) or 0
                    continue
                dropped += len(tail[0]) if len(tail) == TAIL_CHUNKS else 0
                tail.append(chunk)
            if dropped:
                file.write(f"\n[{dropped} bytes left out]\n".encode())
            file.write(b"".join(tail))
