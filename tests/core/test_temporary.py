"""Temporary folders of processes that end in every way."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfci.core.temporary import remove_abandoned, temporary_folder

HOLD = """
from perfci.core.temporary import temporary_folder
with temporary_folder("test") as folder:
    (folder / "large").write_text("x")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def holder():
    command = [sys.executable, "-P", "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_folder_goes_with_its_block(tmp_path):
    with temporary_folder("test") as folder:
        assert list(folder.iterdir()) == []
        remove_abandoned()
        assert folder.is_dir()

    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path, holder):
    folder = Path(holder.stdout.readline().strip())

    remove_abandoned()
    assert (folder / "large").is_file()
    holder.kill()
    holder.wait()
    assert (folder / "large").is_file()
    remove_abandoned()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["another user's", "a link", "not perfci's", "a pipe", "no owner"])
def test_nothing_else_is_removed(tmp_path, monkeypatch, what):
    kept = tmp_path / ("perfci-run-x" if what not in {"a link", "not perfci's"} else "precious")
    kept.mkdir()
    (kept / "data").write_text("precious")
    if what == "a pipe":
        os.mkfifo(kept / ".owner")
    elif what != "no owner":
        (kept / ".owner").write_text("")
    if what == "a link":
        (tmp_path / "perfci-link").symlink_to(kept)
    if what == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    remove_abandoned()

    assert (kept / "data").read_text() == "precious"
