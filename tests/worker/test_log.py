"""Whatever becomes of the log, a worker that prints goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfci.worker.parent import CappedLog

FULL = Path("/dev/full")
PRINTS = "import sys; sys.stdout.write('x' * 3_000_000); sys.stdout.flush(); print('done', file=sys.stderr)"


def printing() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def said(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    with process:
        assert process.stderr is not None
        return process.wait(timeout=60), process.stderr.read()


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk_does_not_stop_a_worker_that_prints(tmp_path):
    (tmp_path / "op.log").symlink_to(FULL)
    process = printing()
    log = CappedLog(process.stdout, tmp_path / "op.log")

    assert said(process) == (0, b"done\n")
    log.finish()


def test_a_long_output_keeps_its_beginning_and_its_end(tmp_path):
    process = printing()
    log = CappedLog(process.stdout, tmp_path / "op.log")

    assert said(process) == (0, b"done\n")
    log.finish()
    assert 1_000_000 < (tmp_path / "op.log").stat().st_size < 3_000_000
    assert b"bytes left out" in (tmp_path / "op.log").read_bytes()
