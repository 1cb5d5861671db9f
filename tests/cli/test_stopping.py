"""Signals end perfci with one sentence and the shell's exit code, whatever moment they come at: real processes."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from perfci.cli.demo import write_project
from perfci.cli.main import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

PRELUDE = """
import os, signal, sys

class AtImport:
    "Sends a signal when a module is first looked for."

    def __init__(self, name, number):
        self.name, self.number = name, number

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), self.number)
"""

MAIN = "\nfrom perfci.__main__ import main\nmain()\n"


def start(code, *arguments, **more):
    """perfci in a separate process, in which something happens first."""
    program = [sys.executable, "-P", "-c", PRELUDE + code + MAIN, *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False, **more)


def is_told(err, name):
    """Whether standard error has the sentence about a signal, and nothing that a person cannot read."""
    return f"\nperfci: Stopped by {name}." in err and "Traceback" not in err and "Error" not in err


CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("perfci.cli", "SIGINT"), ("typer", "SIGHUP"), ("perfci.cli.check", "SIGTERM"),
        *(
            pytest.param(module, name, marks=pytest.mark.nightly)
            for module in ("perfci.core.model", "perfci.core.wording", "yaml", "perfci.cli.app")
            for name in CODES
        ),
    ],
)  # fmt: skip
def test_a_signal_during_an_import_is_one_sentence(module, name, tmp_path):
    done = start(f"sys.meta_path.insert(0, AtImport({module!r}, signal.{name}))", "check", "--project", str(tmp_path))

    assert (done.returncode, done.stdout) == (CODES[name], "")
    assert is_told(done.stderr, name), done.stderr


def test_a_signal_that_an_import_swallows_is_not_lost(tmp_path):
    swallowing = """
from perfci.core import stopping
stopping.listen()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except BaseException:
    pass
"""
    done = start(swallowing, "check", "--project", str(tmp_path))

    assert done.returncode == 143 and is_told(done.stderr, "SIGTERM"), done.stderr


@pytest.mark.parametrize("second", [pytest.param("SIGINT", marks=pytest.mark.nightly), "SIGTERM"])
def test_a_second_signal_while_the_first_is_told_changes_nothing(second, tmp_path):
    twice = f"""
import io

class Telling(io.TextIOWrapper):
    def write(self, text):
        os.kill(os.getpid(), signal.{second})
        return super().write(text)

sys.stderr = Telling(sys.stderr.detach(), line_buffering=True)
sys.meta_path.insert(0, AtImport("perfci.cli.check", signal.SIGINT))
"""
    done = start(twice, "check", "--project", str(tmp_path))

    assert done.returncode == 130 and is_told(done.stderr, "SIGINT"), done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["chek"]])
def test_a_signal_behind_the_end_changes_neither_the_exit_code_nor_the_words(arguments):
    code = run(arguments)
    late = "import atexit\natexit.register(os.kill, os.getpid(), signal.SIGTERM)"

    done = start(late, *arguments)

    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gaps_ms"),
    [
        ("SIGINT", (0,)),
        ("SIGTERM", (1, 300, 300)),
        *(pytest.param(*row, marks=pytest.mark.nightly) for row in (("SIGTERM", (2, 2, 2)), ("SIGINT", (20, 100)))),
    ],
    ids=str,
)
def test_a_check_that_is_stopped_by_many_signals_tells_one_and_keeps_what_it_measured(name, gaps_ms, tmp_path):
    write_project(tmp_path)
    command = [sys.executable, "-P", "-m", "perfci", "check", "--device", "fake", "--project", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "measuring" in line:
            break

    process.send_signal(getattr(signal, name))
    for gap, other in zip(gaps_ms, ["SIGTERM", "SIGINT", "SIGTERM"], strict=False):
        time.sleep(gap / 1000)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(getattr(signal, other))
    _, err = process.communicate(timeout=60)

    # Of two that arrive together Python hears the one with the smaller number first.
    told = {130: "SIGINT", 143: "SIGTERM"}[process.returncode]
    assert is_told("\n" + err, told) and err.count("Stopped by") == 1, err
    assert (tmp_path / "reports" / "run.json").is_file()


def test_the_program_that_pip_installs_hears_signals_before_it_imports_the_commands():
    code = "import perfci.__main__, sys; print([name for name in sys.modules if name.startswith('perfci')])"

    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "['perfci.core', 'perfci', 'perfci.core.stopping', 'perfci.__main__']"


# --- memory and disks -------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


def test_a_full_disk_behind_standard_output_ends_in_words(project):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-P", "-m", "perfci", "list", "--device", "fake", "--project", str(project)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    said = [line for line in done.stderr.splitlines() if line.startswith("perfci: ")]
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert len(said) == 1 and "(No space left on device: standard output)" in said[0]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("Unable to allocate 3.7 GiB"), "The memory was used up"),
        (OSError(28, "No space left on device"), "(No space left on device: /full)"),
        *(
            pytest.param(error, words, marks=pytest.mark.nightly)
            for error, words in (
                (MemoryError(), "The memory was used up"),
                (OSError(122, "Disk quota exceeded"), "(Disk quota exceeded: /full)"),
                (OSError(28, "No space left on device", "/there/it"), "(No space left on device: /there/it)"),
            )
        ),
    ],
)
def test_what_is_used_up_late_in_a_check_ends_in_words_and_the_run_is_kept(error, words, project, monkeypatch, capsys):
    used = shutil.disk_usage

    def fail(*_, **__):
        monkeypatch.setattr("tempfile.gettempdir", lambda: "/full")
        monkeypatch.setattr("shutil.disk_usage", lambda at: SimpleNamespace(free=9) if at == "/full" else used("."))
        raise error

    monkeypatch.setattr("perfci.report.write", fail)

    assert run(["check", "relu", "--device", "fake", "--budget", "0.05", "--project", str(project)]) == 1

    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perfci: ")]
    assert len(told) == 1 and words in told[0]
    assert (project / "reports" / "run.json").is_file()
