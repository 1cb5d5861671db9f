"""Kernels that cheat, written with perfci's source open: none gets a better verdict than an honest one."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.worker.confine import landlock_version
from tests.flow.cheats import merge_request, naive
from tests.flow.cheats.merge_request import BEST, Setting
from tests.flow.cheats.preludes import CALL, NUMPY, NUMPY_BASELINE, SUITE
from tests.flow.cheats.tricks import ERROR, PASS, SUSPECT, TRICKS, WRONG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock"),
]

COLD = ("patch_claims_of_the_base", "judge_variables_read")
"""Cheats with what a process gets at its start: their workers are not forked."""

SETTING = Setting(NUMPY, NUMPY_BASELINE, SUITE, CALL)


@dataclass(frozen=True)
class Judged:
    """What perfci and a plain harness found of all ops."""

    code: int
    verdicts: dict[str, set[str]]
    kinds: dict[str, set[str]]  # of the first reasons of verdicts that are no PASS
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
    kinds: dict[str, set[str]] = {op: set() for op in ops}
    for row in json.load(printed)["verdicts"]:
        verdicts[row["op"]].add(row["verdict"])
        kinds[row["op"]] |= {row["reason"]["kind"]} if row["reason"] else set()
    logs = {op: (root / "reports" / "logs" / f"{op}.log").read_text() for op in ops}
    return Judged(code, verdicts, kinds, logs, {})


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Judged:
    """One merge request in which every op but one begins to cheat."""
    folder = tmp_path_factory.mktemp("cheats")
    root, base = folder / "project", folder / "base"
    merge_request.begin(root, {op: trick.source for op, trick in TRICKS.items()}, SETTING)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in merge_request.variables(folder).items():
            patch.setenv(name, value)
        patch.delenv("PERFCI_WRITABLE", raising=False)
        first = check(root, [op for op in (BEST, *TRICKS) if op not in COLD])
        patch.setattr("perfci.worker.parent.subprocess", subprocess)
        second = check(root, COLD)
    command = [sys.executable, naive.__file__, "fake", str(root / "kernels"), str(base), BEST, *TRICKS]
    plain = subprocess.run(command, env=merge_request.variables(folder), capture_output=True, text=True, check=True)
    found = dict(line.split(" ", 1) for line in plain.stdout.splitlines())
    return Judged(
        first.code,
        first.verdicts | second.verdicts,
        first.kinds | second.kinds,
        first.logs | second.logs,
        {op: json.loads(text) for op, text in found.items()},
    )


def test_the_honest_kernel_passes_and_the_others_fail_the_gate(judged):
    assert judged.verdicts[BEST] == {PASS, "UNCHANGED"}
    assert judged.naive[BEST] == {"right": True, "ratio": 1.0, "alone": True}
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
