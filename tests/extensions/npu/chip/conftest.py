"""The test device: built once, kept in the user's cache. Without a compiler its tests skip."""

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import perfci as perfci_package
from perfci.cli.main import run
from perfci.core import environment
from perfci.core.variables import worker_environment
from perfci.worker import forks
from perfci.worker.warm import IMPORTED, PROGRAM
from tests.extensions.npu.chip import stand_in

AT_START = ("PYTHONHASHSEED", "LD_", "LC_", "LANG", "OMP_", "TORCH_DEVICE", "NPU_STAND_IN_CANN", "NPU_STAND_IN_LACKS")
"""Beginnings of the variables that Python, its libraries and the stand-ins read as they start."""

WRITTEN_FOR = {"torch": (2, 13), "triton": (3, 7)}
"""The first versions whose inner interfaces the test device and its backend for Triton are written to."""


def pytest_collection_modifyitems(items):
    """A compiler takes ten seconds for the test device: each night, and in a merge request that changes this extension.

    What stands in for the libraries alone is tested each time, beside this folder.
    """
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="session")
def npu(tmp_path_factory) -> dict[str, str]:
    """Variables under which a process has the test device, torch_npu's stand-in and npu-smi's."""
    for name, first in WRITTEN_FOR.items():
        if tuple(map(int, re.findall(r"\d+", version(name))[:2])) < first:
            pytest.skip(
                f"the test device is written for {name} {'.'.join(map(str, first))} and newer, not {version(name)}"
            )
    try:
        return stand_in.environment(tmp_path_factory.mktemp("npu"))
    except stand_in.CompilerMissingError as error:
        pytest.skip(f"the test device has to be built, and there is no {error}")


@pytest.fixture(scope="session")
def workers(npu, tmp_path_factory):
    """Starts workers that have the test device, by fork where they can be: perfci itself forks none for an NPU."""
    around = worker_environment(npu, (), False, Path())
    folders = around["PYTHONPATH"].split(os.pathsep)
    stand_ins = tmp_path_factory.mktemp("stand-ins")  # of all that is on the path
    for path in [
        Path(perfci_package.__file__).parent,
        *(path for folder in folders for path in Path(folder).iterdir()),
    ]:
        (stand_ins / path.name).symlink_to(path)
    # As where a chip's device file is: its processes are known by their numbers outside.
    (stand_ins / "unisolated.py").write_text("from perfci.worker import confine\nconfine.can_isolate = lambda: False\n")

    def read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith(AT_START)}

    modules = ("unisolated", *IMPORTED, "torch", "triton", "triton.language", "perfci.extensions.npu.device")
    key = forks.begin(around | {"PYTHONPATH": str(stand_ins)}, stand_ins, PROGRAM, modules)

    def start(variables: Mapping[str, str], *rest: Any) -> Any:
        server = forks._servers[key] if read_at_start(variables) == read_at_start(around) else None
        return server and server.fork(variables, *rest)

    return start


@pytest.fixture
def perfci(npu, workers, monkeypatch, capsys):
    """Runs a command in this process, as on a machine with the chip. Gives its code, output and errors."""
    monkeypatch.setattr(forks, "start", workers)
    monkeypatch.syspath_prepend(npu["PYTHONPATH"].split(os.pathsep)[-1])  # versions of what stands in for packages
    monkeypatch.setattr(environment, "_version", environment._version.__wrapped__)

    def command(project: Path, *arguments: str, **planted: str) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(stand_in.OTHERS)]:
                patch.delenv(name)
            for name, value in {**npu, **planted}.items():
                patch.setenv(name, value)
            patch.chdir(project)
            capsys.readouterr()
            code = run([*arguments])
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return command
