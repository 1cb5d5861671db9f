"""A program that is confined writes to its folders, reaches no other process, and leaves none behind."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from perfci.worker import confine, forks
from perfci.worker.process import confined
from tests.worker import forked

pytestmark = pytest.mark.slow

landlocked = pytest.mark.skipif(not confine.landlock_version(), reason="this kernel has no Landlock")
fenced = pytest.mark.skipif(not confine.can_fence(), reason="this system has no seccomp filters")


def unisolated(command: list[str], *places: list[Path]) -> list[str]:
    """A program that is confined where no namespaces can be had."""
    code = "import json, os, sys; from perfci.worker.confine import confine; places, *rest = sys.argv[1:]"
    return [
        sys.executable,
        "-c",
        f"{code}; confine(*json.loads(places)); os.execv(rest[0], rest)",
        spell(places),
        *command,
    ]


def forked_worker(command: list[str], *places: list[Path]) -> list[str]:
    """A program in a worker that becomes none, but is forked from a process with more rights."""
    return [sys.executable, "-P", forked.__file__, spell(places), *command]


def spell(places: tuple[list[Path], ...]) -> str:
    """Places to be confined to, as an argument."""
    return json.dumps([[*map(str, paths)] for paths in places])


isolating = pytest.mark.skipif(not confine.can_isolate(), reason="no namespaces")
WAYS = [
    pytest.param(confined, id="isolated", marks=isolating),
    pytest.param(forked_worker, id="forked", marks=isolating),
    pytest.param(unisolated, id="by Landlock alone"),
]


def attempt(granted: Path | list[Path], *lines: str, tries: str = "", by=confined, **variables: str) -> str:
    """Run Python confined to a folder. `tries`: an expression: the name of its error is printed, or "done".

    Lists of folders before the lines: what is hidden, and what of it is shown.
    """
    places = [granted if isinstance(granted, list) else [granted], *(line for line in lines if isinstance(line, list))]
    lines = [line for line in lines if isinstance(line, str)]
    script = "\n".join(["import os, pathlib, shutil, signal, subprocess, sys, threading", *lines])
    if tries:
        caught = "(OSError, subprocess.SubprocessError) as error"
        script += f"\ntry:\n    {tries}\n    print('done')\nexcept {caught}:\n    print(type(error).__name__)"
    done = subprocess.run(
        by([sys.executable, "-c", script], *places),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ONE_BY_ONE = """
for given_try in TRIES:
    try:
        exec(given_try)
        print("done")
    except (OSError, subprocess.SubprocessError) as error:
        print(type(error).__name__)
"""


def try_all(*places: Path | list[Path], tries: tuple[str, ...], names: str = "", by=confined) -> list[str]:
    """Statements, one after the other in one confined program. Returns the name of each one's error, or "done"."""
    return attempt(*places, names, ONE_BY_ONE.replace("TRIES", repr(tries)), by=by).split()


@pytest.fixture
def granted(tmp_path):
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


CHANGES = (
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
)


@landlocked
def test_what_is_not_its_own_cannot_be_changed(granted, theirs):
    said = try_all(granted, names=f"given, own = {str(theirs)!r}, {str(granted)!r}", tries=CHANGES)

    assert len(said) == len(CHANGES) and {*said} <= {"PermissionError", "OSError"}, said
    assert {path.name: path.read_text() for path in theirs.iterdir()} == {"kept": "kept"}


@pytest.mark.skipif(confine.landlock_version() < 3, reason="this kernel's Landlock denies no truncating")
def test_what_is_not_its_own_cannot_be_emptied(granted, theirs):
    assert attempt(granted, tries=f"os.truncate({str(theirs / 'kept')!r}, 0)") == "PermissionError"
    assert (theirs / "kept").read_text() == "kept"


@landlocked
def test_what_it_starts_is_confined_as_it_is(granted, theirs):
    code = f"import pathlib; pathlib.Path({str(theirs / 'new')!r}).touch()"

    assert attempt(granted, f"print(subprocess.run([sys.executable, '-c', {code!r}], stderr=-3).returncode)") == "1"
    assert not (theirs / "new").exists()


