"""What was checked for the next release, from what `perfci check` and `perfci list --coverage` left in `reports/`.

Check and creep are runs. Soak, chains and coverage are answers, each in `reports/<name>/<name>.json`.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci import git, store
from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, Coverage, Fact, Gate, Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.judge.notes import note_uncovered
from perfci.lab.chains.records import ChainCase, find_chains
from perfci.lab.soak.findings import SoakFinding, Status
from perfci.ops.discover import ops
from perfci.report.alerts import COMMIT
from perfci.report.fitness import Fitness, Part
from perfci.report.summary import make_head
from perfci.report.text import code, list_some, plain
from perfci.runs.decide import decide
from perfci.runs.since import EVERY
from perfci.store.files import decode

MOST = 20  # sentences of a part that are shown
CREEP, AGAIN = "creep", "again"  # folders in `reports/`
COMMANDS = {
    "check": "perfci check",
    "creep": "perfci check --against-release",
    "soak": "perfci check --soak",
    "chains": "perfci check --chain",
    "coverage": "perfci list --coverage",
}


@dataclass(frozen=True)
class KeptChain:
    """A chain, checked."""

    chain: str
    cases: tuple[ChainCase, ...] = ()
    failure: Reason | None = None


@dataclass(frozen=True)
class KeptAnswer:
    """The answer of a soak, of chains or of coverage."""

    created: str
    commit: str | None = None
    dirty: bool = False
    case: str | None = None  # pattern of the cases that it is about. None: all
    findings: tuple[SoakFinding, ...] = ()
    chains: tuple[KeptChain, ...] = ()
    ops: tuple[Coverage, ...] = ()


Judged = tuple[Run, Judgements]


def read_fitness(settings: Settings, folders: Sequence[Path]) -> tuple[Fitness, list[Judged]]:
    """Returns what was checked for the commit at hand, and the runs. folders: of reports, one a device."""
    here = git.read(settings.root)
    head = here.commit if isinstance(here, git.Revision) else None
    parts, judged, release = list[Part](), list[Judged](), ""
    for folder in folders:
        check = _read_run(folder, settings)
        device = "" if isinstance(check, Reason) else plain(check[0].environment.device.name, 80)
        for name, found in (("check", check), ("creep", _read_run(folder / CREEP, settings))):
            if isinstance(found, Reason):
                parts.append(_write_part(name, device, None, [sentence(found)]))
                continue
            judged.append(found)
            parts.append(_describe_run(name, device, *found, settings, head))
            release = (found[0].plan.again and found[0].plan.again.release) or release
        if not isinstance(again := _read_run(folder / AGAIN, settings), Reason):
            judged.insert(0, again)  # it settles what the check left open
        parts += (_read_answer(name, device, folder, settings, head) for name in ("soak", "chains", "coverage"))
    looked = judged or any(part.seen for part in parts)
    return Fitness((head or "")[:COMMIT], release, tuple(parts) if looked else ()), judged


def _write_part(name: str, device: str, gate: Gate | None, said: Sequence[str], seen: str = "") -> Part:
    """A part with the first of some sentences in front, and the others below. What is fine has nothing to do next."""
    titles = {
        "check": say("Check"), "creep": say("Creep since the last release"), "soak": say("Soak"),
        "chains": say("Chains"), "coverage": say("Coverage of suites"),
    }  # fmt: skip
    title = f"{titles[name]}, {device}" if device else titles[name]
    what, *more = said
    details = (*more[:MOST], *([say("{count} more", count=len(more) - MOST)] if len(more) > MOST else []))
    return Part(title, gate, what, "" if gate is Gate.OK else COMMANDS[name], seen, details)


def _read_run(folder: Path, settings: Settings) -> Judged | Reason:
    if not (folder / store.RUN_FILE).exists():
        return Reason("release_unseen")
    try:
        run = store.read_run(folder)
    except StoredFileError as error:
        return error.reason
    return run, decide(run, settings)


def _describe_run(
    name: str, device: str, run: Run, judgements: Judgements, settings: Settings, head: str | None
) -> Part:
    plan, where = run.plan, run.environment
    seen, again = _write_seen(run.created, where.commit, where.dirty), plan.again
    if name == "creep" and not (again and again.release):
        return _write_part(
            name, device, Gate.OK, [sentence(Reason("release_none", {"pattern": settings.release_tags}))], seen
        )
    looked = {op.op for op in plan.ops} if name == "check" else None
    gap = _find_gap(settings, head, where.commit, where.dirty, None if plan.filter == EVERY else plan.filter, looked)
    if name == "check" and plan.device in UNTIMED:
        gap = gap or Reason("release_untimed")
    first = make_head(run, judgements)
    part = _write_part(name, device, judgements.gate, [*first.sentences, *first.reasons], seen)
    if gap and judgements.gate is not Gate.FAILS:
        return _write_part(name, device, None, [sentence(gap), *first.sentences], seen)
    return replace(part, table=first.table, command=first.step.command if first.step else part.command)


def _read_answer(name: str, device: str, folder: Path, settings: Settings, head: str | None) -> Part:
    if name == "chains" and not find_chains(settings.kernels):
        return _write_part(name, device, Gate.OK, [say("The project has no chains.")])
    path = folder / name / f"{name}.json"
    try:
        found = decode(path, KeptAnswer) if path.exists() else None
    except StoredFileError as error:
        return _write_part(name, device, None, [sentence(error.reason)])
    if found is None:
        return _write_part(name, device, None, [sentence(Reason("release_unseen"))])
    seen = _write_seen(found.created, found.commit, found.dirty)
    bad, fine, looked = {"soak": _judge_soak, "chains": _judge_chains, "coverage": _judge_coverage}[name](found)
    known = set(find_chains(settings.kernels)) if name == "chains" else None
    gap = _find_gap(settings, head, found.commit, found.dirty, found.case, looked, known)
    if bad:
        return _write_part(name, device, Gate.FAILS, bad, seen)
    if gap or not fine:
        return _write_part(name, device, None, [sentence(gap or Reason("release_unchecked"))], seen)
    return _write_part(name, device, Gate.OK, [fine], seen)


def _judge_soak(found: KeptAnswer) -> tuple[list[str], str, set[str]]:
    """What failed, a sentence about what passed, and what was looked at."""
    looked, counts = {each.op for each in found.findings}, Counter(each.status for each in found.findings)
    bad = [
        f"{code(each.op)} {each.test} {code(each.case or '')}: {plain(sentence(each.reason)) if each.reason else '-'}"
        for each in found.findings
        if each.status in {Status.FAIL, Status.ERROR}
    ]
    facts = {"passed": counts[Status.PASS], "skipped": counts[Status.SKIPPED], "ops": len(looked)}
    return bad, say("{passed} tests of {ops:op|ops} passed, {skipped} were skipped.", **facts), looked


def _judge_chains(found: KeptAnswer) -> tuple[list[str], str, set[str]]:
    bad, right = list[str](), 0
    for each in found.chains:
        failures = [*([each.failure] if each.failure else []), *(why for case in each.cases for why in case.failures)]
        bad += (f"{code(each.chain)}: {plain(sentence(why))}" for why in failures)
        right += sum(not case.failures and not case.unchecked for case in each.cases)
    fine = say("{count:case is|cases are} right in {chains:chain|chains}.", count=right, chains=len(found.chains))
    return bad, fine if right else "", {each.chain for each in found.chains}


def _judge_coverage(found: KeptAnswer) -> tuple[list[str], str, set[str]]:
    reasons = [*(each.failure for each in found.ops if each.failure), *note_uncovered(found.ops)]
    fine = say("Accuracy exercises what performance times, in {count:op|ops}.", count=len(found.ops))
    unrun = [
        say("{op}: no case runs {lines}", op=each.op, lines=", ".join(each.unrun)) for each in found.ops if each.unrun
    ]
    return [plain(text) for text in (*map(sentence, reasons), *unrun)], fine, {each.op for each in found.ops}


def _find_gap(
    settings: Settings, head: str | None, commit: str | None, dirty: bool | None, case: str | None,
    looked: Collection[str] | None, known: Collection[str] | None = None,
) -> Reason | None:  # fmt: skip
    """Why a part says nothing about the whole of the commit at hand. looked: None if others may be left out."""
    if head and (commit != head or dirty):
        found = (commit or "-")[:COMMIT] + ("+" if dirty else "")
        return Reason("release_other_commit", {"found": found, "commit": head[:COMMIT]})
    if case:
        return Reason("release_cases", {"case": case})
    if looked is not None:
        every = known if known is not None else {op.op for op in ops(settings)}
        if missing := sorted(set(every) - set(looked)):
            facts: dict[str, Fact] = {"names": list_some(missing, 5), "count": len(missing), "all": len(every)}
            return Reason("release_ops", facts)
    return None


def _write_seen(created: str, commit: str | None, dirty: bool | None) -> str:
    return plain(f"{created[:10]} {(commit or '-')[:COMMIT]}{'+' if dirty else ''}", 80)
