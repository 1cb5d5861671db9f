"""Kernels that cheat, written with perfci's source open: none gets a better verdict than an honest one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.worker.confine import landlock_version
from tests.flow.cheats import naive
from tests.flow.cheats.tricks import ERROR, PASS, PRELUDE, SUSPECT, TRICKS, WRONG
from tests.git_repositories import commit_all, git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock"),
]

HONEST = "def cheat(x):\n    spring()\n    return honest(x)\n"
BEST = "the_honest_kernel"  # an op beside the cheats

COLD = ("patch_claims_of_the_base", "judge_variables_read")
"""Cheats with what a process gets at its start: their workers are not forked."""

BASELINE = """
import numpy as np

FACTOR = 2


def OP(x):
    return np.multiply(x, x.dtype.type(FACTOR)) + x.dtype.type(1)


def make_inputs(rows, cols, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype("f4")}
"""

SUITE = """
import perfci
from OP_baseline import OP as reference, make_inputs
from OP_triton import OP as kernel

KIND = perfci.CLASS(
    kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(rows=ROWS, cols=[128]), MORE
)
"""


def write_op(root: Path, op: str, source: str) -> None:
    folder = root / "kernels" / op
    folder.mkdir(parents=True, exist_ok=True)
    kernel = f"{PRELUDE}{source}\n\n\ndef OP(x):\n    return cheat(x)\n"
    reference = BASELINE
    accuracy = {"KIND": "accuracy", "CLASS": "Accuracy", "ROWS": "[3, 64]", "MORE": 'values=("normal", "zeros")'}
    timed = "bytes_moved=lambda rows, cols: 8 * rows * cols"
    performance = {"KIND": "performance", "CLASS": "Performance", "ROWS": "[256]", "MORE": timed}
    files = {"triton": kernel, "baseline": reference}
    for suite in (accuracy, performance):
        text = SUITE
        for name, value in suite.items():
            text = text.replace(name, value)
        files[suite["KIND"]] = text
    for part, text in files.items():
        (folder / f"{op}_{part}.py").write_text(text.replace("OP", op))


@dataclass(frozen=True)
class Judged:
    """What perfci and a plain harness found of all ops."""

    code: int
    verdicts: dict[str, set[str]]
    logs: dict[str, str]
    naive: dict[str, dict | None]


def check(root: Path, ops: Sequence[str]) -> Judged:
    """What perfci found of some ops."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(printed):
        command = ["check", *ops, "--device", "fake", "--format", "json", "--seed", "7", "--budget", "0.05"]
        code = run([*command, "--deadline", "3600", "--project", str(root)])
    printed.seek(0)
    verdicts: dict[str, set[str]] = {op: set() for op in ops}
    for row in json.load(printed)["verdicts"]:
        verdicts[row["op"]].add(row["verdict"])
    return Judged(code, verdicts, {op: (root / "reports" / "logs" / f"{op}.log").read_text() for op in ops}, {})


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Judged:
    """One merge request in which every op but one begins to cheat."""
    folder = tmp_path_factory.mktemp("cheats")
    root, base = folder / "project", folder / "base"
    variables = {name: value for name, value in os.environ.items() if name != "PERFCI_WRITABLE"}
    variables |= {
        "GIT_CEILING_DIRECTORIES": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    variables |= {
        f"GIT_{role}_{part}": "tester@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    root.mkdir()
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    names = [BEST, *TRICKS]
    for op in names:
        write_op(root, op, HONEST.replace("    spring()\n", ""))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        git(root, "init", "-q", "-b", "main")
        commit_all(root)
        git(root, "checkout", "-q", "-b", "topic")
        shutil.copytree(root / "kernels", base)
        write_op(root, BEST, HONEST)
        for op, trick in TRICKS.items():
            write_op(root, op, trick.source)
        commit_all(root)
        patch.delenv("PERFCI_WRITABLE", raising=False)
        first = check(root, [op for op in names if op not in COLD])
        patch.setattr("perfci.worker.parent.subprocess", subprocess)
        second = check(root, COLD)
    command = [sys.executable, naive.__file__, str(root / "kernels"), str(base), BEST, *TRICKS]
    plain = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    found = dict(line.split(" ", 1) for line in plain.stdout.splitlines())
    return Judged(
        first.code,
        first.verdicts | second.verdicts,
        first.logs | second.logs,
        {op: json.loads(text) for op, text in found.items()},
    )


def test_the_honest_kernel_passes_and_the_others_fail_the_gate(judged):
    assert judged.verdicts[BEST] == {PASS, "UNCHANGED"}
    assert judged.naive[BEST] == {"right": True, "ratio": 1.0}
    assert judged.code == 2


@pytest.mark.parametrize("op", TRICKS, ids=[*TRICKS])
def test_a_cheat_gets_no_better_verdict_than_an_honest_kernel(op, judged):
    trick = TRICKS[op]

    assert "SPRUNG" in judged.logs[op], "it did not play its trick"
    worst = next(each for each in (WRONG, ERROR, SUSPECT, PASS) if each in judged.verdicts[op])
    assert worst == trick.verdict, judged.verdicts[op]
    assert "IMPROVED" not in judged.verdicts[op]
    if worst == PASS:
        assert judged.verdicts[op] <= judged.verdicts[BEST]


@pytest.mark.parametrize("op", [op for op, trick in TRICKS.items() if trick.naive])
def test_a_plain_harness_takes_the_same_cheat_for_right_and_fast(op, judged):
    found = judged.naive[op]

    assert found["right"] is True
    assert found["ratio"] < 0.9
