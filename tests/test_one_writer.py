"""Files are written by one writer and read by one reader: plain ones, bounded, with no link followed.

`perfci.store.files` writes, `perfci.core.files` reads and appends. What does it otherwise stands here, with why it may.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.sources import PACKAGE, trees, walk

PRIVATE = "in a folder that perfci made"
PACKED = "of perfci's package"
NAMED = "of a file that the user names on the command line"
WORKER = "in a process that is confined"

WRITES = {
    "cli/demo.py": (2, "a new project, in a folder that is empty"),
    "extensions/adopt/rehearsal/proof.py": (1, PRIVATE),
    "device/replay.py": (2, PRIVATE),
    "extensions/history/database.py": (1, PRIVATE),
    "extensions/history/propose.py": (3, PRIVATE),
    "extensions/agents/profile_task.py": (1, WORKER),
    "extensions/lab/commands/selftest.py": (1, PRIVATE),
    "extensions/lab/commands/toolchain.py": (1, "in the user's cache"),
    "extensions/npu/hivm.py": (1, WORKER),
    "extensions/offline/driver.py": (1, WORKER),
    "extensions/offline/library.py": (1, WORKER),
    "extensions/ranks/progress.py": (3, WORKER),
    "extensions/ray/check.py": (1, PRIVATE),
    "extensions/ray/cluster.py": (2, PRIVATE),
    "extensions/ray/node.py": (2, "on a node, which may lack perfci: `put` is the same"),
    "extensions/workloads/end_to_end.py": (1, "the log of a script, among those of the run"),
    "git/large_files.py": (1, PRIVATE),
    "git/repository.py": (3, PRIVATE),
    "runs/needed.py": (2, PRIVATE),
    "runs/tasks.py": (1, PRIVATE),
}

READS = {
    "cli/demo.py": (1, "of the project that it has just made"),
    "core/cores.py": (1, "of the kernel's"),
    "core/wording/__init__.py": (1, PACKED),
    "device/source.py": (1, WORKER),
    "device/tritons.py": (1, "of the Triton that is installed"),
    "extensions/adopt/files.py": (1, NAMED),
    "extensions/adopt/rehearsal/function.py": (3, WORKER),
    "extensions/adopt/rehearsal/proof.py": (1, WORKER),
    "extensions/adopt/rehearsal/tests.py": (1, WORKER),
    "extensions/adopt/rehearsal/trial.py": (1, "of the kernel's"),
    "extensions/setup/plan.py": (2, PACKED),
    "extensions/setup/texts.py": (1, PACKED),
    "extensions/adopt/sketch.py": (1, PACKED),
    "extensions/agents/profile_task.py": (1, PRIVATE),
    "extensions/driver/callbacks.py": (1, "of the kernel's"),
    "extensions/interpreter/memory.py": (1, "of the kernel's"),
    "extensions/npu/hivm.py": (1, WORKER),
    "extensions/npu/host.py": (1, "of CANN, where it is installed"),
    "extensions/npu/profiler.py": (2, PRIVATE),
    "extensions/offline/backends/cutedsl.py": (1, WORKER),
    "extensions/offline/backends/tilelang.py": (1, WORKER),
    "extensions/offline/driver.py": (2, WORKER),
    "extensions/ranks/group.py": (1, WORKER),
    "extensions/static/compiling.py": (1, PACKED),
    "extensions/workloads/recording.py": (1, "of the kernel's"),
    "extensions/pictures/page.py": (1, PACKED),
    "scaffold/new.py": (2, PACKED),
    "worker/child.py": (1, WORKER),
    "worker/process.py": (1, "of the kernel's"),
    "worker/shared_memory.py": (1, "of the kernel's"),
    "worker/work.py": (1, WORKER),
}

WRITERS = frozenset(
    {"write_text", "write_bytes", "copy2", "copyfile", "copytree", "copyfileobj", "extractall", "symlink"}
)
READERS = frozenset({"read_text", "read_bytes"})
HOMES = frozenset({"core/files.py", "store/files.py"})


def list_calls(tree: ast.Module):
    """Yields "writes" or "reads" for each call that does it by itself."""
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        texts = [
            part.value for part in (*node.args, *(key.value for key in node.keywords)) if isinstance(part, ast.Constant)
        ]
        modes = [text for text in texts if isinstance(text, str) and 0 < len(text) <= 3 and set(text) <= set("rwaxbt+")]
        if name in WRITERS or (name == "open" and any(set(mode) & set("wax+") for mode in modes)):
            yield "writes"
        elif (name in READERS and isinstance(node.func, ast.Attribute)) or (name == "open" and modes):
            yield "reads"


def count(kind: str) -> dict[str, int]:
    places = {path.relative_to(PACKAGE).as_posix(): tree for path, tree in trees().items()}
    counts = {name: Counter(list_calls(tree))[kind] for name, tree in places.items() if name not in HOMES}
    return {name: number for name, number in counts.items() if number}


@pytest.mark.parametrize(("kind", "listed"), [("writes", WRITES), ("reads", READS)])
def test_what_is_written_or_read_past_the_one_writer_and_the_one_reader_is_listed_with_why(kind, listed):
    assert count(kind) == {name: number for name, (number, _) in listed.items()}
