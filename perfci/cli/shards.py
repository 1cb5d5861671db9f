"""`perfci plan`, a shard of `perfci check`, and `perfci merge`: one check over several runners."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfci import store
from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.model import ShardPlan
from perfci.core.wording import say
from perfci.report import text
from perfci.runs.plan import Request
from perfci.runs.shards import Part, Wishes, check_shard, merge_shards, plan_shards
from perfci.store.files import encode, refuse_missing_folder

FOLDER = "shards"
"""In the reports folder: shards/<number>/run.json of each."""

SHOWN = 8
"""Ops of a shard that are named."""


def plan(wanted: Request, project: Path, out: Path, *, shards: int, last: Path | None, every: bool, json: bool) -> int:
    """Write plan.json; whatever it finds changed, nothing fails."""
    where = language.load(project)
    if out.resolve().parent != where.reports.resolve():  # which perfci makes itself
        refuse_missing_folder(out)
    wishes = Wishes(shards, store.read_run(last) if last else None, every)
    with Progress() as progress:
        found = plan_shards(where, wanted, wishes, progress)
    path = store.write_plan(found, out)
    if json:
        answers.write_json(encode(found, path).decode())
    else:
        answers.plain(
            *(text.plain(line, text.BLOCK_LIMIT) for line in _told(found)),
            say("Plan: {path}", path=answers.relative(path)),
        )
    return Exit.OK


def check_part(
    path: Path | None,
    shard: str | None,
    device: str,
    project: Path,
    *,
    json: bool,
    devices: str | None = None,
    deadline: float | None = None,
) -> int:
    """Measure one shard; what was found is for `perfci merge` to judge, so it ends with 0 unless perfci failed."""
    if path is None or shard is None:
        raise UsageError("shard_without_plan" if path is None else "plan_without_shard")
    where = language.load(project)
    sharded, digest = store.read_plan(path)
    index, count = _numbers(shard)
    where = dataclasses.replace(where, reports=where.reports / FOLDER / str(index))
    part = Part(sharded, digest, index, count, device, answers.used(devices), answers.time_limit(deadline))
    with Progress() as progress:
        found, judgements = check_shard(where, part, answers.command(), progress)
    if json:
        answers.print_answer(found, judgements)
        return Exit.OK
    if found.ops:
        answers.print_verdicts(found, judgements, shard=shard)
    else:
        answers.plain(say("Shard {shard}: there is nothing for it to measure.", shard=shard))
    answers.plain(say("Run: {path}", path=answers.relative(where.reports / store.RUN_FILE)))
    return Exit.OK


def merge(
    paths: Sequence[Path], path: Path, out: Path | None, project: Path, *, strict: bool, json: bool, html: bool
) -> int:
    """Join the shards, judge, write the report, and give the exit code of all of them."""
    where = language.load(project)
    where = dataclasses.replace(where, reports=out.resolve()) if out else where
    sharded, digest = store.read_plan(path)
    found = [each for given in paths for each in _runs(given)]
    target = (where.reports / store.RUN_FILE).resolve()
    if target in {each.resolve() for each in found}:
        raise UsageError("merge_over_shard", path=str(target))
    runs = [(store.read_run(each), each.parent) for each in found]
    run, judgements = merge_shards(where, sharded, digest, runs, answers.command())
    return answers.told(run, judgements, where, strict=strict, json=json, html=html)


def refuse(options: dict[str, object]) -> None:
    """An option that the plan has fixed for all shards. Raises UsageError."""
    for name, value in options.items():
        if value:
            raise UsageError("shard_option", option=name)


def _runs(path: Path) -> list[Path]:
    """A run.json, the one in a folder, or those in the folders of a folder."""
    if not path.is_dir() or (path / store.RUN_FILE).is_file():
        return [path / store.RUN_FILE if path.is_dir() else path]
    return sorted(path.glob(f"*/{store.RUN_FILE}"))


def _numbers(shard: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard, re.ASCII)
    if not found:
        raise UsageError("shard_malformed", shard=shard)
    return int(found[1]), int(found[2])


def _told(found: ShardPlan) -> Iterator[str]:
    """The base, what is left to measure, and each shard's share."""
    run = [each for each in found.ops if each.shard]
    base = found.plan.base
    if base:
        yield say("Compared with {name} ({commit}).", name=base.name, commit=base.commit[:10])
    yield say(
        "{run} of {ops} ops are measured; {family} performance cases are tested together, {duels} at most in duels.",
        run=len(run),
        ops=len(found.ops),
        family=found.family,
        duels=found.plan.duel_family,
    )
    yield say(
        "Device time: about {minutes} min {seconds} s in all; seed {seed}.",
        minutes=round(found.seconds) // 60,
        seconds=round(found.seconds) % 60,
        seed=found.plan.seed,
    )
    for number in range(1, found.shards + 1):
        mine = [each for each in run if each.shard == number]
        names = [each.op for each in mine[:SHOWN]] + ([f"... (+{len(mine) - SHOWN})"] if len(mine) > SHOWN else [])
        yield say(
            "Shard {number}/{count}: about {seconds:n} s: {ops}",
            number=number,
            count=found.shards,
            seconds=sum(each.seconds for each in mine),
            ops=", ".join(names) or "-",
        )
