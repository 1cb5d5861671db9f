"""Any fault of disk, device or another run is one sentence, and existing files stay whole."""

import errno
import gzip
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from perfci import store
from perfci.core.files import append_regular
from perfci.core.locks import device_lock


def configure(project, text: str, fake: str = "") -> None:
    planted = f"[tool.perfci.fake]\nlaunch_noise = 0.004\nblock_noise = 0.001\n{fake}"
    (project.root / "pyproject.toml").write_text(f"[tool.perfci]\n{text}\n{planted}", encoding="utf-8")


def note_import(project, op: str) -> Path:
    """The op leaves a mark when it is imported."""
    mark = project.root / f"{op}-imported"
    project.edit(op, "triton", "import numpy as np\n", f"import numpy as np\n\nopen({str(mark)!r}, 'w').close()\n")
    return mark


def plant(project, op: str, code: str) -> None:
    """The op's kernel runs some code in every call."""
    project.edit(op, "triton", "    fake.work(", f"    {code}\n    fake.work(")


def only_sentence(answer) -> str:
    """perfci's message about its failure: one line."""
    told = [line for line in answer.err.splitlines() if line.startswith("perfci: ")]
    assert len(told) == 1
    assert "Traceback" not in answer.err
    return told[0]


# --- reports/ ---------------------------------------------------------------------------------------------------------


def test_a_file_in_the_place_of_reports_is_said_before_anything_is_imported(project):
    mark = note_import(project, "relu")
    (project.root / "reports").write_text("mine")

    answer = project.check("relu")

    assert answer.code == 1
    assert answer.out == ""
    assert "a file has that name" in only_sentence(answer)
    assert not mark.exists()
    assert (project.root / "reports").read_text() == "mine"


def full_for(monkeypatch, name: str) -> None:
    """No room for a file of this name: neither to make it nor to write into it."""
    opened, synced = os.open, os.fsync

    def no_room(where: str) -> None:
        if Path(where).name == name or Path(where).name.startswith(f".{name}."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)

    def opening(path, flags, *arguments, **options):
        if flags & (os.O_WRONLY | os.O_RDWR):
            no_room(os.fsdecode(path))
        return opened(path, flags, *arguments, **options)

    def syncing(file):
        no_room(str(Path(f"/proc/self/fd/{file}").readlink()))
        return synced(file)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "fsync", syncing)


def test_a_full_disk_is_said_before_anything_is_imported(project, monkeypatch):
    mark = note_import(project, "relu")
    full_for(monkeypatch, ".lock")

    answer = project.check("relu")

    assert answer.code == 1
    assert "No space left on device" in only_sentence(answer)
    assert not mark.exists()


def test_a_second_run_into_the_same_reports_folder_waits_and_is_told_for_whom(project):
    reports, claimed = project.root / "reports", threading.Event()

    def write_for_a_while():
        with store.claim_reports(reports):
            claimed.set()
            time.sleep(1.5)

    thread = threading.Thread(target=write_for_a_while)
    thread.start()
    claimed.wait()
    answer = project.check("relu")
    thread.join()

    assert answer.code == 0
    assert f"Another perfci (process {os.getpid()}" in answer.err
    assert answer.err.count("waiting until it has ended") == 1


def test_a_second_run_into_the_same_reports_folder_is_refused_after_a_while_and_told_by_whom(project):
    (project.root / "pyproject.toml").write_text("[tool.perfci]\nlock_wait_s = 0.1\n")
    with store.claim_reports(project.root / "reports"):
        answer = project.check("relu")

        assert answer.code == 1
        assert f"process {os.getpid()}" in only_sentence(answer)
        assert "since" in only_sentence(answer)
        assert not (project.root / "reports" / "run.json").exists()
    assert project.check("relu").code == 0


def test_a_disk_that_fills_up_while_measuring_keeps_what_was_measured(project, monkeypatch):
    append = append_regular

    def appending(path):
        if (project.root / "reports" / "run.json").exists() and project.run_record().ops:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(path)

    monkeypatch.setattr("perfci.store.launches.append_regular", appending)

    answer = project.check("relu", "scale")

    assert answer.code == 1
    assert "No space left on device" in only_sentence(answer)
    assert "launches.jsonl.gz" in only_sentence(answer)
    run = project.run_record()
    assert {op.op for op in run.ops} == {"relu", "scale"}
    assert all(case.blocks for op in run.ops if op.op == "relu" for case in op.performance)


def test_a_disk_that_is_full_when_the_run_is_saved_leaves_the_earlier_one_whole(project, monkeypatch):
    project.check("scale")
    path = project.root / "reports" / "run.json"
    before = path.read_bytes()
    full_for(monkeypatch, "run.json")

    answer = project.check("scale")

    assert answer.code == 1
    assert "No space left on device" in only_sentence(answer)
    assert str(path) in only_sentence(answer)
    assert path.read_bytes() == before
    assert store.read_run(path).ops[0].op == "scale"


