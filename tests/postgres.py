"""A real PostgreSQL for tests and benchmarks, in a separate folder, that listens on a socket there alone."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PLACES = Path("/usr/lib/postgresql")  # where Debian's package has them, not on the path


def find_programs() -> Path | None:
    """Returns the folder of initdb and pg_ctl. None if there is no PostgreSQL here."""
    on_path = shutil.which("pg_ctl")
    programs = [Path(on_path).resolve().parent] if on_path else []
    programs += sorted(PLACES.glob("*/bin"), reverse=True)
    return next((program for program in programs if (program / "initdb").exists()), None)


class Server:
    """One that was started. `url` is of its database `postgres`, or of another."""

    def __init__(self, folder: Path, programs: Path):
        self.folder, self.programs = folder, programs
        # It refuses to run as root.
        self.user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(folder, "postgres")
        self._call("initdb", "--auth=trust", "--username=perfci", "--encoding=UTF8", "--no-sync", "--locale=C.UTF-8")
        self.start()

    def url(self, database="postgres"):
        return f"postgresql://perfci@/{database}?host={self.folder}"

    def start(self):
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        self._call("pg_ctl", "start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self):
        """At once, as if the machine went away."""
        self._call("pg_ctl", "stop", "-m", "immediate", "-w")

    def _call(self, name, *arguments):
        command = [self.programs / name, *arguments, "-D", self.folder / "data"]
        done = subprocess.run(
            command, **self.user, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name} ended with {done.returncode}"


def start() -> Server | None:
    """Returns a new server. None if there is no PostgreSQL here."""
    programs = find_programs()
    # The path of a socket may have a hundred characters, and pytest's folders are closed to other users.
    return Server(Path(tempfile.mkdtemp(prefix="perfci-pg-", dir="/tmp")), programs) if programs else None


def end(server: Server) -> None:
    server.stop()
    shutil.rmtree(server.folder)
