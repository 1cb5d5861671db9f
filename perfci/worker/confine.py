"""Runs a program that writes to few folders, reads no hidden ones, sees no other process and leaves none behind.

As far as possible here. `python -I -S confine.py WRITABLE HIDDEN SHOWN PROGRAM ARGUMENT...`, with folders separated as
in PATH: those that it may write, those that it may not read, and what in these it may read all the same. It needs the
standard library alone, and ends before Python looks for any file of the project. Whatever the program starts is
confined as it is. `--judge` in place of the folders gives a judge's program nothing but a /dev/shm.
"""

import contextlib
import ctypes
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

# Of linux/landlock.h.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
READ = READ_FILE | READ_FOLDER
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # make and remove what there is in folders
SINCE = {2: 1 << 13, 3: TRUNCATE}  # version -> rights that it can deny: moving between folders, truncating
SIGNAL_SINCE, SCOPE_SIGNAL = 6, 1 << 1

# Of linux/seccomp.h and linux/audit.h: architecture, and the number of seccomp.
NUMBERS = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
ALLOW, DENY = 0x7FFF0000, 0x00050000

SESSIONS = {"x86_64": (109, 112), "aarch64": (154, 157)}
"""Calls that do nothing: setpgid and setsid."""

MODES = {
    "x86_64": (*range(90, 95), *range(188, 191), *range(197, 200), 260, 268, 452, 463, 466, 469),
    "aarch64": (*range(5, 8), *range(14, 17), *range(52, 56), 452, 463, 466, 469),
}
"""The same: chmod, chown, and what sets attributes such as access lists. Landlock forbids none of them."""

LASTING = {"x86_64": (29, 64, 68, 240, 248, 249, 250, 425), "aarch64": (194, 190, 186, 180, 217, 218, 219, 425)}
"""Calls that there are not: memory, semaphores and messages of System V, queues, keys, which outlive a process, and
rings, which make other calls."""

LIMIT = {"x86_64": 302, "aarch64": 261}
"""prlimit64, which is allowed a process for itself alone: it can end others."""

NO_SUCH_CALL, NOT_PERMITTED = 38, 1
SPEC_ALLOW = 1 << 2  # no slower for being filtered

DEVICES = (
    *("null", "zero", "full", "random", "urandom"),
    *("nvidia*", "nvhost*", "nvmap", "davinci*", "devmm_svm", "hisi_hdc", "ascend*", "kfd", "dri/*", "dxg"),
)
"""Patterns of the devices that stay open, from /dev: no terminal, disk or memory."""

CAPABILITIES = (1, 2)
"""All that root keeps: it reads and writes files of others. Others would lead past it, or change the clock."""

CAPABILITY_VERSION = 0x20080522  # of linux/capability.h

# Of linux/sched.h, linux/mount.h and linux/prctl.h.
NEW_MOUNTS, NEW_USER, NEW_PIDS = 1 << 17, 1 << 28, 1 << 29
PRIVATE, PLAIN = 1 << 18 | 1 << 14, 0b1110  # all mounts from here on. No set-user-id, devices or programs
BIND, READ_ONLY = 1 << 12, 1 << 12 | 1 << 5 | 1  # a folder as a mount. To remount it so that nothing is written
DIE_WITH_PARENT = 1
DUMPABLE = 4  # without it the process of a new user cannot look at itself

JUDGE = "--judge"
MOUNTED = "perfci"
"""Name of the file systems that are mounted at /dev/shm and /proc."""


def landlock_version() -> int:
    """Returns the version of Landlock that this kernel offers. 0 if it has none."""
    return max(_call(CREATE_RULESET, None, 0, 1), 0) if sys.platform == "linux" else 0


def can_fence() -> bool:
    """Returns whether processes can be kept in the group in which they start, and from changing modes."""
    numbers = NUMBERS.get(os.uname().machine) if sys.platform == "linux" else None
    return numbers is not None and _call(numbers[1], 2, 0, struct.pack("=I", DENY)) == 0


