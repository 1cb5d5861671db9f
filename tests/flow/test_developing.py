"""What a person who works on a kernel uses: what failed last, few words, and a check after every change."""

import json
import queue
import re
import signal
import subprocess
import threading

import pytest

from perfci.cli.demo import write_project
from tests.program import COMMAND

BREAK = ("x.sum(axis=1)", "x[:, :-1].sum(axis=1)")


def list_ops(project):
    return [op.op for op in project.run_record().ops]


# --- --lf -------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_failed_in_the_last_run_is_checked_alone_until_nothing_fails(project):
    project.edit("row_sum", "triton", *BREAK)
    assert project.check().code == 2
    run = project.run_record().id

    again = project.check("--lf")

    assert (again.code, list_ops(project)) == (2, ["row_sum"])
    assert f"Failed in run {run}: row_sum." in again.err and json.loads(again.out)["ops"] == 1
    project.edit("row_sum", "triton", *reversed(BREAK))
    assert project.check("--lf").code == 0
    assert list_ops(project) == ["row_sum"]

    whole = project.check("--lf")  # as pytest does

    assert "Nothing failed in run " in whole.err and list_ops(project) == ["relu", "row_sum", "scale"]


@pytest.mark.nightly
def test_without_a_run_and_among_ops_that_did_not_fail_all_that_were_named_are_checked(project):
    project.edit("row_sum", "triton", *BREAK)

    assert "There is no run in " in project.check("--lf", "row_sum", "relu").err
    assert list_ops(project) == ["relu", "row_sum"]
    assert project.check("--lf", "--op", "r*").code == 2
    assert list_ops(project) == ["row_sum"]
    assert "Nothing failed" in project.check("--lf", "relu").err
    assert list_ops(project) == ["relu"]


# --- -q ---------------------------------------------------------------------------------------------------------------


def test_quietly_there_is_a_row_with_its_reason_for_what_failed_and_the_verdict(project):
    project.edit("row_sum", "triton", *BREAK)

    answer = project.perfci("check", "-q", "--device", "fake", "--seed", "7", "--budget", "0.1")

    heading, row, reason, verdict = answer.out.splitlines()
    assert answer.code == 2 and answer.err == ""
    assert heading.split()[:2] == ["verdict", "op"] and re.match(r"WRONG +row_sum accuracy", row)
    assert reason.startswith(" " * 14) and verdict.endswith("-> fails (exit 2)")
    assert (project.root / "reports" / "report.md").is_file()


def test_quietly_there_is_one_line_if_nothing_failed(project):
    answer = project.perfci("check", "--quiet", "relu", "--device", "fake", "--seed", "7", "--budget", "0.1")

    assert (answer.code, answer.err, len(answer.out.splitlines())) == (0, "", 1)
    assert answer.out.startswith("1 op, 3 verdicts") and answer.out.endswith("-> ok (exit 0)\n")


# --- --watch ----------------------------------------------------------------------------------------------------------


class Watching:
    """`perfci check OP --watch` as a process, with lines that are read as they come."""

    def __init__(self, root, *arguments):
        words = ["check", *arguments, "--watch", "--device", "fake", "--seed", "7", "--budget", "0.1"]
        self.process = subprocess.Popen(
            [*COMMAND, *words, "--project", str(root)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines = queue.Queue()
        self.reader = threading.Thread(target=lambda: [*map(self._lines.put, self.process.stdout)])
        self.reader.start()

    def read_until(self, words):
        """Everything until a line with these words."""
        read = []
        while not read or words not in read[-1]:
            read.append(self._lines.get(timeout=120))
        return "".join(read)

    def is_silent(self, seconds):
        try:
            return self._lines.get(timeout=seconds) is None
        except queue.Empty:
            return True


@pytest.fixture
def watching(tmp_path):
    begun = []

    def watch(*arguments):
        write_project(tmp_path)
        begun.append(Watching(tmp_path, *arguments))
        return begun[-1]

    yield watch
    for process in begun:
        process.process.kill()
        process.process.wait()
        process.reader.join()
        process.process.stdout.close()


@pytest.mark.slow
def test_an_op_is_checked_again_after_each_change_until_ctrl_c(watching, tmp_path):
    process = watching("--op", "row_sum", "-q")
    kernel, shared = (tmp_path / "kernels" / name for name in ("row_sum/row_sum_triton.py", "_table.txt"))
    sound = kernel.read_text()

    assert "-> ok (exit 0)" in process.read_until("Waiting for a change of row_sum; Ctrl-C ends.")
    kernel.write_text(sound.replace(*BREAK))
    assert "WRONG" in process.read_until("Waiting")
    kernel.write_text("def")  # a syntax error ends nothing
    assert "ERROR" in process.read_until("Waiting")
    kernel.unlink()
    assert "row_sum_triton.py" in process.read_until("Waiting")
    kernel.write_text(sound)
    assert "-> ok (exit 0)" in process.read_until("Waiting")
    shared.write_text("1 2 3")  # what ops share counts too
    assert "-> ok (exit 0)" in process.read_until("Waiting")

    other = tmp_path / "kernels" / "relu" / "relu_triton.py"
    other.write_text(other.read_text() + "\n")  # of another op
    kernel.write_text(kernel.read_text())  # the same again
    assert process.is_silent(1.5)

    process.process.send_signal(signal.SIGINT)
    assert "Stopped by SIGINT." in process.read_until("Stopped")
    assert process.process.wait(timeout=60) == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "perfci check needs an op"),
        (["relu", "scale"], "perfci check takes one op at a time"),
        (["r*"], "several ops"),
        (["relu", "--lf"], "--watch does not go with --lf"),
        (["relu", "--no-judge"], "does not go with"),
    ],
    ids=str,
)
def test_one_op_is_watched(words, said, project):
    answer = project.perfci("check", *words, "--watch")

    assert (answer.code, answer.out) == (1, "") and said in answer.err
