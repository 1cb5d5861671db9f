import os
import subprocess
import sys

import pytest

from perfci.cli import app as commands
from perfci.cli.exits import Exit, exit_code
from perfci.cli.main import run
from perfci.core.errors import UsageError
from perfci.core.model import Gate
from perfci.core.stopping import Stopped

HEAVY = ("torch", "triton", "scipy", "pandas", "matplotlib", "jinja2")


@pytest.mark.parametrize(
    ("gate", "strict", "code"),
    [
        (Gate.OK, False, 0),
        (Gate.OK, True, 0),
        (Gate.WARNS, False, 3),
        (Gate.WARNS, True, 2),
        (Gate.FAILS, False, 2),
        (Gate.FAILS, True, 2),
    ],
)
def test_the_exit_code_follows_the_gate(gate, strict, code):
    assert exit_code(gate, strict=strict) == code


def raising(monkeypatch, error):
    def app(*args, **kwargs):
        raise error

    monkeypatch.setattr(commands, "app", app)


def test_what_perfci_cannot_do_is_one_sentence_and_exit_1(monkeypatch, capsys):
    raising(monkeypatch, UsageError("no_case_fits", pattern="rows=9", ops="relu"))

    assert run(["check"]) == Exit.PERFCI_FAILED
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err == ("perfci: No case of relu fits --case 'rows=9'; `perfci list` shows the case ids.\n")


def nowhere(folder):
    """No project."""


def no_folder(folder):
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")


def empty_folder(folder):
    (folder / "kernels").mkdir()


def misnamed_op(folder):
    (folder / "kernels").mkdir()
    (folder / "kernels" / "softmax.py").write_text("def softmax(x): ...\n")


@pytest.mark.parametrize("laid", [nowhere, no_folder, empty_folder, misnamed_op])
@pytest.mark.parametrize("arguments", [["check"], ["check", "x"], ["static"], ["list"], ["ci", "plan"]])
def test_where_there_is_no_op_a_command_fails_and_says_how_to_begin(laid, arguments, tmp_path, capsys):
    laid(tmp_path)

    assert run([*arguments, "--project", str(tmp_path)]) == Exit.PERFCI_FAILED

    said = " ".join(capsys.readouterr().err.split())
    assert "perfci init" in said and "perfci new" in said


@pytest.mark.parametrize(("name", "code"), [("SIGHUP", 129), ("SIGINT", 130), ("SIGTERM", 143)])
def test_a_stopped_run_says_so_and_has_the_signals_exit_code(monkeypatch, capsys, name, code):
    raising(monkeypatch, Stopped(name))

    assert run(["check"]) == code
    assert f"Stopped by {name}" in capsys.readouterr().err


def test_a_fault_of_perfci_itself_is_not_swallowed(monkeypatch):
    raising(monkeypatch, ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        run(["check"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--device", "tpu"],
        ["check", "--budget", "0"],
        ["check", "--budget", "nan"],
        ["check", "--budget", "inf"],
        ["check", "--budget", "much"],
        ["check", "--seed", "-1"],
        ["check", "--seed", "99999999999"],
        ["check", "--case"],
        ["compare", "a", "b"],
        ["list", "--format", "yaml"],
    ],
    ids=" ".join,
)
def test_a_usage_error_exits_1_with_its_words_on_stderr(capsys, arguments):
    assert run(arguments) == Exit.PERFCI_FAILED

    seen = capsys.readouterr()
    assert seen.out == ""
    assert "Error" in seen.err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["-h"], ["check", "-h"]])
def test_asking_for_help_or_the_version_exits_0(capsys, arguments):
    assert run(arguments) == 0
    assert capsys.readouterr().err == ""


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom perfci.cli.main import run\nassert run(['check', '--help']) == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_early_gets_no_trace_and_never_the_code_of_a_passed_gate():
    """As with `perfci ... | head -0`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "perfci", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    _, err = process.communicate(timeout=60)

    assert (err, process.returncode) == ("", Exit.PERFCI_FAILED)