def restrict_files(folders: Sequence[str], hidden: Sequence[str] = (), shown: Sequence[str] = ()) -> None:
    """Deny this process to write but to these folders and devices, and to read hidden folders but for what is shown.

    Nor can it read the memory of processes outside, nor send them signals from version 6 on. Raises OSError.
    """
    version = landlock_version()
    if not version:
        return
    handled = WRITE_FILE | READ | CHANGE_FOLDER | sum(right for since, right in SINCE.items() if version >= since)
    scopes = SCOPE_SIGNAL if version >= SIGNAL_SINCE else 0
    attributes = struct.pack("=QQQ", handled, 0, scopes)
    rules = _checked(_call(CREATE_RULESET, attributes, len(attributes), 0))
    # CUDA does not start if it cannot name its threads there. Root could write to more of /proc, unless that is sealed:
    # then processes that it forks can start CUDA too.
    threads = "/proc" if os.getuid() or _is_mounted("/proc", "proc") else "/proc/self"
    device = handled & (WRITE_FILE | TRUNCATE)
    allowed = [(path, READ) for path in (*_list_visible("/", {*hidden, "/dev"}), *shown)]
    devices = (path for path in _devices() if not path.startswith((*hidden,)))
    allowed += [(path, device | READ_FILE) for path in devices] + [("/dev", READ_FOLDER)]
    for path, rights in [*allowed, *((folder, handled) for folder in folders), (threads, device)]:
        try:
            handle = os.open(path, os.O_PATH)
        except (FileNotFoundError, PermissionError):  # what has just gone, or cannot be reached anyway
            continue
        fitting = rights if stat.S_ISDIR(os.fstat(handle).st_mode) else rights & ~READ_FOLDER
        _checked(_call(ADD_RULE, rules, 1, struct.pack("=Qi", fitting, handle), 0))
        if path == threads:  # stays open with the program: a folder of /proc is forgotten if no one has it
            os.set_inheritable(handle, True)
        else:
            os.close(handle)
    _checked(_call(RESTRICT_SELF, rules, 0))
    os.close(rules)


def _list_visible(folder: str, hidden: set[str]) -> Iterator[str]:
    """Yields the fewest paths below a folder that together are all but the hidden ones. Links lead to one of them."""
    with contextlib.suppress(OSError):  # a folder of others
        for entry in os.scandir(folder):
            if entry.path in hidden or entry.is_symlink():
                continue
            if any(path.startswith(f"{entry.path}/") for path in hidden):
                yield from _list_visible(entry.path, hidden)
            else:
                yield entry.path


def fence() -> None:
    """Have some calls do nothing, so that modes stay, and killing a group kills whatever one of its processes started.

    These are SESSIONS and MODES. Those of LASTING fail, and LIMIT does for another process.
    """
    if not can_fence():
        return
    machine = os.uname().machine
    architecture, seccomp = NUMBERS[machine]
    idle, missing = (*SESSIONS[machine], *MODES[machine]), LASTING[machine]
    program = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 1, 0, architecture),
        (0x06, 0, 0, DENY | NO_SUCH_CALL),  # another one, such as 32 bits
        (0x20, 0, 0, 0),  # load the number
        (0x35, 1, 0, 0x40000000),  # x32
        (0x15, 0, 3, LIMIT[machine]),
        (0x20, 0, 0, 16),  # load the first argument, a process
        (0x15, len(idle) + len(missing) + 1, 0, 0),  # allow it for this one
        (0x06, 0, 0, DENY | NOT_PERMITTED),
        *((0x15, len(idle) + len(missing) - at, 0, number) for at, number in enumerate(idle)),
        *((0x15, len(missing) - at + 1, 0, number) for at, number in enumerate(missing)),
        (0x06, 0, 0, ALLOW),
        (0x06, 0, 0, DENY),  # with the error 0, which is none
        (0x06, 0, 0, DENY | NO_SUCH_CALL),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    _checked(_call(seccomp, 1, SPEC_ALLOW, struct.pack("@HP", len(program), ctypes.addressof(code))))


def can_isolate() -> bool:
    """Returns whether a process can be kept from seeing those outside. Tries it in a separate process.

    Not beside an NPU or CUDA's MPS, which know processes by their numbers outside, nor where Landlock confines nothing.
    """
    served = os.access(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), os.F_OK)
    if not landlock_version() or served or any(entry.name.startswith("davinci") for entry in os.scandir("/dev")):
        return False
    if trial := os.fork():
        return os.waitpid(trial, 0)[1] == 0
    status = 1
    with contextlib.suppress(OSError):
        _unshare(NEW_PIDS)
        if inner := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        else:
            _mount()
            status = 0
    os._exit(status)


