"""The test device: built once, kept in the user's cache. Without a compiler its tests skip."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

WRITTEN_FOR = {"torch": (2, 13), "triton": (3, 7)}
"""The first versions whose inner interfaces the test device and its backend for Triton are written to."""


@pytest.fixture(scope="session")
def npu(tmp_path_factory) -> dict[str, str]:
    """Variables under which a process has the test device, torch_npu's stand-in and npu-smi's."""
    from tests.npu import stand_in

    for name, first in WRITTEN_FOR.items():
        if tuple(map(int, re.findall(r"\d+", version(name))[:2])) < first:
            pytest.skip(
                f"the test device is written for {name} {'.'.join(map(str, first))} and newer, not {version(name)}"
            )
    try:
        return stand_in.environment(tmp_path_factory.mktemp("npu"))
    except stand_in.CompilerMissingError as error:
        pytest.skip(f"the test device has to be built, and there is no {error}")
