"""Files are written whole, several of them all or none, and what killed writers leave goes with the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError
from perfci.extensions.setup import plan
from perfci.scaffold import edits
from perfci.store import files
from perfci.store.files import write_atomically, write_together
from tests.git_repositories import git

WRITER = """
import os, signal, sys
from pathlib import Path
from perfci.store.files import write_together

def stop(handle):
    print("here", flush=True)
    {stop}

os.fsync = stop
write_together({{Path(name): b"new" for name in sys.argv[1:]}})
"""


def start(stop: str, *paths: Path) -> subprocess.Popen[str]:
    """A process that writes files, and stops as its first one is on its way to the disk."""
    command = [sys.executable, "-c", WRITER.format(stop=stop), *map(str, paths)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "here\n"
    return writer


def killed(*paths: Path) -> None:
    with start("os.kill(os.getpid(), signal.SIGKILL)", *paths) as writer:
        assert writer.wait() == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_writer_leaves_goes_with_the_next_file_in_that_folder(tmp_path):
    write_atomically(tmp_path / "run.json", b"old")
    killed(tmp_path / "run.json")
    left = [name for name in names(tmp_path) if name != "run.json"]

    assert len(left) == 1
    assert (tmp_path / "run.json").read_bytes() == b"old"

    write_atomically(tmp_path / "other.json", b"1")

    assert names(tmp_path) == ["other.json", "run.json"]


def test_git_passes_over_what_a_killed_writer_leaves(tmp_path):
    git(tmp_path, "init", "-q")
    edits.write(plan.plan(tmp_path).edits)
    git(tmp_path, "add", "--all")
    before = git(tmp_path, "ls-files")

    for folder in ("baselines/cpu", "kernels/op", "thresholds"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        killed(tmp_path / folder / "op.json")
    git(tmp_path, "add", "--all")

    assert git(tmp_path, "ls-files") == before
    assert any(name.startswith(".") for name in names(tmp_path / "baselines" / "cpu"))


def test_a_file_that_a_living_process_writes_stays(tmp_path):
    with start("sys.stdin.read()", tmp_path / "slow.json") as writer:
        write_atomically(tmp_path / "quick.json", b"1")
        writer.stdin.close()
        assert writer.wait() == 0

    assert names(tmp_path) == ["quick.json", "slow.json"]
    assert (tmp_path / "slow.json").read_bytes() == b"new"


def test_a_writer_whose_new_file_was_taken_for_an_old_one_makes_another(tmp_path, monkeypatch):
    taken = []

    def open_late(path: Path) -> int | None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.close(handle)
        if not taken:
            taken.append(path)
            files._remove_unfinished(tmp_path)
            assert not path.exists()
            return None
        path.unlink()
        return before(path)

    before = files._open_locked
    monkeypatch.setattr(files, "_open_locked", open_late)

    write_atomically(tmp_path / "run.json", b"1")

    assert names(tmp_path) == ["run.json"]


def test_links_and_files_of_others_are_not_removed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".link.0.perfci").symlink_to(tmp_path / "mine")
    (tmp_path / ".run.json.123.tmp").touch()

    write_atomically(tmp_path / "run.json", b"1")

    assert names(tmp_path) == [".link.0.perfci", ".run.json.123.tmp", "mine", "run.json"]


# --- several files ----------------------------------------------------------------------------------------------------


def write(folder: Path) -> dict[Path, bytes]:
    """Three files of which the second is there, and what they are to become."""
    (folder / "b").write_bytes(b"old")
    return {folder / name: b"new" for name in "abc"}


def test_several_files_are_all_written(tmp_path):
    write_together(write(tmp_path))

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys("abc", b"new")


@pytest.mark.parametrize("broken", ["a", "b", "c"])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_if_one_cannot_be_written_none_is(tmp_path, monkeypatch, broken, step):
    wanted = write(tmp_path)
    real = {"fsync": os.fsync, "replace": Path.replace}[step]
    calls = iter("abc")

    def fail(*given: object) -> object:
        if next(calls, "") == broken:
            raise OSError(28, "No space left on device")
        return real(*given)

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[step], fail)

    with pytest.raises(StoredFileError) as caught:
        write_together(wanted)

    assert caught.value.reason.facts["path"] == str(tmp_path / broken)
    assert names(tmp_path) == ["b"]
    assert (tmp_path / "b").read_bytes() == b"old"


def test_a_writer_that_is_killed_before_all_are_whole_changes_none(tmp_path):
    wanted = write(tmp_path)
    killed(*wanted)

    assert (tmp_path / "b").read_bytes() == b"old"
    assert not (tmp_path / "a").exists()
