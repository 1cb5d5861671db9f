"""Calls recorded from what releases of Triton compile for an H200, to be repeated by another release.

python -m tests.toolchain.recordings      # make recordings.json anew; installs a release that is missing
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from perfci.core import settings
from perfci.core.codec import decode, encode
from perfci.extensions.lab.commands import toolchain
from perfci.ops.recording import Recording
from tests.static_ops import ROOT

FILE = Path(__file__).with_name("recordings.json")
RELEASES = ("3.2.0", "3.3.1", "3.5.1", "3.6.0", "3.7.1", "3.9.0")

PROGRAM = """
import sys
from dataclasses import replace
from perfci.core.codec import encode
from perfci.extensions.offline import compiling as offline
from perfci.device.launches import watch_launches
from perfci.device.replay import _describe_binary
from perfci.device.source import stable
from perfci.extensions.common.targets import target_named
from perfci.ops.recording import RecordedStep, Recording

offline.install(target_named("sm_90"))
from tests.toolchain.affine import affine
import torch

launches = []
with watch_launches(launches.append):
    offline.compile_call(lambda: affine(torch.empty(1000, device="cuda"), 3, 0.5))
(launch,) = launches
binary = _describe_binary(launch)
types = dict(binary.signature)
given = []
for name, value in launch.arguments.items():
    if types.get(name) == "constexpr":
        given.append({"constant": stable(value)})
    else:
        given.append({"tensor": int(name == "out_ptr")} if hasattr(value, "data_ptr") else value)
out = RecordedStep("aten.empty_like.default", given=({"tensor": 0},), gives={"tensor": 1})
step = RecordedStep(binary=0, grid=launch.grid, given=tuple(given))
recording = Recording("affine", ({"tensor": 0},), (out, step), {"tensor": 1}, (binary,))
sys.stdout.buffer.write(encode(recording))
"""


def read_recordings() -> dict[str, Recording]:
    """Release -> what it made of the same call."""
    return decode(FILE.read_bytes(), dict[str, Recording])


def record(release: str) -> Recording:
    """The call as a release compiles it."""
    python = toolchain.prepare([f"triton=={release}"], settings.at(ROOT), lambda folder: print(f"into {folder}"))
    around = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": "/tmp/none", "TRITON_ALWAYS_COMPILE": "1"}
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, check=False, env=around)
    assert done.returncode == 0, done.stderr.decode()
    recording = decode(done.stdout, Recording)
    (binary,) = recording.binaries
    # Where it was compiled stands in both, and is no one's business. No part of the image may move.
    here = str(ROOT).encode()
    image = binary.image.replace(here, b"/project".ljust(len(here), b"_")[: len(here)])
    metadata = re.sub(r'[^"]*/site-packages/', "site-packages/", binary.metadata)
    return replace(recording, binaries=(replace(binary, image=image, metadata=metadata),))


if __name__ == "__main__":
    by_release = {release: record(release) for release in sys.argv[1:] or RELEASES}
    for release, recorded in by_release.items():
        print(release, recorded.binaries[0].signature, recorded.steps[1].given, len(recorded.binaries[0].image))
    FILE.write_bytes(encode(by_release) + b"\n")
