"""Entry point: run a command, turn whatever it raised into one sentence and an exit code."""

import contextlib
import contextvars
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from perfci.cli.exits import STOPPED, Exit
from perfci.cli.workflow import guard_output
from perfci.core.errors import PerfciError, Stopped
from perfci.core.model import Reason
from perfci.ops.spec import Accuracy, Chain, Performance


def main(arguments: Sequence[str] | None = None) -> None:
    """Run perfci and exit."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command, and return its exit code. The language that it speaks ends with it."""
    with guard_output(os.environ):
        return contextvars.copy_context().run(_run, arguments)


def _run(arguments: list[str]) -> int:
    from perfci.cli.app import app
    from perfci.cli.language import choose_by_environment

    _stop_on_signals()
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        choose_by_environment()
        result = app(arguments, prog_name="perfci", standalone_mode=False)
    except PerfciError as error:
        _print_error(error.reason)
        return Exit.PERFCI_FAILED
    except Stopped as stop:
        with contextlib.suppress(OSError):  # a terminal that hung up takes no words
            print(file=sys.stderr)
            _print_error(Reason("stopped_by_signal", {"signal": stop.signal_name}))
        return STOPPED[stop.signal_name]
    except BrokenPipeError:
        # Whoever read the output has gone, as `head` does. Not 0: the gate may have failed.
        sys.stderr.close()
        return Exit.PERFCI_FAILED
    except OSError as error:
        why = error.strerror or str(error)
        _print_error(Reason("file_unusable", {"why": f"{why}: {error.filename}" if error.filename else why}))
        return Exit.PERFCI_FAILED
    except Exception as error:
        # typer brings a click of its own, or uses the installed one: known by what it can do. Its code for a usage
        # error is 2, which would read as a failed gate.
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        if hasattr(error, "message"):
            error.message = str(error.message).removeprefix("Value error, ")  # pydantic's, in the middle of a sentence
        error.show()
        return Exit.PERFCI_FAILED
    return result if isinstance(result, int) else Exit.OK


def run_file(suite: Accuracy | Performance | Chain) -> None:
    """Check the suite or chain whose file is being run, as `perfci check` with --suite or --chain would, and exit."""
    path = Path(sys.argv[0]).resolve()
    if isinstance(suite, Chain):
        main(["check", "--chain", path.stem.removesuffix("_chain"), "--project", str(path.parent), *sys.argv[1:]])
        return
    name = "accuracy" if isinstance(suite, Accuracy) else "performance"
    op = path.stem.removesuffix(f"_{name}")
    main(["check", op, "--suite", name, "--project", str(path.parent), *sys.argv[1:]])


def _stop_on_signals() -> None:
    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    # SIGINT too: typer would end the program itself on KeyboardInterrupt, without a word about what was saved.
    known = (getattr(signal, name, None) for name in STOPPED)  # Windows has no SIGHUP
    for number in known:
        # nohup has it ignored, and that stays.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def _print_error(reason: Reason) -> None:
    from perfci.core.wording import sentence
    from perfci.report.text import BLOCK_LIMIT, plain

    print(f"perfci: {plain(sentence(reason), BLOCK_LIMIT)}", file=sys.stderr)
