"""The verdicts as JUnit XML, which GitLab and others show beside a merge request: every planned case is one test.

    REGRESSED WRONG TOO_SLOW      failure
    ERROR                         error; so is whatever is not there at all, such as a shard without a result
    INCONCLUSIVE DRIFTED STALE
    SUSPECT REMOVED               skipped, with the reason: JUnit knows no warning, and none of them is a pass
    all others                    passed; skipped where the gate warns all the same

Nothing is gathered: a wrong accuracy case is a test of its own, and so is a case that was not run, because its op
broke, which is skipped beside the op's own error. Names of tests are the same in every language, since GitLab tells by
them what is new in a merge request; of two tests of one name it reads the first, so each is given once.

The time of a performance case is what its launches took: the first call with its compilation, then every timed launch
of every arm. Accuracy checks are not timed one by one and carry none; what an op took stands at its suite.

GitLab refuses files of 30 MB and shows of a failing test the element's text alone, which therefore repeats the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from perfci.core import wording
from perfci.core.model import (
    Gate,
    Judgement,
    Judgements,
    OpRun,
    PerformanceCase,
    PlannedOp,
    Reason,
    Run,
    Suite,
    Verdict,
)
from perfci.core.wording import say
from perfci.report.steps import repeat
from perfci.report.text import BLOCK_LIMIT, block, plain, shorten
from perfci.store.files import write_atomically

FILE = "junit.xml"

LIMIT = 28_000_000
"""Most bytes of the file."""

NAME_LIMIT = 400
"""Characters of a test's name: two long case ids that differ in the middle stay apart by a number."""

WHOLE = "whole op"
"""Name of the test that an op is as a whole; no language changes it."""

MISSING = "perfci"
"""Suite of what is not there at all."""

Outcome = Literal["passed", "failure", "error", "skipped"]

_OUTCOMES: Mapping[Gate, Outcome] = {Gate.OK: "passed", Gate.WARNS: "skipped", Gate.FAILS: "failure"}
_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for."""

_ATTACHMENT = re.compile(r"\[\[(?=ATTACHMENT\|)")
"""With this GitLab links a file of the job; nobody but perfci is to say which."""


@dataclass(frozen=True)
class Testcase:
    """One testcase; texts are as they come."""

    op: str
    classname: str
    name: str
    outcome: Outcome
    verdict: Verdict | None
    """None for a case that was not run"""
    sentences: tuple[str, ...]
    command: str = ""
    time_s: float | None = None


@dataclass(frozen=True)
class _Detail:
    """How much is written, the most first."""

    characters: int
    """of a test's sentences"""
    commands: bool
    """of tests that passed, too"""
    passed: bool = True
    """tests that passed are written at all"""


_DETAILS = (_Detail(BLOCK_LIMIT, True), _Detail(600, False), _Detail(200, False), _Detail(200, False, passed=False))

MANY = 30_000
"""Tests above which those that passed carry no command: GitLab counts elements, and refuses 250,000."""


def write(run: Run, judgements: Judgements, folder: Path, missing: Iterable[Reason] = ()) -> Path:
    """Write `junit.xml` into the folder; its path. `missing`: what gave no result, each an error of its own.

    Raises StoredFileError where the file cannot be written.
    """
    found = tuple(cases(run, judgements, missing))
    details = _DETAILS[1:] if len(found) > MANY else _DETAILS
    data = b""
    for detail in details:
        data = _xml(run, found, detail)
        if len(data) <= LIMIT:
            break
    return write_atomically(folder / FILE, data)


# --- which tests there are --------------------------------------------------------------------------------------------


def cases(run: Run, judgements: Judgements, missing: Iterable[Reason] = ()) -> Iterator[Testcase]:
    """What is missing first, then the planned cases of each op, then what else was judged."""
    yield from _missing(missing)
    judged = {_key(row): row for row in judgements.rows}
    ran = {op.op: op for op in run.ops}
    told: list[Testcase] = []
    used: set[object] = set()
    for op in run.plan.ops:
        for suite, case in _planned(run, op):
            used.add((op.op, suite, case, None))
            told.append(_case(run, op, ran.get(op.op), suite, case, judged))
    others = [row for key, row in judged.items() if key not in used and (row.case is not None or not _fine(row))]
    told += [_judged(run, row, None) for row in others if row.case is not None]
    seen = {(test.op, test.verdict) for test in told}
    told += [_judged(run, row, None) for row in others if row.case is None and (row.op, row.verdict) not in seen]
    order = {name: index for index, name in enumerate(dict.fromkeys(test.op for test in told))}
    yield from _apart(sorted(told, key=lambda test: order[test.op]))


