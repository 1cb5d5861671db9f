"""The verdicts as JUnit XML, which GitLab and others show beside a merge request: every planned case is one test.

    REGRESSED WRONG
    TOO_SLOW WEAKENED             failure
    ERROR                         error
    INCONCLUSIVE TAIL DRIFTED
    STALE SUSPECT REMOVED         skipped, with the reason: JUnit knows no warning, and none of them is a pass.
                                  SUSPECT is a failure if it rests on proof, TAIL if thresholds ask for it
    all others                    passed, or skipped if the gate warns all the same

Names of tests are the same in every language, since GitLab finds by them what is new in a merge request, and occur
once. It refuses files of 30 MB, and shows of a failing test its text alone, which therefore repeats the command.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from perfci.core.model.basics import Gate, Suite, Verdict
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import AccuracyCase, OpRun, PerformanceCase
from perfci.core.model.run import PlannedOp, Run
from perfci.core.wording import say, sentence
from perfci.report import FileFormat
from perfci.report.steps import repeat
from perfci.report.text import BLOCK_LIMIT, block, plain, shorten

MANY = 30_000  # tests above which those that passed carry no command: GitLab counts elements, and refuses 250,000
NAME_LIMIT = 400  # characters of a test's name: two long case ids that differ in the middle stay apart by a number
WHOLE = "whole op"  # Name of the test that an op is as a whole. No language changes it.

Outcome = Literal["passed", "failure", "error", "skipped"]

_OUTCOMES: Mapping[Gate, Outcome] = {Gate.OK: "passed", Gate.WARNS: "skipped", Gate.FAILS: "failure"}
_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 has no place for

_ATTACHMENT = re.compile(r"\[\[(?=ATTACHMENT\|)")
"""With this GitLab links a file of the job. No one but perfci may choose which."""

_Judged = Mapping[tuple[str, Suite, str | None, str | None], Judgement]  # by op, suite, case and target


@dataclass(frozen=True)
class Testcase:
    """One testcase. Texts are as they come."""

    op: str
    classname: str
    name: str
    outcome: Outcome
    verdict: Verdict | None  # None for a case that was not run
    sentences: tuple[str, ...]
    command: str
    time_s: float | None = None

    @property
    def message(self) -> str:
        """The verdict with the reason that decided."""
        if not self.sentences:
            return str(self.verdict)
        why = self.sentences[0]
        return say("{verdict}: {why}", verdict=self.verdict, why=why) if self.verdict else why


def make_cases(run: Run, judgements: Judgements) -> Iterator[Testcase]:
    """The planned cases of each op, then what else was judged. A name that comes again has a number behind it."""
    judged = {(row.op, row.suite, row.case, row.target): row for row in judgements.rows}
    ran = {op.op: op for op in run.ops}
    timed = {(done.op, timed_case.case): timed_case for done in run.ops for timed_case in done.performance}
    checks: dict[tuple[str, str], list[AccuracyCase]] = {}
    for name, check in ((done.op, check) for done in run.ops for check in done.accuracy):
        checks.setdefault((name, check.case), []).append(check)
    made: list[Testcase] = []
    planned: set[object] = set()
    for op in run.plan.ops:
        cases = [(Suite.ACCURACY, case) for case in op.accuracy]
        cases += [(Suite.PERFORMANCE, case) for case in op.performance]
        for suite, case in cases:
            if suite in run.plan.suites:
                planned.add((op.op, suite, case, None))
                measured = checks.get((op.op, case), []) if suite is Suite.ACCURACY else timed.get((op.op, case))
                made.append(_make_case(run, op, ran.get(op.op), suite, case, judged, measured))
    others = [row for key, row in judged.items() if key not in planned]
    made += [_make_judged(run, row, None) for row in others if row.case is not None]
    shown = {(test.op, test.verdict) for test in made}
    whole = [row for row in others if row.case is None and row.gate is not Gate.OK]
    made += [_make_judged(run, row, None) for row in whole if (row.op, row.verdict) not in shown]
    order = {name: index for index, name in enumerate(dict.fromkeys(test.op for test in made))}
    seen: dict[tuple[str, str], int] = {}
    for test in sorted(made, key=lambda test: order[test.op]):
        classname, name = plain(test.classname, NAME_LIMIT), plain(test.name, NAME_LIMIT)
        count = seen[classname, name] = seen.get((classname, name), 0) + 1
        yield replace(test, classname=classname, name=name if count == 1 else f"{name} ({count})")


def _make_case(
    run: Run,
    op: PlannedOp,
    outcome: OpRun | None,
    suite: Suite,
    case: str,
    judged: _Judged,
    measured: PerformanceCase | Sequence[AccuracyCase] | None,
) -> Testcase:
    """A planned case: judged itself, or explained by its op's row. measured: what the run has of it."""
    row = judged.get((op.op, suite, case, None))
    if row:
        return _make_judged(run, row, measured if isinstance(measured, PerformanceCase) else None)
    whole = judged.get((op.op, Suite.ACCURACY, None, None))
    test = Testcase(op.op, f"{op.op}.{suite}", case, "skipped", None, (), _write_command(run, op.op, case))
    if suite is Suite.ACCURACY:
        checks = measured if isinstance(measured, Sequence) else ()
        unchecked = [check.unchecked for check in checks if check.unchecked]
        reasons = whole.reasons if whole else ()
        if checks and len(unchecked) == len(checks):
            reasons = (unchecked[0],)
        elif checks:
            return replace(test, outcome="passed", verdict=Verdict.PASS)
        elif whole and whole.verdict is Verdict.UNCHANGED:
            return replace(test, outcome="passed", verdict=whole.verdict, sentences=tuple(map(sentence, reasons)))
        elif whole and whole.gate is Gate.WARNS:
            test = replace(test, verdict=whole.verdict)
    else:
        speed = judged.get((op.op, suite, None, None))
        why = op.failure or (outcome and (outcome.failure or outcome.unmeasured))
        reasons = (
            (speed.reasons[:1] if speed else ()) or ((why,) if why else ()) or (whole.reasons[:1] if whole else ())
        )
    return replace(test, sentences=tuple(map(sentence, reasons)) or (say("It was not run."),))


