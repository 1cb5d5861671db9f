"""Entry point: run a command, turn whatever it raised into one sentence and an exit code."""

import contextvars
import errno
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from perfci.cli.exits import Exit
from perfci.cli.workflow import guard_output
from perfci.core import stopping
from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.core.stopping import Stopped
from perfci.core.wording import say
from perfci.ops.spec import Accuracy

FULL = 1 << 20
"""Bytes left on a disk that is full, as far as anything of perfci's goes"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run perfci and exit."""
    stopping.exit_with(lambda: run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command, and return its exit code. The language that it speaks ends with it."""
    with guard_output(os.environ):
        return contextvars.copy_context().run(_run, arguments)


def _run(arguments: list[str]) -> int:
    from perfci.cli.app import app
    from perfci.cli.language import choose_by_environment, choose_by_words
    from perfci.cli.usage import print_usage

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        stopping.listen()
        choose_by_environment()
        choose_by_words(arguments)
        result = app(arguments, prog_name="perfci", standalone_mode=False)
        sys.stdout.flush()  # here a full disk still ends in words
    except PerfciError as error:
        print_error(error.reason)
        return Exit.PERFCI_FAILED
    except Stopped as stop:
        return stopping.tell(stop.signal_name)
    except BrokenPipeError:
        # Anyone who read the output has gone, as `head` does. Not 0: the gate may have failed.
        sys.stderr.close()
        return Exit.PERFCI_FAILED
    except OSError as error:
        why = error.strerror or str(error)
        place = error.filename or (_find_full() if error.errno in {errno.ENOSPC, errno.EDQUOT} else None)
        print_error(Reason("file_unusable", {"why": f"{why}: {place}" if place else why}))
        return Exit.PERFCI_FAILED
    except MemoryError as error:
        error.__traceback__ = None  # which holds what took the memory
        print_error(Reason("memory_spent"))
        return Exit.PERFCI_FAILED
    except Exception as error:
        # typer brings a click with it, or uses the installed one: known by what it can do. Its code for a usage
        # error is 2, which would read as a failed gate.
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        if hasattr(error, "message"):
            error.message = str(error.message).removeprefix("Value error, ")  # pydantic's, in the middle of a sentence
        told = io.StringIO()
        error.show(told)
        print_usage(told.getvalue())
        return Exit.PERFCI_FAILED
    return result if isinstance(result, int) else Exit.OK


def run_file(suite: object) -> NoReturn:
    """Check the suite that is being run by its path, as `perfci check --suite` would, and exit.

    Of what an extension declares its `command` is run, which is how the file's name ends too.
    """
    path = Path(str(sys.modules["__main__"].__file__)).resolve()
    command = getattr(suite, "command", None)
    ending = command or ("accuracy" if isinstance(suite, Accuracy) else "performance")
    words = [command] if command else ["check", "--suite", ending]
    main([*words, path.stem.removesuffix(f"_{ending}"), "--project", str(path.parent), *sys.argv[1:]])


def _find_full() -> str:
    """Where a disk is full, if the error names no file. What is not a folder of these is what output goes to."""
    places = dict.fromkeys([str(Path.cwd()), tempfile.gettempdir()])
    full = [place for place in places if shutil.disk_usage(place).free < FULL]
    if not full:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's last words are a trace
    return ", ".join(full) or say("standard output")


def print_error(reason: Reason) -> None:
    """Print why perfci cannot go on."""
    from perfci.core.wording import sentence
    from perfci.report.text import BLOCK_LIMIT, plain

    print(f"perfci: {plain(sentence(reason), BLOCK_LIMIT)}", file=sys.stderr)