def _key(row: Judgement) -> tuple[str, Suite, str | None, str | None]:
    return row.op, row.suite, row.case, row.target


def _fine(row: Judgement) -> bool:
    return row.gate is Gate.OK


def _missing(missing: Iterable[Reason]) -> Iterator[Testcase]:
    for index, reason in enumerate(missing, start=1):
        facts = (wording.sentence(reason),)
        yield Testcase(MISSING, MISSING, f"missing result {index}", "error", Verdict.ERROR, facts)


def _planned(run: Run, op: PlannedOp) -> Iterator[tuple[Suite, str]]:
    """Cases that are to be judged one by one; compiled kernels have rows of their own throughout."""
    suites = run.plan.suites
    yield from ((Suite.ACCURACY, case) for case in op.accuracy if Suite.ACCURACY in suites)
    yield from ((Suite.PERFORMANCE, case) for case in op.performance if Suite.PERFORMANCE in suites)


def _case(
    run: Run,
    op: PlannedOp,
    found: OpRun | None,
    suite: Suite,
    case: str,
    judged: Mapping[tuple[str, Suite, str | None, str | None], Judgement],
) -> Testcase:
    """A planned case: judged itself, or told by its op's row."""
    row = judged.get((op.op, suite, case, None))
    if row:
        measured = next((each for each in found.performance if each.case == case), None) if found else None
        return _judged(run, row, measured if suite is Suite.PERFORMANCE else None)
    whole = judged.get((op.op, Suite.ACCURACY, None, None))
    if suite is Suite.ACCURACY:
        return _checked(run, op, found, case, whole)
    speed = judged.get((op.op, Suite.PERFORMANCE, None, None))
    why = next((one for one in (op.failure, found.failure if found else None, _unmeasured(found)) if one), None)
    teller = (speed.reasons[:1] if speed else ()) or ((why,) if why else ()) or (whole.reasons[:1] if whole else ())
    return _unrun(run, op.op, suite, case, tuple(map(wording.sentence, teller)))


def _unmeasured(found: OpRun | None) -> Reason | None:
    return found.unmeasured if found else None


def _checked(run: Run, op: PlannedOp, found: OpRun | None, case: str, whole: Judgement | None) -> Testcase:
    """An accuracy case that did not fail: right, unchecked on this machine, unchanged, or never reached."""
    checks = [check for check in found.accuracy if check.case == case] if found else []
    unchecked = [check.unchecked for check in checks if check.unchecked]
    told = tuple(map(wording.sentence, whole.reasons)) if whole else ()
    if checks and len(unchecked) == len(checks):
        return _unrun(run, op.op, Suite.ACCURACY, case, (wording.sentence(unchecked[0]),))
    if not checks and (whole is None or whole.verdict is not Verdict.UNCHANGED):
        verdict = whole.verdict if whole and whole.gate is Gate.WARNS else None
        return replace(_unrun(run, op.op, Suite.ACCURACY, case, told), verdict=verdict)
    verdict = Verdict.PASS if checks else Verdict.UNCHANGED
    sentences = () if checks else told
    return Testcase(
        op.op, _class(op.op, Suite.ACCURACY), case, "passed", verdict, sentences, _command(run, op.op, case)
    )


def _unrun(run: Run, op: str, suite: Suite, case: str, told: tuple[str, ...]) -> Testcase:
    sentences = told or (say("It was not run."),)
    return Testcase(op, _class(op, suite), case, "skipped", None, sentences, _command(run, op, case))


def _judged(run: Run, row: Judgement, measured: PerformanceCase | None) -> Testcase:
    outcome: Outcome = "error" if row.verdict is Verdict.ERROR else _OUTCOMES[row.gate]
    return Testcase(
        op=row.op,
        classname=_class(row.op, row.suite, row.target),
        name=WHOLE if row.case is None else row.case,
        outcome=outcome,
        verdict=row.verdict,
        sentences=tuple(map(wording.sentence, row.reasons)),
        command=_command(run, row.op, row.case, row.target),
        time_s=_seconds(measured),
    )


def _class(op: str, suite: Suite, target: str | None = None) -> str:
    return ".".join(part for part in (op, str(suite), target) if part)


def _command(run: Run, op: str, case: str | None, target: str | None = None) -> str:
    """What repeats this case alone: the run's own command, of nothing else."""
    plan = replace(run.plan, ops=(PlannedOp(op),), filter=case)
    static = replace(run.static, targets=(target,)) if run.static and target else run.static
    return repeat(replace(run, plan=plan, static=static))


