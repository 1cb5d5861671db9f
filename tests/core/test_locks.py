import os
import signal
import subprocess
import sys

import pytest

from perfci import store
from perfci.core import locks
from perfci.core.errors import DeviceError
from perfci.core.locks import device_lock


@pytest.fixture
def opened(tmp_path):
    """Opens one file as often as it is asked to."""
    handles = []

    def again():
        handles.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
        return handles[-1]

    yield again
    for handle in handles:
        os.close(handle)


def test_a_lock_is_had_once_and_names_its_holder(opened):
    first, second = opened(), opened()

    assert locks.take(first)
    locks.sign(first)
    assert not locks.take(second)
    assert locks.holder(second).startswith(f"process {os.getpid()} on ")
    assert "since" in locks.holder(second)


def test_reports_are_claimed_where_there_are_no_locks_too(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)

    with store.claim_reports(tmp_path / "reports"), store.claim_reports(tmp_path / "reports"):
        assert (tmp_path / "reports").is_dir()


# --- the lock of a device ---------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from perfci.core.locks import device_lock
with device_lock("gpu", Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def refuse(holder):
    raise AssertionError(f"waited for {holder}")


def test_a_free_device_is_had_without_waiting_and_can_be_had_again(tmp_path):
    for _ in range(2):
        with device_lock("gpu", tmp_path, refuse):
            text = (tmp_path / "perfci-gpu.lock").read_text()
            assert text.startswith(f"process {os.getpid()} on ")
            assert "since" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_lock_of_a_process_that_dies_is_free(tmp_path, holder, monkeypatch, number):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    told = []

    def waiting(name):
        told.append(name)
        holder.send_signal(number)
        holder.wait()

    with device_lock("gpu", tmp_path, waiting):
        assert (tmp_path / "perfci-gpu.lock").read_text().startswith(f"process {os.getpid()} on ")
    assert len(told) == 1
    assert told[0].startswith(f"process {holder.pid} on ")


def test_a_lock_file_of_another_user_can_be_locked_though_not_written(tmp_path, monkeypatch):
    opened = os.open

    def as_a_stranger(path, flags, *mode):
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *mode)

    (tmp_path / "perfci-gpu.lock").write_text("process 1 on elsewhere")
    monkeypatch.setattr(os, "open", as_a_stranger)

    with device_lock("gpu", tmp_path, refuse):
        assert (tmp_path / "perfci-gpu.lock").read_text() == "process 1 on elsewhere"


@pytest.mark.parametrize("what", ["link", "hard link", "pipe", "link to nowhere"])
def test_a_lock_that_is_no_file_of_its_own_is_refused_and_nothing_is_written(tmp_path, what):
    """Anyone who may write into a shared folder could otherwise have a holder write its name into another file."""
    precious, path = tmp_path / "precious", tmp_path / "locks" / "perfci-gpu.lock"
    precious.write_text("precious")
    path.parent.mkdir()
    {
        "link": lambda: path.symlink_to(precious),
        "hard link": lambda: path.hardlink_to(precious),
        "pipe": lambda: os.mkfifo(path),
        "link to nowhere": lambda: path.symlink_to(tmp_path / "made"),
    }[what]()

    with pytest.raises(DeviceError) as caught, device_lock("gpu", path.parent, refuse):
        pass

    assert caught.value.reason.kind == "lock_unwritable"
    assert precious.read_text() == "precious"
    assert not (tmp_path / "made").exists()
