"""Checks for the next release, from what `perfci check` and `perfci static --coverage` left in `reports/`."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from perfci import git, store
from perfci.core import commands
from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, Gate, Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.history.groups import EVERY
from perfci.extensions.history.release import COMMIT, RUNS, Answer, Fitness, list_answers
from perfci.ops.discover import ops
from perfci.report.data import AnswerKind
from perfci.report.summary import make_head
from perfci.report.text import list_some, plain
from perfci.report.view import Table
from perfci.runs.decide import decide
from perfci.store.files import decode

Judged = tuple[Run, Judgements]


def read_fitness(settings: Settings, folders: Sequence[Path]) -> tuple[Fitness, list[Judged]]:
    """Returns what was checked for the commit at hand, and the runs. folders: of reports, one a device."""
    here = git.read(settings.root)
    head = here.commit if isinstance(here, git.Revision) else None
    kinds = {kind.name: kind for kind in list_answers()}
    parts, judged, release = list[Answer](), list[Judged](), ""
    for folder in folders:
        device = ""
        for name in ("check", "again", "creep", *kinds):
            try:
                if name in kinds:
                    answer = decode(folder / name / f"{name}.json", Answer)
                    # Its texts are foreign here, and no file says what to type.
                    said = tuple(map(plain, answer.said)) or ("-",)
                    answer = replace(answer, said=said, table=Table(), command="")
                else:
                    run = store.read_run(folder if name == "check" else folder / name)
                    judged.append((run, decide(run, settings)))
                    device = plain(run.environment.device.name, 80)
                    release = plain((run.plan.again and run.plan.again.release) or release, 80)
                    answer = _answer_by_run(name, *judged[-1], settings)
                gap = _find_gap(name, kinds.get(name), answer, settings, head)
            except StoredFileError as error:
                missing = error.reason.kind == "stored_file_missing"
                answer, gap = Answer(""), Reason("release_unseen") if missing else error.reason
            if (kind := kinds.get(name)) and kind.list_parts and not kind.list_parts(settings):
                answer, gap = Answer("", gate=Gate.OK, said=(kind.tell_none(),)), None
            if name != "again":
                parts.append(_make_part(name, kinds.get(name), device, answer, gap))
    # What was measured again settles what the check left open.
    judged.sort(key=lambda one: not (one[0].plan.again and one[0].plan.again.run))
    looked = judged or any(part.created for part in parts)
    return Fitness((head or "")[:COMMIT], release, tuple(parts) if looked else ()), judged


def _answer_by_run(name: str, run: Run, judgements: Judgements, settings: Settings) -> Answer:
    plan, where, first = run.plan, run.environment, make_head(run, judgements)
    said = (*first.sentences, *first.reasons)
    if name == "creep" and not (plan.again and plan.again.release):
        said = (sentence(Reason("release_none", {"pattern": settings.release_tags})),)
    timed = name != "check" or plan.device not in UNTIMED
    return Answer(
        run.created, where.commit, bool(where.dirty), None if plan.filter == EVERY else plan.filter,
        judgements.gate if timed or judgements.gate is Gate.FAILS else None, tuple(op.op for op in plan.ops), said,
        first.table, first.step.command if first.step else "",
    )  # fmt: skip


def _find_gap(
    name: str, kind: AnswerKind | None, answer: Answer, settings: Settings, head: str | None
) -> Reason | None:
    """Why a part does not cover the whole of the commit at hand."""
    if head and (answer.commit != head or answer.dirty):
        return Reason("release_other_commit", {"found": answer.revision, "commit": head[:COMMIT]})
    if answer.case:
        return Reason("release_cases", {"case": answer.case})
    every = set(_list_parts(kind, settings))
    # What a release lacks cannot be compared with it.
    if missing := sorted(every - set(answer.looked)) if name not in {"again", "creep"} else []:
        return Reason("release_ops", {"names": list_some(missing, 5), "count": len(missing), "all": len(every)})
    return None if answer.gate else Reason("release_unchecked")


def _list_parts(kind: AnswerKind | None, settings: Settings) -> Collection[str]:
    """The things to check: the project's ops, if a kind has nothing else."""
    return kind.list_parts(settings) if kind and kind.list_parts else [op.op for op in ops(settings)]


def _make_part(name: str, kind: AnswerKind | None, device: str, answer: Answer, gap: Reason | None) -> Answer:
    titles = {"check": say("Check"), "creep": say("Creep since the last release")}
    title, words = (kind.title(), kind.command) if kind else (titles[name], RUNS[name])
    if gap and answer.gate is not Gate.FAILS:
        answer = replace(answer, gate=None, said=(plain(sentence(gap)), *answer.said), command="")
    command = "" if answer.gate is Gate.OK else answer.command or commands.write(*words.split())
    return replace(answer, command=command, title=f"{title}, {device}" if device else title)