def isolate() -> None:
    """Go on in a process that sees no other but those that it starts. This one waits for it, and ends as it does.

    Between them is the first process inside. When it ends, the kernel kills whatever is left there.
    """
    if not can_isolate():
        return
    reading, writing = os.pipe()
    _unshare(NEW_PIDS)
    if os.fork():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # its group is asked where it hangs
        close_all_but(reading)
        status = int(os.read(reading, 16) or -signal.SIGKILL)
        if status < 0:
            import resource  # which Windows lacks

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):  # there is nothing to set for SIGKILL
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    _mount()
    if not (program := os.fork()):
        os.close(reading)
        os.close(writing)
        return
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    close_all_but(writing)
    ended, status = 0, 0
    while ended != program:
        ended, status = os.wait()
    os.write(writing, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def take_memory() -> None:
    """Give this process, a judge's, and those that it starts a /dev/shm that others do not see, if they are isolated.

    CUDA and torch hand a GPU's memory from one to the other by files there.
    """
    if not can_isolate():
        return
    _unshare(NEW_MOUNTS)
    _mount_memory()
    ctypes.CDLL(None).prctl(DUMPABLE, 1, 0, 0, 0)


def _unshare(kind: int) -> None:
    """Leave a namespace, or have this process's next child be the first of one of processes. Raises OSError."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kind):  # which root may do
        _checked(libc.unshare(kind | NEW_USER))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            handle = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(handle, text.encode())
            os.close(handle)


def _mount() -> None:
    """Give this process and those below a /proc of their namespace, and a separate /dev/shm. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(NEW_MOUNTS))
    _mount_memory()
    _checked(libc.mount(MOUNTED.encode(), b"/proc", b"proc", ctypes.c_ulong(PLAIN), None))
    if os.getuid() == 0:
        _seal()


def _seal() -> None:
    """Have nothing of /proc written but what is of processes. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    for entry in [*os.scandir("/proc")]:
        is_written = not entry.is_symlink() and (entry.is_dir() or entry.stat().st_mode & 0o222)
        if is_written and not entry.name.isdigit():
            path = entry.path.encode()
            _checked(libc.mount(path, path, None, ctypes.c_ulong(BIND), None))
            _checked(libc.mount(None, path, None, ctypes.c_ulong(READ_ONLY | PLAIN), None))


def _mount_memory() -> None:
    """Mount another /dev/shm in a new namespace of mounts, unless a judge's process has one already. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE), None))
    if os.path.isdir("/dev/shm") and not _is_mounted("/dev/shm", "tmpfs"):  # noqa: PTH112
        libc.mount(
            MOUNTED.encode(), b"/dev/shm", b"tmpfs", ctypes.c_ulong(PLAIN), b"mode=1777"
        )  # else it stays the user's


def _is_mounted(folder: str, kind: str) -> bool:
    """Whether a file system of ours is at this folder."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo") as file:  # noqa: PTH123
        return any(f" {folder} " in line and f" - {kind} {MOUNTED} " in line for line in file)
    return False


def close_all_but(*kept: int) -> None:
    """Close what another process shall be the only one to have open, but for standard input, output and errors."""
    for number in [int(entry.name) for entry in os.scandir("/proc/self/fd")]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _devices(folder: str = "/dev") -> Iterator[str]:
    """Yields the machine's devices that stay open."""
    with contextlib.suppress(OSError):  # a folder of others
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _devices(entry.path) if entry.name not in {"shm", "mqueue"} else ()
            elif stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
                name = entry.path.removeprefix("/dev/")
                yield from [entry.path] if any(fnmatchcase(name, pattern) for pattern in DEVICES) else []


def _call(number: int, *arguments: bytes | int | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [argument if isinstance(argument, bytes) else ctypes.c_long(argument or 0) for argument in arguments]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def confine(folders: Sequence[str], hidden: Sequence[str] = (), shown: Sequence[str] = ()) -> None:
    """Confine this process and whatever it starts, as `restrict_files` does."""
    libc = ctypes.CDLL(None)
    for capability in set(range(64)).difference(CAPABILITIES):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, which has an effect for root alone
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: what follows needs no privileges then
    restrict_files(folders, hidden, shown)
    fence()
    _drop_capabilities()
    libc.prctl(DUMPABLE, 1, 0, 0, 0)


def _drop_capabilities() -> None:
    """Drop all that a program would lack which this process became: one that is forked becomes none."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = struct.pack("=Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    _checked(libc.capget(header, sets))
    bounds = sum(1 << bit for bit in range(64) if libc.prctl(23, bit, 0, 0, 0) == 1)  # PR_CAPBSET_READ
    _, low, _, _, high, _ = struct.unpack("=6I", sets.raw)
    kept = (low | high << 32) & bounds if os.geteuid() == 0 else 0
    halves = [kept & 0xFFFFFFFF] * 2 + [0] + [kept >> 32] * 2 + [0]  # effective, permitted, inheritable
    _checked(libc.capset(header, struct.pack("=6I", *halves)))


def main() -> None:
    """Confine this process, and become the program."""
    program = sys.argv[2:] if sys.argv[1] == JUDGE else sys.argv[4:]
    if sys.argv[1] == JUDGE:
        take_memory()
    elif sys.platform == "linux":
        isolate()
        confine(*([folder for folder in folders.split(os.pathsep) if folder] for folders in sys.argv[1:4]))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
