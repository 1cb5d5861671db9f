"""Kernels that are compiled without the device that they are for: what its workers would compile is in their cache."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]

COMPILE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from perfci.core.model import Device, PerformanceCase
from perfci.device.nvml import NvmlBoard
from perfci.worker import precompile
from perfci.worker.protocol import Prepared
from perfci.worker.tasks import Precompile, OpFiles, Place

root, capabilities, index, parts = Path(sys.argv[1]), eval(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
files = OpFiles("broadcast", root / "kernels" / "broadcast")
board = Device("cuda", "NVIDIA H200", "nvidia-h200", processors=132)
kernels, part = root / "kernels", (index, parts)
task = Precompile(place=Place((files,), kernels), pattern="*dtype=float16", board=board, part=part)
sent, channel = [], SimpleNamespace()
channel.send = sent.append
for capability in capabilities:
    NvmlBoard.capability = lambda board: capability
    precompile.run(task, channel)
print(*(message.case.case for message in sent if isinstance(message, Prepared)), sep="\\n")

from functools import partial
from os import environ
from perfci.device import offline
from perfci.device.tensors import TorchArrays
from perfci.measure.verify import checks, make_inputs
from perfci.worker.load import load_op

kept = lambda: len([*Path(environ["TRITON_CACHE_DIR"]).glob("*/*.cubin")])
before, suite = kept(), load_op("broadcast", files.folder, root / "kernels").accuracy
for check in checks(suite, 7, task.pattern) if capability == (9, 0) and parts == 1 else ():
    if check.values == "normal" and check.layout != "contiguous":
        made = offline.compile_call(partial(make_inputs, suite, TorchArrays("cuda"), check)).value
        assert offline.compile_call(partial(suite.kernel, **made)).value is not None
assert kept() == before, (kept(), before)
"""


def precompile(cache: Path, *capabilities: tuple[int, int] | None, part: tuple[int, int] = (0, 1)) -> set[str]:
    """The performance cases that were compiled for a board, or for several by one process."""
    given = [str(ROOT), repr(capabilities), *map(str, part)]
    variables = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *given], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def binaries(cache: Path) -> set[str]:
    return {path.parent.name for path in cache.glob("*/*.cubin")}


def test_every_layout_of_every_case_is_compiled(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    assert precompile(tmp_path, (9, 0))
    assert binaries(tmp_path)


@pytest.mark.nightly
def test_a_part_compiles_its_share_and_the_parts_together_all(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    first, second = (precompile(tmp_path / "parts", (9, 0), part=(index, 2)) for index in (0, 1))
    whole = precompile(tmp_path / "whole", (9, 0))
    assert first
    assert second
    assert first.isdisjoint(second)
    assert first | second == whole
    assert binaries(tmp_path / "parts") == binaries(tmp_path / "whole")


def test_the_code_by_which_triton_launches_each_kernel_is_built_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from perfci.device.offline import build_launchers

    built: list[object] = []
    driver = SimpleNamespace(CudaUtils=lambda: built.append("utils"), CudaLauncher=lambda *given: built.append(given))
    monkeypatch.setattr("triton.backends.nvidia.driver", driver)
    build_launchers([SimpleNamespace(src="source", metadata="options")])
    assert built == ["utils", ("source", "options")]

    driver.CudaUtils = raising  # no compiler, or no driver
    build_launchers([SimpleNamespace(src="source", metadata="options")])
    assert len(built) == 2


def raising() -> None:
    raise RuntimeError("Failed to find C compiler")


def test_a_board_that_perfci_does_not_know_has_nothing_compiled(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    assert precompile(tmp_path, (3, 5), None) == set()
    assert not binaries(tmp_path)
