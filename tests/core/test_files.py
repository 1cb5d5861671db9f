"""What stands in the place of a stored file is looked at before it is read."""

import os
import socket

import pytest

from perfci.core.files import read_regular


def test_an_ordinary_file_is_read_as_it_is(tmp_path):
    (tmp_path / "file").write_bytes(b"one\r\ntwo\x1a")

    assert read_regular(tmp_path / "file") == b"one\r\ntwo\x1a"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.parametrize(
    ("what", "why"), [("link", "link"), ("pipe", "plain"), ("device", "link"), ("folder", "plain")]
)
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, what, why):
    (tmp_path / "secret").write_text("token")
    made = {
        "link": lambda path: path.symlink_to(tmp_path / "secret"),
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
    }
    made[what](tmp_path / "file")

    with pytest.raises(OSError, match=why):
        read_regular(tmp_path / "file")
    with pytest.raises(OSError, match="plain"):
        read_regular(tmp_path.__class__("/dev/zero"))


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("file")
        with pytest.raises(OSError, match="No such device"):
            read_regular(tmp_path / "file")


def test_a_file_beyond_the_bound_is_not_read_past_it(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(OSError, match=r"longer than 1\.00 MiB"):
        read_regular(tmp_path / "file", 1 << 20)
