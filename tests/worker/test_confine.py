"""A program that is confined writes to its folders, reaches no other process, and leaves none behind."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from perfci.worker import confine
from perfci.worker.process import confined
from tests.worker import forked

landlocked = pytest.mark.skipif(not confine.landlock_version(), reason="this kernel has no Landlock")
fenced = pytest.mark.skipif(not confine.can_fence(), reason="this system has no seccomp filters")


def unisolated(command: list[str], folders: list[Path]) -> list[str]:
    """A program that is confined where no namespaces can be had."""
    code = "import os, sys; from perfci.worker.confine import confine; folder, *rest = sys.argv[1:]; confine([folder])"
    return [sys.executable, "-c", f"{code}; os.execv(rest[0], rest)", str(folders[0]), *command]


def forked_worker(command: list[str], folders: list[Path]) -> list[str]:
    """A program in a worker that becomes none, but is forked from a process with more rights."""
    return [sys.executable, "-P", forked.__file__, str(folders[0]), *command]


isolating = pytest.mark.skipif(not confine.can_isolate(), reason="no namespaces")
WAYS = [
    pytest.param(confined, id="isolated", marks=isolating),
    pytest.param(forked_worker, id="forked", marks=isolating),
    pytest.param(unisolated, id="by Landlock alone"),
]


def attempt(own: Path, *lines: str, tries: str = "", by=confined, **variables: str) -> str:
    """Run Python confined to a folder. `tries`: an expression whose error's name is printed, or "done"."""
    script = "\n".join(["import os, pathlib, shutil, signal, subprocess, sys, threading", *lines])
    if tries:
        script += f"\ntry:\n    {tries}\n    print('done')\nexcept OSError as error:\n    print(type(error).__name__)"
    done = subprocess.run(
        by([sys.executable, "-c", script], [own]),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def theirs(tmp_path):
    """A folder that is not the program's, with a file."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "kept").write_text("kept")
    return folder


@landlocked
@pytest.mark.parametrize(
    "tries",
    [
        "pathlib.Path(given, 'kept').write_text('x')",
        "pathlib.Path(given, 'new').touch()",
        "pathlib.Path(given, 'new').mkdir()",
        "pathlib.Path(given, 'new').symlink_to('/')",
        "os.mkfifo(given + '/new')",
        "pathlib.Path(given, 'kept').unlink()",
        "pathlib.Path(given, 'kept').rename(given + '/new')",
        "os.link(given + '/kept', own + '/new')",
        "pathlib.Path(own, 'mine').touch(); os.rename(own + '/mine', given + '/kept')",
        "os.symlink(given, own + '/link'); pathlib.Path(own, 'link', 'kept').write_text('x')",
        "shutil.rmtree(given)",
    ],
)
def test_what_is_not_its_own_cannot_be_changed(own, theirs, tries):
    said = attempt(own, f"given, own = {str(theirs)!r}, {str(own)!r}", tries=tries)

    assert said in {"PermissionError", "OSError"}
    assert {path.name: path.read_text() for path in theirs.iterdir()} == {"kept": "kept"}


@pytest.mark.skipif(confine.landlock_version() < 3, reason="this kernel's Landlock denies no truncating")
def test_what_is_not_its_own_cannot_be_emptied(own, theirs):
    assert attempt(own, tries=f"os.truncate({str(theirs / 'kept')!r}, 0)") == "PermissionError"
    assert (theirs / "kept").read_text() == "kept"


@landlocked
def test_what_it_starts_is_confined_as_it_is(own, theirs):
    code = f"import pathlib; pathlib.Path({str(theirs / 'new')!r}).touch()"

    assert attempt(own, f"print(subprocess.run([sys.executable, '-c', {code!r}], stderr=-3).returncode)") == "1"
    assert not (theirs / "new").exists()


def test_its_own_folder_devices_and_whatever_can_be_read_stay_open_to_it(own, theirs):
    said = attempt(
        own,
        f"own, theirs = pathlib.Path({str(own)!r}), pathlib.Path({str(theirs)!r})",
        "(own / 'inner').mkdir()",
        "(own / 'inner' / 'file').write_text('mine')",
        "(own / 'inner' / 'file').rename(own / 'file')",
        "os.truncate(own / 'file', 2)",
        "(own / 'file').unlink()",
        "pathlib.Path('/dev/null').write_text('gone')",
        "threading.Thread(target=lambda: pathlib.Path('/proc/self/task', str(threading.get_native_id()), 'comm')"
        ".write_text('named')).run()",
        "print((theirs / 'kept').read_text(), subprocess.run(['cat', theirs / 'kept'], capture_output=True).stdout)",
    )

    assert said == "kept b'kept'"


HIDDEN = {"PermissionError", "FileNotFoundError", "ProcessLookupError"}
"""What a confined process hears of one outside: it may not, or there is none."""


@landlocked
@pytest.mark.parametrize("by", WAYS)
def test_memory_of_a_process_outside_cannot_be_read(own, by):
    assert attempt(own, tries=f"open('/proc/{os.getpid()}/mem', 'rb')", by=by) in HIDDEN


@landlocked
@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_variables_of_a_process_outside_cannot_be_read(own, user, by):
    """As whoever runs the tests, and as somebody with no privileges: the kernel asks more of one than of the other."""
    if user == "ordinary" and os.getuid():
        pytest.skip("only root can become another user")
    other = 65534 if user == "ordinary" else os.getuid()
    victim = subprocess.Popen(["sleep", "60"], env=os.environ | {"SECRET": "hush"}, user=other)
    try:
        code = f"import os; os.setuid({other}); print(open('/proc/{victim.pid}/environ').read())"
        plain, hidden = (
            subprocess.run(command, capture_output=True, text=True, check=False)
            for command in ([sys.executable, "-c", code], by([sys.executable, "-c", code], [own]))
        )
    finally:
        victim.kill()
        victim.wait()

    assert "hush" in plain.stdout
    assert hidden.stdout == ""
    assert any(error in hidden.stderr for error in HIDDEN)


@pytest.mark.skipif(
    confine.landlock_version() < confine.SIGNAL_SINCE, reason="this kernel's Landlock denies no signals"
)
@pytest.mark.parametrize("by", WAYS)
def test_a_process_outside_gets_no_signal(own, by):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        assert attempt(own, tries=f"os.kill({victim.pid}, signal.SIGKILL)", by=by) in HIDDEN
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_an_isolated_program_sees_itself_and_what_it_starts_and_ends_as_it_would_alone(own, by):
    listed = "print(os.getpid(), sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))"
    seen = attempt(own, listed, by=by)
    ends = [
        subprocess.run(by([sys.executable, "-c", code], [own]), capture_output=True, check=False).returncode
        for code in ("raise SystemExit(7)", "import os; os.abort()", "import os, signal; os.kill(os.getpid(), 9)")
    ]

    assert seen == "2 [1, 2]"
    assert ends == [7, -signal.SIGABRT, -signal.SIGKILL]


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_what_an_isolated_program_leaves_behind_ends_with_it_and_holds_no_pipe(own, by):
    code = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"

    done = subprocess.run(
        by([sys.executable, "-c", code], [own]), capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "3"  # the pipe has ended, so nothing that had it open is left


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_a_program_has_only_the_rights_that_are_left_to_it_and_can_get_no_more(own, by):
    """Dropped from what root may regain by another program, and from what it has now."""
    read = "found = dict(line.split(':') for line in open('/proc/self/status'))"
    said = attempt(own, read, "print(*(found['Cap' + name].strip() for name in ('Eff', 'Prm', 'Bnd')))", by=by)

    effective, permitted, bounds = (int(part, 16) for part in said.split())
    assert not any((effective | permitted) >> each & 1 for each in confine.CAPABILITIES)
    assert (effective, permitted) == ((bounds, bounds) if os.getuid() == 0 else (0, 0))


@fenced
@pytest.mark.parametrize("by", [WAYS[0], WAYS[2]])
def test_a_process_that_flees_from_its_session_ends_with_its_group(own, by):
    """Detached twice over as a daemon is, and by another program too."""
    daemon = """
        import os, subprocess, sys, time
        subprocess.Popen(["setsid", "sleep", "300"])
        if os.fork() == 0:
            os.setsid()
            os.setpgid(0, 0)
            if os.fork():
                os._exit(0)
            print(os.getpid(), flush=True)
            os.close(1)
            time.sleep(300)
        time.sleep(300)
    """
    command = by([sys.executable, "-c", textwrap.dedent(daemon)], [own])
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with worker.stdout:
        worker.stdout.readline()  # the daemon's number
    group = {pid for pid, group_id in groups() if group_id == worker.pid}

    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()

    # The program, the daemon, setsid's sleep, and the two processes around an isolated one.
    assert len(group) >= (5 if by is confined else 3)
    until = time.monotonic() + 20
    while group & {pid for pid, _ in groups()} and time.monotonic() < until:
        time.sleep(0.01)
    assert not group & {pid for pid, _ in groups()}


def groups():
    """Every living process, with its group."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            yield int(folder.name), int(group)


# --- the rules themselves, whatever this kernel has -------------------------------------------------------------------


class Kernel:
    """Hears the calls in place of the kernel."""

    def __init__(self, version: int) -> None:
        self.version, self.calls = version, []

    def __call__(self, number, *arguments):
        if (number, arguments[-1]) == (confine.CREATE_RULESET, 1):
            return self.version
        self.calls.append((number, arguments))
        return os.dup(0) if number == confine.CREATE_RULESET else 0


def rules(monkeypatch, version, folder):
    """What is denied, scopes, and rights by kind of place."""
    kernel = Kernel(version)
    monkeypatch.setattr(confine, "_call", kernel)
    monkeypatch.setattr(confine, "_devices", lambda: iter(["/dev/null"]))
    confine.restrict_writing([str(folder)])
    (_, (attributes, size, _)), *added, (last, _) = kernel.calls
    assert (size, last) == (24, confine.RESTRICT_SELF)
    denied, _, scopes = struct.unpack("=QQQ", attributes)
    return denied, scopes, [struct.unpack("=Qi", arguments[2])[0] for _, arguments in added]


@pytest.mark.parametrize(
    ("version", "denied", "scopes"),
    [(1, 0x1FF2, 0), (2, 0x3FF2, 0), (3, 0x7FF2, 0), (5, 0x7FF2, 0), (6, 0x7FF2, 2), (9, 0x7FF2, 2)],
)
def test_a_kernel_is_asked_to_deny_what_its_version_knows(monkeypatch, own, version, denied, scopes):
    found, scoped, (device, folder, threads) = rules(monkeypatch, version, own)

    assert (found, scoped, folder) == (denied, scopes, denied)
    assert device == denied & 0x4002  # write and truncate: what can be allowed for a file
    assert threads == device
    assert not found & 0x800D  # neither executing, nor reading, nor what drivers are asked for


def test_a_kernel_without_landlock_is_asked_for_nothing(monkeypatch, own):
    kernel = Kernel(-1)
    monkeypatch.setattr(confine, "_call", kernel)

    confine.restrict_writing([str(own)])

    assert kernel.calls == []
