"""The test device: built once, kept in the user's cache. Without a compiler its tests skip."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfci.cli.main import run
from perfci.core import environment
from tests.npu import stand_in
from tests.warm_workers import MODULES, Server

WRITTEN_FOR = {"torch": (2, 13), "triton": (3, 7)}
"""The first versions whose inner interfaces the test device and its backend for Triton are written to."""


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
def workers(npu):
    """Starts workers that have the test device, by fork where they can be."""
    server = Server.begin(
        environment.worker_environment(npu, (), False, Path()),
        (*MODULES, "torch", "triton", "triton.language", "perfci.device.npu"),
    )
    yield server
    server.close()


@pytest.fixture
def perfci(npu, workers, monkeypatch, capsys):
    """Runs a command in this process, as on a machine with the chip. Gives its code, output and errors."""
    forking = SimpleNamespace(**{**vars(subprocess), "Popen": workers.start})
    monkeypatch.setattr("perfci.worker.parent.subprocess", forking)
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