def test_its_own_folder_devices_and_whatever_can_be_read_stay_open_to_it(granted, theirs):
    said = attempt(
        granted,
        f"own, theirs = pathlib.Path({str(granted)!r}), pathlib.Path({str(theirs)!r})",
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


@landlocked
@pytest.mark.parametrize("by", WAYS)
def test_what_is_hidden_cannot_be_read_or_listed_but_for_what_is_shown(granted, theirs, by):
    """Nor by a program that it starts, nor through a link."""
    (theirs / "shown").mkdir()
    (theirs / "shown" / "file").write_text("shown")
    (granted / "link").symlink_to(theirs)
    places = [granted], [theirs], [theirs / "shown"]
    tries = (
        *(f"open({str(folder / 'kept')!r})" for folder in (theirs, granted / "link")),
        f"os.listdir({str(theirs)!r})",
        f"subprocess.run(['cat', {str(theirs / 'kept')!r}], check=True, stderr=-3)",
        f"open({str(theirs / 'shown' / 'file')!r})",
        f"open({sys.executable!r}); os.listdir('/usr')",
    )

    said = try_all(*places, tries=tries, by=by)

    assert said == ["PermissionError"] * 3 + ["CalledProcessError"] + ["done"] * 2


@landlocked
def test_a_device_that_is_hidden_cannot_be_opened(granted):
    tries = "open('/dev/zero', 'rb')"

    assert [attempt([granted], [Path(path)], tries=tries) for path in ("/dev/full", "/dev/zero")] == [
        "done",
        "PermissionError",
    ]


@fenced
@pytest.mark.parametrize("by", WAYS)
def test_modes_cannot_be_changed_and_asking_for_it_fails_nothing(granted, theirs, by):
    kept = theirs / "kept"
    before = kept.stat()
    code = f"""
        import ctypes, os, shutil
        kept = {str(kept)!r}
        os.chmod(kept, 0)
        os.chown(kept, os.getuid(), os.getgid())
        os.setxattr(kept, "user.x", b"1")
        with open(kept) as file:
            os.fchmod(file.fileno(), 0)
        ctypes.CDLL(None).fchmodat(-100, kept.encode(), 0, 0)
        print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0), ctypes.get_errno(), shutil.copy(kept, "{granted}"))
    """

    said = attempt(granted, textwrap.dedent(code), by=by)

    assert said == f"-1 38 {granted / 'kept'}"  # no ring of calls either
    assert (kept.stat().st_mode, kept.stat().st_ctime_ns) == (before.st_mode, before.st_ctime_ns)


@fenced
@pytest.mark.parametrize("by", WAYS)
def test_limits_of_a_process_outside_cannot_be_changed_and_its_own_can(granted, by):
    """A limit of its time ends a process as a signal does."""
    with subprocess.Popen(["sleep", "60"]) as victim:
        outside = f"import resource; resource.prlimit({victim.pid}, resource.RLIMIT_CPU, (1, 1))"
        before = resource.prlimit(victim.pid, resource.RLIMIT_CPU)
        own_limits = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
        said = try_all(granted, tries=(outside, own_limits), by=by)
        after = resource.prlimit(victim.pid, resource.RLIMIT_CPU)
        victim.kill()

    assert (said, after) == (["PermissionError", "done"], before)


@fenced
@pytest.mark.parametrize("by", WAYS)
def test_nothing_in_the_kernel_outlives_it(granted, by):
    """Neither memory, messages and semaphores of System V nor a queue or a key, by which a later process could know."""
    queue, key = {"x86_64": (240, 248), "aarch64": (180, 217)}[os.uname().machine]
    calls = ["shmget(0, 4096, 0o1600)", "msgget(0, 0o1600)", "semget(0, 1, 0o1600)"]
    calls += [f"syscall({queue}, b'x', 0o102, 0o600, None)", f"syscall({key}, b'user', b'x', b'y', 1, -4)"]
    made = ", ".join(f"libc.{call}" for call in calls)

    assert attempt(granted, "import ctypes; libc = ctypes.CDLL(None)", f"print({made})", by=by) == "-1 -1 -1 -1 -1"


@landlocked
def test_no_terminal_disk_or_memory_is_open_to_it_but_the_usual_devices_are(granted):
    """A terminal obeys what is written to it, whatever perfci does to the text that it shows."""
    master, slave = os.openpty()
    tries = [f"open({os.ttyname(slave)!r}, {mode!r})" for mode in ("w", "r")]
    tries += [f"open({name!r}, 'w')" for name in ("/dev/console", "/dev/kmsg", "/dev/ptmx") if os.path.exists(name)]  # noqa: PTH110
    tries += [
        "open('/dev/null', 'w'); open('/dev/zero').read(1); open('/dev/urandom', 'rb').read(1); os.listdir('/dev')"
    ]

    said = try_all(granted, tries=tuple(tries))

    os.close(master)
    os.close(slave)
    assert said == ["PermissionError"] * (len(tries) - 1) + ["done"]


HIDDEN = {"PermissionError", "FileNotFoundError", "ProcessLookupError"}
"""What a confined process hears of one outside: it may not, or there is none."""


@landlocked
@pytest.mark.parametrize("by", WAYS)
def test_memory_of_a_process_outside_cannot_be_read(granted, by):
    assert attempt(granted, tries=f"open('/proc/{os.getpid()}/mem', 'rb')", by=by) in HIDDEN


@landlocked
@pytest.mark.parametrize("how", [pytest.param("isolate(); ", id="isolated", marks=isolating), ""])
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_variables_of_a_process_outside_cannot_be_read(granted, user, how):
    """As whoever runs the tests, and as somebody with no privileges: the kernel asks more of one than of the other."""
    if user == "ordinary" and os.getuid():
        pytest.skip("only root can become another user")
    other = 65534 if user == "ordinary" else os.getuid()
    victim = subprocess.Popen(["sleep", "60"], env=os.environ | {"SECRET": "hush"}, user=other)
    try:
        become = (
            f"os.setuid({other}); ctypes.CDLL(None).prctl(4, 1)"  # readable by itself, as a program's start makes it
        )
        start = f"import ctypes, os; from perfci.worker.confine import confine, isolate; {become}"
        look = f"print(open('/proc/{victim.pid}/environ').read())"
        plain, hidden = (
            subprocess.run([sys.executable, "-c", f"{start}; {code}"], capture_output=True, text=True, check=False)
            for code in (look, f"{how}confine([{str(granted)!r}]); {look}")
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
def test_a_process_outside_gets_no_signal(granted, by):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        assert attempt(granted, tries=f"os.kill({victim.pid}, signal.SIGKILL)", by=by) in HIDDEN
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_an_isolated_program_sees_itself_and_what_it_starts_and_ends_as_it_would_alone(granted, by):
    listed = "print(os.getpid(), sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))"
    seen = attempt(granted, listed, by=by)
    ends = [
        subprocess.run(by([sys.executable, "-c", code], [granted]), capture_output=True, check=False).returncode
        for code in ("raise SystemExit(7)", "import os; os.abort()", "import os, signal; os.kill(os.getpid(), 9)")
    ]

    assert seen == "2 [1, 2]"
    assert ends == [7, -signal.SIGABRT, -signal.SIGKILL]


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_what_an_isolated_program_forks_may_name_its_threads_as_cuda_does(granted, by):
    names = "pathlib.Path('/proc/self/task', str(threading.get_native_id()), 'comm').write_text('cuda')"
    ended = "os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    code = f"child = os.fork() or ({names}, os._exit(0)); raise SystemExit({ended})"

    assert attempt(granted, code, by=by) == ""


@isolating
@pytest.mark.skipif(os.getuid() != 0, reason="not root")
@pytest.mark.parametrize("by", WAYS)
def test_root_cannot_write_what_is_the_systems_in_proc(granted, by):
    places = [Path("/proc", name) for name in ("sys/vm/drop_caches", "sys/kernel/hostname", "irq/default_smp_affinity")]
    tries = tuple(f"os.open({str(place)!r}, os.O_WRONLY)" for place in places if place.exists())

    said = try_all(granted, tries=tries, by=by)

    assert len(said) == len(tries) > 0 and {*said} <= {"OSError", "PermissionError"}


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_the_shared_memory_of_an_isolated_program_is_its_own(granted, by):
    # Of no other test: a worker's end may look for who uses a name while another one has it.
    place = Path(f"/dev/shm/perfci-test-{os.getpid()}-{by.__name__}")
    with place.open("w+") as held:  # what is open there no other worker's end removes
        held.write("theirs")
        held.flush()

        code = f"print(os.listdir('/dev/shm')); open('{place}', 'w').write('mine')"
        said = attempt([granted, Path("/dev/shm")], code, by=by)
        kept = place.read_text()
        place.unlink()

    assert (said, kept) == ("[]", "theirs")


@isolating
@pytest.mark.parametrize("is_forked", [True, False], ids=["forked", "started"])
def test_a_judge_shares_memory_with_the_processes_that_it_starts_and_with_no_other(granted, is_forked):
    """CUDA and torch hand a GPU's memory to another process by files there."""
    place, look = (
        Path(f"/dev/shm/perfci-test-{os.getpid()}-judge-{is_forked}"),
        "import os; print(os.listdir('/dev/shm'))",
    )
    started = confined([sys.executable, "-c", look], [str(granted)])
    if is_forked:
        # The judge's own server forks what it starts, as it forks the process of an op's code.
        asked = f"""
            import os, pathlib
            from perfci.worker import forks
            from tests.worker import forked
            pathlib.Path({str(place)!r}).write_text("a handle")
            print(forked.run(dict(os.environ), {look!r}, pathlib.Path.cwd())[0].strip(), os.listdir("/dev/shm"))
        """
        environment = forked.begin(granted / "package", added=[Path(forked.__file__).parents[2]])
        said = forked.run(environment, textwrap.dedent(asked), Path.cwd(), None)[0]
        forks.end()
    else:
        asked = f"""
            import os, pathlib, subprocess
            pathlib.Path({str(place)!r}).write_text("a handle")
            print(subprocess.run({started}, capture_output=True, text=True).stdout.strip(), os.listdir("/dev/shm"))
        """
        command = [sys.executable, confine.__file__, confine.JUDGE, sys.executable, "-c", textwrap.dedent(asked)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.strip() == f"['{place.name}'] ['{place.name}']"
    assert not place.exists()


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_what_an_isolated_program_leaves_behind_ends_with_it_and_holds_no_pipe(granted, by):
    code = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"

    done = subprocess.run(
        by([sys.executable, "-c", code], [granted]), capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "3"  # the pipe has ended, so nothing that had it open is left


@isolating
@pytest.mark.parametrize("by", WAYS[:2])
def test_a_program_has_only_the_rights_that_are_left_to_it_and_can_get_no_more(granted, by):
    """Dropped from what root may regain by another program, and from what it has now."""
    read = "found = dict(line.split(':') for line in open('/proc/self/status'))"
    said = attempt(granted, read, "print(*(found['Cap' + name].strip() for name in ('Eff', 'Prm', 'Bnd')))", by=by)

    effective, permitted, bounds = (int(part, 16) for part in said.split())
    assert not bounds & ~sum(1 << kept for kept in confine.CAPABILITIES)
    assert (effective, permitted) == ((bounds, bounds) if os.getuid() == 0 else (0, 0))


@fenced
@pytest.mark.parametrize("by", [WAYS[0], WAYS[2]])
def test_a_process_that_flees_from_its_session_ends_with_its_group(granted, by):
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
    command = by([sys.executable, "-c", textwrap.dedent(daemon)], [granted])
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
    monkeypatch.setattr(confine, "_list_visible", lambda *_: iter(["/usr", "/etc/passwd"]))
    confine.restrict_files([str(folder)])
    (_, (attributes, size, _)), *added, (last, _) = kernel.calls
    assert (size, last) == (24, confine.RESTRICT_SELF)
    denied, _, scopes = struct.unpack("=QQQ", attributes)
    return denied, scopes, [struct.unpack("=Qi", arguments[2])[0] for _, arguments in added]


@pytest.mark.parametrize(
    ("version", "denied", "scopes"),
    [(1, 0x1FFE, 0), (2, 0x3FFE, 0), (3, 0x7FFE, 0), (5, 0x7FFE, 0), (6, 0x7FFE, 2), (9, 0x7FFE, 2)],
)
def test_a_kernel_is_asked_to_deny_what_its_version_knows(monkeypatch, granted, version, denied, scopes):
    found, scoped, (visible, file, device, devices, folder, threads) = rules(monkeypatch, version, granted)

    assert (found, scoped, folder) == (denied, scopes, denied)
    assert (visible, file, devices) == (0xC, 0x4, 0x8)  # to read files and folders, one file, a folder alone
    assert threads == denied & 0x4002  # write and truncate: what can be allowed for a file
    assert device == threads | 0x4
    assert not found & 0x8001  # neither executing, nor what drivers are asked for


def test_a_kernel_without_landlock_is_asked_for_nothing(monkeypatch, granted):
    kernel = Kernel(-1)
    monkeypatch.setattr(confine, "_call", kernel)

    confine.restrict_files([str(granted)])

    assert kernel.calls == []