def _make_judged(run: Run, row: Judgement, measured: PerformanceCase | None) -> Testcase:
    seconds = 0.0
    if measured is not None:
        timed = (arm.time for block in measured.blocks for arm in block.arms.values())
        seconds = (measured.compile_s or 0.0) + sum(time.launches * time.mean_us for time in timed) * 1e-6
    return Testcase(
        op=row.op,
        classname=".".join(part for part in (row.op, str(row.suite), row.target) if part),
        name=WHOLE if row.case is None else row.case,
        outcome="error" if row.verdict is Verdict.ERROR else _OUTCOMES[row.gate],
        verdict=row.verdict,
        sentences=tuple(map(sentence, row.reasons)),
        command=_write_command(run, row.op, row.case, row.target),
        time_s=seconds or None,
    )


def _write_command(run: Run, op: str, case: str | None, target: str | None = None) -> str:
    """What repeats this case alone: the run's command, of nothing else."""
    plan = replace(run.plan, ops=(PlannedOp(op),), filter=case)
    static = replace(run.static, targets=(target,)) if run.static and target else run.static
    return repeat(replace(run, plan=plan, static=static))


def _write_xml(run: Run, testcases: Sequence[Testcase]) -> bytes:
    root = ElementTree.Element("testsuites", {"name": "perfci", **_count(testcases)})
    groups: dict[str, list[Testcase]] = {}
    for test in testcases:
        groups.setdefault(test.op, []).append(test)
    took = {op.op: (op.verify_s or 0.0) + (op.measure_s or 0.0) for op in run.ops}
    seeds = {op.op: op.seed for op in run.ops if op.seed is not None}
    for op, group in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": _fit(plain(op)), **_count(group)})
        suite.set("time", f"{took.get(op, 0.0):.3f}")
        suite.set("timestamp", _fit(run.created.removesuffix("Z")))
        attributes = {
            "run": run.id,
            "version": run.perfci,
            "commit": run.environment.commit,
            "device": run.environment.device.key,
            "base": run.plan.base.commit if run.plan.base else None,
            "seed": str(seeds.get(op, run.plan.seed)),
            "stopped": run.stopped,
        }
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in attributes.items():
            if value:
                ElementTree.SubElement(properties, "property", {"name": f"perfci.{name}", "value": _fit(plain(value))})
        for test in group:
            _add_case(suite, test, commands=len(testcases) <= MANY)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'.encode()


def _count(testcases: Sequence[Testcase]) -> dict[str, str]:
    outcomes = [test.outcome for test in testcases]
    counted: dict[str, Outcome] = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(testcases)), **{name: str(outcomes.count(tag)) for name, tag in counted.items()}}


def _add_case(suite: ElementTree.Element, test: Testcase, *, commands: bool) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"classname": _fit(test.classname), "name": _fit(test.name)})
    if test.time_s is not None:
        case.set("time", f"{test.time_s:.6f}")
    passed = test.outcome == "passed"
    if not passed:
        why = ElementTree.SubElement(case, test.outcome)
        why.set("message", _fit(plain(test.message, 300)))
        if test.outcome != "skipped":
            why.set("type", str(test.verdict))
        # Free of terminal escapes, line by line, the middle of a long traceback left out.
        texts = (block(shorten(text, 3 * BLOCK_LIMIT)) for text in (test.message, *test.sentences[1:]))
        why.text = _fit("\n".join([*texts, test.command]))
    if commands or not passed:
        output = f"{test.verdict}\n{test.command}" if passed and test.verdict else test.command
        ElementTree.SubElement(case, "system-out").text = _fit(output)


def _fit(text: str) -> str:
    """Nothing but what XML 1.0 allows."""
    return _ATTACHMENT.sub("[ [", _UNFIT.sub("\ufffd", text))


JUNIT = FileFormat("junit", "junit.xml", lambda run, judgements, _: _write_xml(run, tuple(make_cases(run, judgements))))
