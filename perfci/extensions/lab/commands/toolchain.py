"""`perfci check --toolchain`: the same check in another toolchain, with the installed one as its base.

Its packages lie alone in a folder of the cache, the rest is as installed.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from typer.main import get_current_context

from perfci import git
from perfci.cli.parsing import list_typed
from perfci.core import PACKAGE
from perfci.core.environment import COMPILERS, installed_versions
from perfci.core.errors import UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say, spoken

_READY = "perfci-ready"  # a file in an environment that is complete

_INSTALLED = frozenset({"site-packages", "dist-packages"})
# What the running interpreter finds comes after the other toolchain's packages. addsitedir reads .pth files there, by
# which packages are installed as editable.
_REST = "import site; site.addsitedir({!r})\n"


def prepare(requirements: Sequence[str], settings: Settings, tell: Callable[[Path], None]) -> str:
    """Returns an interpreter with these packages in place of the installed ones. Makes it once for each combination.

    tell: called with the folder before anything is installed. Raises UsageError for a requirement that is neither of a
    compiler nor of an installed package, not pinned, or cannot be installed.
    """
    wanted = sorted(requirement.replace(" ", "") for requirement in requirements)
    for requirement in wanted:
        name, _, version = requirement.partition("==")
        known = name in COMPILERS or installed_versions([name])
        if not known or not re.fullmatch(r"\w[\w.+!-]*", version, re.ASCII):
            raise UsageError(
                "toolchain_malformed", asked=requirement, known=", ".join(f"{name}==X" for name in COMPILERS)
            )
    folders = [os.path.realpath(entry) for entry in sys.path if Path(entry).name in _INSTALLED]
    parts = (*wanted, sys.executable, sys.version, *folders)
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    folder = settings.caches / "toolchains" / f"{'-'.join(wanted).replace('==', '-')}-{key}"
    python = folder / "bin" / "python"
    if not (folder / _READY).is_file():
        tell(folder)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        _install(wanted, site)
        (site / "perfci-rest.pth").write_text("".join(map(_REST.format, folders)))
        (folder / _READY).touch()
    return str(python)


def _install(wanted: Sequence[str], site: Path) -> None:
    """Install packages into a folder: torch with what it depends on, others with what they pin. Raises UsageError."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    uv = [shutil.which("uv") or "", "pip", "install", "--quiet", "--python", sys.executable]
    command = pip if importlib.util.find_spec("pip") else uv
    if not command[0]:
        raise UsageError("toolchain_no_installer", asked=" ".join(wanted))
    # Packages depend on nothing else that is not there: they take the place of installed ones.
    alone = [] if any(requirement.startswith("torch==") for requirement in wanted) else ["--no-deps"]
    waiting, asked = list(wanted), list(wanted)
    while waiting:
        done = subprocess.run(
            [*command, *alone, "--target", str(site), *waiting],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            why = next((line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "?")
            raise UsageError("toolchain_not_installed", asked=" ".join(wanted), why=why.rstrip("."))
        waiting = [pin for pin in _list_pins(site) if pin not in asked] if alone else []
        asked += waiting


def _list_pins(site: Path) -> list[str]:
    """What packages in a folder depend on in one version, and without a condition: parts of theirs."""
    needed = [line for one in importlib.metadata.distributions(path=[str(site)]) for line in one.requires or ()]
    plain = (line.replace(" ", "").replace("(", "").replace(")", "") for line in needed if ";" not in line)
    return sorted({line for line in plain if re.fullmatch(r"[\w.-]+==[\w.+!-]+", line, re.ASCII)})


def check_in_toolchain(requirements: list[str], where: Settings) -> NoReturn:
    """Become the same check, run by an interpreter with the other toolchain, with the installed one as its base."""
    here = git.read(where.root)
    if isinstance(here, git.Revision) and here.dirty:
        raise UsageError("toolchain_uncommitted")

    def tell(folder: Path) -> None:
        print(say("Installing {what} in {folder} …", what=" ".join(requirements), folder=str(folder)), file=sys.stderr)

    command = str(get_current_context().info_name)  # check or static
    python = prepare(requirements, where, tell)
    words = [command, *list_typed("toolchain"), "--against", "HEAD", "--base-python", sys.executable]
    # -P: no package of the current folder, unless perfci itself is run from there.
    safe = [] if PACKAGE.parent == Path.cwd() else ["-P"]
    os.execv(python, [python, *safe, "-m", "perfci", *words, "--lang", spoken()])
