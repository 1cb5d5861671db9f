"""`perfci check --toolchain`: the same check in another toolchain, with the installed one as its base."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from typer.main import get_current_context

from perfci import git
from perfci.cli.parsing import list_typed
from perfci.core import PACKAGE
from perfci.core.errors import UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say, spoken
from perfci.extensions.lab.toolchain import prepare


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
