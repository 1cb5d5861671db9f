"""The worker process, `python -m perfci.worker.child`: a task on standard input. The end of that ends the process too.

With a task's file as its argument it is alone: no one answers it.
"""

import faulthandler
import io
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfci.core import extensions
from perfci.core.errors import PerfciError
from perfci.device.tritons import find_triton_versions, release
from perfci.worker import shared_memory
from perfci.worker.apart import is_of, settle
from perfci.worker.load import project_roots
from perfci.worker.protocol import Began, Failed, MessageChannel
from perfci.worker.tasks import unpack_task

_PARENT_GONE = 3


def main() -> None:
    """Read the task, have it done, report the result."""
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1)  # by which its parent asks where it hangs
    task, events_fd = unpack_task(Path(sys.argv[1]).read_bytes() if sys.argv[1:] else sys.stdin.readline())
    # Imported before a file of the project's could pass for a module.
    perform = extensions.load(task.performer)
    # Ops find the project's modules, installed or not. By now perfci itself is imported.
    sys.path[:0] = dict.fromkeys([str(Path.cwd()), *project_roots(task.place.root.absolute())])
    shun_stale_caches()
    shun_bytecode(task.roots)
    answers: queue.Queue[str] = queue.Queue()
    # A file that calls exit() closes sys.stdin, for which it would wait until the parent says something.
    parent, sys.stdin = sys.stdin, io.StringIO()

    def read_answers() -> None:
        """Pass on what the parent answers, and die with it."""
        for line in parent:
            answers.put(line)
        os._exit(_PARENT_GONE)

    if not sys.argv[1:]:
        threading.Thread(target=read_answers, daemon=True).start()
    channel = MessageChannel(events_fd, answers.get)
    channel.send(Began(shared_memory.identify()))
    if task.place.head_root:
        settle(task.place.root, task.place.head_root)
    try:
        perform(task, channel)
    except PerfciError as error:
        channel.send(Failed(error.reason))


def shun_stale_caches() -> None:
    """Before 3.5 Triton's cache knows a kernel by its text alone: one with another global constant gets stale code."""
    if any(release(version) < (3, 5) for version in find_triton_versions()):
        os.environ["TRITON_ALWAYS_COMPILE"] = "1"


def shun_bytecode(roots: Sequence[Path]) -> None:
    """Have the files of these projects compiled anew: what lies in a `__pycache__` beside them may be other code."""
    external: Any = sys.modules["_frozen_importlib_external"]
    find = external.cache_from_source

    def cache_from_source(path: str, *arguments: Any, **options: Any) -> str:
        if any(is_of(path, root) for root in roots):
            raise NotImplementedError  # which importers take for a Python without such files
        return str(find(path, *arguments, **options))

    external.cache_from_source = cache_from_source


if __name__ == "__main__":
    main()