def _seconds(measured: PerformanceCase | None) -> float | None:
    """Compilation and all timed launches; None where nothing was launched."""
    if measured is None:
        return None
    timed = (arm.time for found in measured.blocks for arm in found.arms.values())
    seconds = (measured.compile_s or 0.0) + sum(time.launches * time.mean_us for time in timed) * 1e-6
    return seconds or None


def _apart(found: Iterable[Testcase]) -> Iterator[Testcase]:
    """Names as they are written, and a number behind those that come again."""
    seen: dict[tuple[str, str], int] = {}
    for test in found:
        key = plain(test.classname, NAME_LIMIT), plain(test.name, NAME_LIMIT)
        seen[key] = seen.get(key, 0) + 1
        name = key[1] if seen[key] == 1 else f"{key[1]} ({seen[key]})"
        yield replace(test, classname=key[0], name=name)


# --- XML --------------------------------------------------------------------------------------------------------------


def _xml(run: Run, found: Sequence[Testcase], detail: _Detail) -> bytes:
    root = ElementTree.Element("testsuites", {"name": "perfci", **_counts(found)})
    groups: dict[str, list[Testcase]] = {}
    for test in found:
        groups.setdefault(test.op, []).append(test)
    took = {op.op: (op.verify_s or 0.0) + (op.measure_s or 0.0) for op in run.ops}
    for op, group in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": _text(plain(op)), **_counts(group)})
        suite.set("time", f"{took.get(op, 0.0):.3f}")
        suite.set("timestamp", _text(run.created.removesuffix("Z")))
        _properties(suite, run, len(group) if detail.passed else sum(test.outcome != "passed" for test in group))
        for test in group:
            if detail.passed or test.outcome != "passed":
                _testcase(suite, test, detail)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'.encode()


def _counts(found: Sequence[Testcase]) -> dict[str, str]:
    outcomes = [test.outcome for test in found]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(found)), **{name: str(outcomes.count(each)) for name, each in counted.items()}}  # type: ignore[arg-type]


def _properties(suite: ElementTree.Element, run: Run, written: int) -> None:
    where, base = run.environment, run.plan.base
    known = {
        "perfci.run": run.id,
        "perfci.version": run.perfci,
        "perfci.commit": where.commit,
        "perfci.device": where.device.key,
        "perfci.base": base.commit if base else None,
        "perfci.seed": str(run.plan.seed),
        "perfci.stopped": run.stopped,
        "perfci.left_out": str(left) if (left := int(suite.get("tests", "0")) - written) else None,
    }
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in known.items():
        if value:
            ElementTree.SubElement(properties, "property", {"name": name, "value": _text(plain(value))})


def _testcase(suite: ElementTree.Element, test: Testcase, detail: _Detail) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"classname": _text(test.classname), "name": _text(test.name)})
    if test.time_s is not None:
        case.set("time", f"{test.time_s:.6f}")
    if test.outcome != "passed":
        told = ElementTree.SubElement(case, test.outcome)
        told.set("message", _text(plain(_first(test), 300)))
        if test.outcome != "skipped":
            told.set("type", str(test.verdict))
        told.text = _text("\n".join([*_lines(test, detail), *([test.command] if test.command else [])]))
    if test.command and (detail.commands or test.outcome != "passed"):
        ElementTree.SubElement(case, "system-out").text = _text(_said(test))


def _first(test: Testcase) -> str:
    verdict = str(test.verdict) if test.verdict else ""
    return say("{verdict}: {why}", verdict=verdict, why=test.sentences[0]) if verdict else test.sentences[0]


def _lines(test: Testcase, detail: _Detail) -> Iterator[str]:
    """The verdict with the reason that decided, then the others, messages line by line."""
    for sentence in (_first(test), *test.sentences[1:]) if test.sentences else (str(test.verdict),):
        yield _multiline(sentence, detail.characters)


def _multiline(sentence: str, characters: int) -> str:
    """Free of terminal escapes and control characters, the middle of a long traceback left out."""
    return shorten(block(shorten(sentence, 3 * BLOCK_LIMIT)), characters)


def _said(test: Testcase) -> str:
    fine = [str(test.verdict)] if test.outcome == "passed" and test.verdict else []
    return "\n".join([*fine, test.command])


def _text(text: str) -> str:
    """Nothing but what XML 1.0 allows."""
    return _ATTACHMENT.sub("[ [", _UNFIT.sub("\ufffd", text))