# --- stored files of others -------------------------------------------------------------------------------------------


def newer(path: Path) -> bytes:
    """Writes the file as a future perfci may; returns its content."""
    text = path.read_text(encoding="utf-8")
    assert '"format": 1' in text
    path.write_text(text.replace('"format": 1', '"format": 7'), encoding="utf-8")
    return path.read_bytes()


@pytest.mark.parametrize("command", ["compare", "report", "show", "accept", "report --to csv"])
@pytest.mark.parametrize("folder", ["reports", "static"])
def test_a_newer_run_is_refused_by_every_command_with_both_formats_named(project, command, folder):
    stored = Path(__file__).parents[1] / "stored" / "format-1" / folder
    path = project.root / "reports" / "run.json"
    path.parent.mkdir()
    shutil.copy(stored / "run.json", path)
    before = newer(path)

    answer = project.perfci(*command.split(), str(path))

    assert answer.code == 1
    assert answer.out == ""
    assert "format 7" in only_sentence(answer)
    assert "up to 1" in only_sentence(answer)
    assert path.read_bytes() == before


def accepted(project) -> Path:
    project.first_check("relu")
    project.accept()
    return project.root / "baselines" / "fake-one" / "relu.json"


def test_a_newer_baseline_is_refused_with_both_formats_named_and_never_written_over(project):
    path = accepted(project)
    before = newer(path)

    for answer in (project.perfci("compare", str(project.root / "reports")), project.accept()):
        assert answer.code == 1
        assert "relu.json has format 7" in only_sentence(answer)
        assert "up to 1" in only_sentence(answer)
    assert path.read_bytes() == before


def test_newer_launches_are_refused_with_both_formats_named(project):
    project.first_check("relu")
    path = project.root / "reports" / "launches.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).replace(b'"format":1', b'"format":7')
    path.write_bytes(gzip.compress(lines))

    answer = project.perfci("report", str(project.root / "reports"))

    assert answer.code == 1
    assert "launches.jsonl.gz has format 7" in only_sentence(answer)
    assert "up to 1" in only_sentence(answer)


def test_a_baseline_with_a_merge_conflict_is_named_as_such(project):
    path = accepted(project)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3:3] = ["<<<<<<< HEAD", lines[3], "=======", lines[3], ">>>>>>> other"]
    path.write_text("\n".join(lines), encoding="utf-8")

    answer = project.perfci("compare", str(project.root / "reports"))

    assert answer.code == 1
    assert "merge conflict" in only_sentence(answer)
    assert "line 4" in only_sentence(answer)


def test_baselines_that_cannot_be_written_are_named_by_accept(project, monkeypatch):
    project.first_check("relu")
    before = (project.root / "reports" / "run.json").read_bytes()
    full_for(monkeypatch, "relu.json")

    answer = project.accept()

    assert answer.code == 1
    assert "baselines/fake-one/relu.json" in only_sentence(answer)
    assert (project.root / "reports" / "run.json").read_bytes() == before


# --- the device -------------------------------------------------------------------------------------------------------


def test_a_device_that_vanishes_ends_the_run_with_what_it_has(project, monkeypatch):
    monkeypatch.setenv("PERFCI_WRITABLE", str(project.root))
    gone = project.root / "gone"
    # Locked as a GPU is: an op waits until the one before has left the device.
    configure(project, f'lock_folder = "{project.root / "locks"}"', f'gone_file = "{gone}"\nlocked = true')
    plant(project, "row_sum", f"x.size > 20_000 and open({str(gone)!r}, 'w').close()")
    mark = note_import(project, "scale")

    began = time.monotonic()
    answer = project.check()

    assert time.monotonic() - began < 60
    assert answer.code == 2
    assert answer.verdicts("relu") == {"PASS", "NEW"}
    assert "the fake device is lost" in answer.out
    failures = {op.op: op.failure.kind for op in project.run_record().ops if op.failure}
    assert failures == {"scale": "device_gone"}
    assert "can no longer be opened" in answer.out
    assert mark.exists(), "the plan imported it"


def test_no_check_is_made_behind_one_that_leaves_the_device_unusable(project, monkeypatch):
    monkeypatch.setenv("PERFCI_WRITABLE", str(project.root))
    gone = project.root / "gone"
    configure(project, "", f'gone_file = "{gone}"')
    plant(project, "row_sum", f"x.size > 1000 and (open({str(gone)!r}, 'w').close() or 1 / 0)")

    answer = project.check("row_sum", "--suite", "accuracy")

    (op,) = project.run_record().ops
    checks = op.accuracy
    assert [check.failure.kind for check in checks if check.failure] == ["device_lost"]
    left = checks[-1].failure.facts["left"]
    assert left > 0
    assert f"division by zero. {left} further checks were not made." in answer.out
    assert f"1 of {len(checks)} checks failed" in answer.out
    assert answer.code == 2


