from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from perfci.core.errors import DeviceError
from perfci.device import lock
from perfci.device.lock import device_lock

HOLDER = """
import sys, time
from perfci.device.lock import device_lock
with device_lock("gpu", sys.argv[1], print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def refuse(holder):
    raise AssertionError(f"waited for {holder}")


class GaveUpError(Exception):
    pass


def test_a_free_device_is_had_without_waiting_and_can_be_had_again(tmp_path):
    for _ in range(2):
        with device_lock("gpu", str(tmp_path), refuse):
            text = (tmp_path / "perfci-gpu.lock").read_text()
            assert text.startswith(f"process {os.getpid()} on ")
            assert "since" in text


def test_two_devices_do_not_wait_for_each_other(tmp_path):
    with device_lock("one", str(tmp_path), refuse), device_lock("two", str(tmp_path), refuse):
        assert len(list(tmp_path.iterdir())) == 2


def test_whoever_waits_is_told_who_holds_the_device(tmp_path, holder):
    def waiting(name):
        raise GaveUpError(name)

    with pytest.raises(GaveUpError, match=f"process {holder.pid}"), device_lock("gpu", str(tmp_path), waiting):
        pytest.fail("the lock was had while another process holds it")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_lock_of_a_process_that_dies_is_free(tmp_path, holder, monkeypatch, number):
    monkeypatch.setattr(lock, "POLL_S", 0.01)
    told = []

    def waiting(name):
        told.append(name)
        holder.send_signal(number)
        holder.wait()

    with device_lock("gpu", str(tmp_path), waiting):
        assert (tmp_path / "perfci-gpu.lock").read_text().startswith(f"process {os.getpid()} on ")
    assert len(told) == 1
    assert told[0].startswith(f"process {holder.pid} on ")


def test_the_lock_is_free_after_an_exception_inside(tmp_path):
    with pytest.raises(GaveUpError), device_lock("gpu", str(tmp_path), refuse):
        raise GaveUpError

    with device_lock("gpu", str(tmp_path), refuse):
        pass


def test_a_missing_folder_is_made(tmp_path):
    with device_lock("gpu", str(tmp_path / "a" / "b"), refuse):
        assert (tmp_path / "a" / "b" / "perfci-gpu.lock").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(DeviceError) as caught, device_lock("gpu", str(tmp_path / "file"), refuse):
        pytest.fail("no lock can be here")

    assert caught.value.reason.kind == "lock_unwritable"
    assert caught.value.reason.facts["path"] == str(tmp_path / "file" / "perfci-gpu.lock")


def test_a_device_that_stays_taken_is_given_up_after_the_limit(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(lock, "POLL_S", 0.01)

    with pytest.raises(DeviceError) as caught, device_lock("gpu", str(tmp_path), lambda name: None, 0.05):
        pytest.fail("the lock was had while another process holds it")

    assert caught.value.reason.kind == "device_taken"
    assert str(holder.pid) in str(caught.value)
    assert "lock_wait_s" in str(caught.value)


def test_a_lock_file_of_another_user_can_be_locked_though_not_written(tmp_path, monkeypatch):
    opened = os.open

    def as_a_stranger(path, flags, *mode):
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *mode)

    (tmp_path / "perfci-gpu.lock").write_text("process 1 on elsewhere")
    monkeypatch.setattr(os, "open", as_a_stranger)

    with device_lock("gpu", str(tmp_path), refuse):
        assert (tmp_path / "perfci-gpu.lock").read_text() == "process 1 on elsewhere"


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refused(handle, what):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)

    with pytest.raises(DeviceError) as caught, device_lock("gpu", str(tmp_path), refuse):
        pytest.fail("no lock can be here")

    assert caught.value.reason.kind == "lock_unwritable"
    assert "No locks available" in str(caught.value)
