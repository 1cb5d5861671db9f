"""Runs a program that writes to few folders, sees no other process and leaves none behind, as far as possible here.

`python -I -S confine.py FOLDERS PROGRAM ARGUMENT...`, with FOLDERS separated as in PATH. It needs the standard library
alone, and ends before Python looks for any file of the project. Whatever the program starts is confined as it is.
"""

import contextlib
import ctypes
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterator, Sequence

# Of linux/landlock.h.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # make and remove what there is in folders
SINCE = {2: 1 << 13, 3: TRUNCATE}  # version -> rights that it can deny: moving between folders, truncating
SIGNAL_SINCE, SCOPE_SIGNAL = 6, 1 << 1

# Of linux/seccomp.h and linux/audit.h: architecture, and the numbers of seccomp, setpgid and setsid.
NUMBERS = {"x86_64": (0xC000003E, 317, 109, 112), "aarch64": (0xC00000B7, 277, 154, 157)}
ALLOW, DENY = 0x7FFF0000, 0x00050000
SPEC_ALLOW = 1 << 2  # no slower for being filtered

MEMORY = frozenset({"mem", "kmem", "port", "nvram", "kmsg"})  # devices that lead past all this

CAPABILITIES = (16, 17, 19, 21, 22, 27, 38, 39)
"""Of root, which lead past it too: modules, raw I/O, ptrace, administration, reboot, device nodes, perfmon, bpf."""

CAPABILITY_VERSION = 0x20080522  # of linux/capability.h

# Of linux/sched.h, linux/mount.h and linux/prctl.h.
NEW_MOUNTS, NEW_USER, NEW_PIDS = 1 << 17, 1 << 28, 1 << 29
PRIVATE, PLAIN = 1 << 18 | 1 << 14, 0b1110  # all mounts from here on. No set-user-id, devices or programs
DIE_WITH_PARENT = 1


def landlock_version() -> int:
    """Returns the version of Landlock that this kernel offers. 0 if it has none."""
    return max(_call(CREATE_RULESET, None, 0, 1), 0) if sys.platform == "linux" else 0


def can_fence() -> bool:
    """Returns whether processes can be kept in the group in which they start."""
    numbers = NUMBERS.get(os.uname().machine) if sys.platform == "linux" else None
    return numbers is not None and _call(numbers[1], 2, 0, struct.pack("=I", DENY)) == 0


def restrict_writing(folders: Sequence[str]) -> None:
    """Deny this process to write but to these folders and devices, and to read the memory of processes outside.

    From version 6 on it cannot send them signals either. Raises OSError.
    """
    version = landlock_version()
    if not version:
        return
    handled = WRITE_FILE | CHANGE_FOLDER | sum(right for since, right in SINCE.items() if version >= since)
    scopes = SCOPE_SIGNAL if version >= SIGNAL_SINCE else 0
    attributes = struct.pack("=QQQ", handled, 0, scopes)
    rules = _checked(_call(CREATE_RULESET, attributes, len(attributes), 0))
    allowed = dict.fromkeys(_devices(), handled & (WRITE_FILE | TRUNCATE)) | dict.fromkeys(folders, handled)
    # CUDA does not start if it cannot name its threads there. Root could write to more of /proc than its own.
    threads = "/proc" if os.getuid() else "/proc/self"
    for path, rights in (allowed | {threads: handled & (WRITE_FILE | TRUNCATE)}).items():
        try:
            handle = os.open(path, os.O_PATH)
        except FileNotFoundError:  # a device that has just gone
            continue
        _checked(_call(ADD_RULE, rules, 1, struct.pack("=Qi", rights, handle), 0))
        if path == threads:  # stays open with the program: a folder of /proc is forgotten if no one has it
            os.set_inheritable(handle, True)
        else:
            os.close(handle)
    _checked(_call(RESTRICT_SELF, rules, 0))
    os.close(rules)


def stay_in_group() -> None:
    """Have setsid and setpgid do nothing, so that killing a group kills whatever one of its processes started."""
    if not can_fence():
        return
    architecture, seccomp, *fenced = NUMBERS[os.uname().machine]
    program = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 1, 0, architecture),
        (0x06, 0, 0, DENY | 38),  # another one, such as 32 bits: no such call
        (0x20, 0, 0, 0),  # load the number
        (0x35, 0, 1, 0x40000000),  # x32
        (0x06, 0, 0, DENY | 38),
        (0x15, 2, 0, fenced[0]),
        (0x15, 1, 0, fenced[1]),
        (0x06, 0, 0, ALLOW),
        (0x06, 0, 0, DENY),  # with the error 0, which is none
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
        _leave_processes()
        if inner := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        else:
            _mount_proc()
            status = 0
    os._exit(status)


def isolate() -> None:
    """Go on in a process that sees no other but those that it starts. This one waits for it, and ends as it does.

    Between them is the first process inside. When it ends, the kernel kills whatever is left there.
    """
    if not can_isolate():
        return
    reading, writing = os.pipe()
    _leave_processes()
    if os.fork():
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
    _mount_proc()
    if not (program := os.fork()):
        os.close(reading)
        os.close(writing)
        return
    close_all_but(writing)
    ended, status = 0, 0
    while ended != program:
        ended, status = os.wait()
    os.write(writing, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _leave_processes() -> None:
    """Have this process's next child be the first of a namespace of processes. Raises OSError."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_PIDS):  # which root may do
        _checked(libc.unshare(NEW_PIDS | NEW_USER))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            handle = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(handle, text.encode())
            os.close(handle)


def _mount_proc() -> None:
    """Show this process and those below in /proc the separate processes namespace. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(NEW_MOUNTS))
    _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE), None))
    _checked(libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(PLAIN), None))


def close_all_but(*kept: int) -> None:
    """Close what another process shall be the only one to have open, but for standard input, output and errors."""
    for number in [int(entry.name) for entry in os.scandir("/proc/self/fd")]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _devices(folder: str = "/dev") -> Iterator[str]:
    """Yields the machine's character devices, which accelerators are."""
    with contextlib.suppress(OSError):  # a folder of others
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _devices(entry.path) if entry.name not in {"shm", "mqueue"} else ()
            elif entry.name not in MEMORY and stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
                yield entry.path


def _call(number: int, *arguments: bytes | int | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [argument if isinstance(argument, bytes) else ctypes.c_long(argument or 0) for argument in arguments]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def confine(folders: Sequence[str]) -> None:
    """Confine this process and whatever it starts."""
    libc = ctypes.CDLL(None)
    for capability in CAPABILITIES:
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, which has an effect for root alone
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: what follows needs no privileges then
    restrict_writing(folders)
    stay_in_group()
    _drop_capabilities()
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else the process of a new user could not look at itself


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
    folders, *program = sys.argv[1:]
    if sys.platform == "linux":
        isolate()
        confine([folder for folder in folders.split(os.pathsep) if folder])
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