def locked(project, more: str = "") -> Path:
    folder = project.root / "locks"
    configure(project, f'lock_folder = "{folder}"\n{more}', "locked = true")
    return folder


@pytest.mark.nightly
@pytest.mark.slow
def test_a_second_run_on_a_device_waits_for_the_first_and_goes_on_when_it_ends(project, tmp_path):
    folder = locked(project)
    second = tmp_path / "second"
    shutil.copytree(project.root, second)
    go = project.root / "go"
    waiting = f"import os, time; [time.sleep(0.02) for _ in iter(lambda: os.path.exists({str(go)!r}), True)]"
    plant(project, "relu", waiting)
    holding = project.start("check", "--device", "fake", "relu")
    signature = folder / "perfci-FAKE-0.lock"
    _until(lambda: signature.exists() and signature.read_text())
    project.root = second
    other = project.start("check", "--device", "fake", "relu")
    try:
        words = _line_with(other, "holds the device")
        assert signature.read_text() in words
        assert "since" in words
        go.touch()
        for process in (holding, other):
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, out + err
    finally:
        for process in (holding, other):
            process.kill()
            process.communicate()


def test_a_device_that_stays_taken_is_given_up_once_for_all_ops(project):
    folder = locked(project, "lock_wait_s = 0.1")

    with device_lock("FAKE-0", folder, lambda holder: None):
        answer = project.check()

    assert answer.code == 2
    assert {op.failure.kind for op in project.run_record().ops} == {"device_taken"}
    assert f"process {os.getpid()}" in answer.out
    assert "lock_wait_s" in answer.out
    logs = {path.stem for path in (project.root / "reports" / "logs").glob("*.log")}
    assert "relu" in logs
    assert "scale" not in logs


def test_a_first_run_makes_the_lock_among_temporary_files(project, tmp_path, monkeypatch):
    configure(project, "", "locked = true")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the run's folders lie too, which workers cannot read
    monkeypatch.setattr(tempfile, "tempdir", None)

    answer = project.check("relu")

    assert answer.verdicts("relu") == {"PASS", "NEW"}, answer.out
    assert (tmp_path / "perfci-FAKE-0.lock").exists()


def test_a_lock_folder_that_cannot_be_written_is_named_with_its_setting(project):
    locked(project).write_text("a file")

    answer = project.check("relu")

    assert answer.code == 2
    assert answer.verdicts("relu") == {"ERROR"}
    assert "perfci-FAKE-0.lock cannot be written" in answer.out
    assert "lock_folder" in answer.out


def _until(known, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not known():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _line_with(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if words in line)


def test_a_device_that_was_never_there_is_no_verdict(project):
    gone = project.root / "gone"
    gone.touch()
    configure(project, "", f'gone_file = "{gone}"')

    answer = project.check("relu")

    assert answer.code == 1
    assert answer.out == ""
    assert "is gone" in only_sentence(answer)


@pytest.mark.parametrize("locked_board", [True, False])
def test_a_lock_that_other_runs_do_not_see_is_told_on_the_terminal_in_the_report_and_by_the_doctor(
    project, tmp_path, monkeypatch, locked_board
):
    configure(project, "", f"locked = {str(locked_board).lower()}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    said = f"The folder for temporary files, TMPDIR={tmp_path / 'gone'}, cannot be used"

    answer = project.perfci("check", "scale", "--device", "fake")
    doctor = project.perfci("doctor")

    assert (said in answer.out, said in answer.err) == (locked_board, locked_board)
    assert (said in (project.root / "reports" / "report.md").read_text()) is locked_board
    assert answer.out.count(said) in {0, 1}
    assert said in doctor.out


# --- accept of several ops --------------------------------------------------------------------------------------------


def stored(project) -> dict[str, bytes]:
    """Every file of baselines and thresholds."""
    paths = (path for name in ("baselines", "thresholds") for path in (project.root / name).rglob("*"))
    return {path.relative_to(project.root).as_posix(): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.parametrize("number", range(1, 7))  # of six files: a baseline and a history of three ops
@pytest.mark.parametrize("step", ["written", "moved"])
def test_an_accept_of_several_ops_that_fails_at_one_changes_no_file(project, monkeypatch, number, step):
    project.first_check()
    calls = itertools.count(1)
    place, name = {"written": (os, "fsync"), "moved": (Path, "replace")}[step]
    real = getattr(place, name)

    def fail(*given: object) -> object:
        if next(calls) == number:
            raise OSError(28, "No space left on device")
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, fail)
        answer = project.accept()

    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert stored(project) == {}
    assert project.accept().code == 0
    assert len(stored(project)) == 6
