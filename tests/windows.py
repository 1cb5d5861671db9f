"""Makes this process look like one on Windows, as far as the libraries that perfci stands on bear it.

`python windows.py CODE` takes away what Windows lacks, and then runs the code.
"""

import importlib
import os
import signal
import sys

MISSING_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")

MISSING_NAMES = {
    os: (
        "chown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getuid", "killpg", "lchown", "mkfifo",
        "nice", "pread", "pwrite", "setsid", "setuid", "sysconf", "uname", "wait4", "waitpid",
    ),
    signal: ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "alarm", "setitimer"),
}  # fmt: skip

BEFORE = (
    "asyncio", "importlib.metadata", "multiprocessing.connection", "subprocess", "tempfile", "jinja2",
    "matplotlib.backends.backend_agg", "msgspec", "numpy", "pandas", "PIL.Image", "rich.console", "rich.status",
    "scipy.stats", "ssl", "typer", "yaml",
)  # fmt: skip
"""They ask which system they are on when they are imported, and would miss Windows' own libraries."""


def pretend() -> None:
    """Take away what Windows lacks."""
    for name in BEFORE:
        importlib.import_module(name)
    for name in MISSING_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in MISSING_NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"


if __name__ == "__main__":
    pretend()
    exec(sys.argv[1])
