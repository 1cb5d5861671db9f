"""The program of a node. It may lack perfci: only the standard library is imported here."""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("perfci", "torch", "triton", "torch-npu")  # that nodes have in one version

# It ends with its Ray worker, as that ends with its node, and frees its lock.
PROGRAM = """import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
runpy.run_module("perfci", run_name="__main__", alter_sys=True)"""

# What a shard's check would find: a Ray worker has other paths.
VERSIONS = f"""import importlib.metadata as known, json
found = dict((each.name, each.version) for each in reversed([*known.distributions()]))
print(json.dumps(dict((name, found.get(name)) for name in {PACKAGES})))"""


def describe_node() -> dict[str, Any]:
    """Returns the versions of PACKAGES, and the time."""
    node: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-P", "-c", VERSIONS]))
    return {**node, "time": time.time()}


def put(path: Path, content: bytes) -> None:
    """Write a file in the place of whatever a change has there. Raises OSError if a link is on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.resolve() != path.parent:
        raise OSError(f"{path.parent} lies behind a link")
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


def run_command(
    words: Sequence[str], files: bytes, given: Mapping[str, bytes], root: str, kept: str,
    variables: Mapping[str, str], home: str,
) -> tuple[int, str, bytes]:  # fmt: skip
    """Returns a command's exit code, its last line, and an archive of the folder that is kept."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="perfci-node-") as made:
        folder = os.path.realpath(made)
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="tar")
        for name, content in given.items():
            put(Path(folder, name), content)
        around = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | {**variables}
        command, place = [sys.executable, "-P", "-c", PROGRAM, *words], Path(folder, root)
        done = subprocess.run(command, env=around, cwd=place, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: PLW1510
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("perfci: ")
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            is_plain = os.path.realpath(place / kept) == os.path.normpath(Path(folder, root, kept))  # behind no link
            if is_plain and (place / kept).is_dir():
                (place / kept / ".lock").unlink(missing_ok=True)  # the one here is in use
                archive.add(place / kept, ".")
    return done.returncode, last.replace(folder, home), packed.getvalue()
