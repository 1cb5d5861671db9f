"""What the gate and other extensions ask of shards."""

import dataclasses
import re
from pathlib import Path

from perfci import store
from perfci.cli.exits import Exit
from perfci.cli.output import get_command, print_lines, print_verdicts, relative
from perfci.cli.progress import Progress
from perfci.core.deadline import JobLimit
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.shards.joined import check_on_devices, merge_shards, run_shards
from perfci.extensions.shards.part import FOLDER, ShardPart, check_shard, confirm_shards
from perfci.extensions.shards.plans import list_runs, plan_shards, read_plan, refuse_foreign_plan
from perfci.store import signature


def check_planned(
    plan: Path, shard: str | None, runs: Path | None, device: str, limit: JobLimit, where: Settings, *,
    json: bool,
) -> int:  # fmt: skip
    """Measure one shard, or look at what a board alone found slower in all of them (runs).

    `perfci ci merge` judges it, so this ends with 0 unless perfci itself fails.
    """
    sharded, digest = read_plan(plan)
    numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", f"1/{sharded.shards}" if shard is None else shard, re.ASCII)
    if not numbers:
        raise UsageError("shard_malformed", shard=shard)
    part = ShardPart(sharded, digest, int(numbers[1]), int(numbers[2]), device, limit)
    if runs:
        paths = list_runs(runs)
        for path in paths:
            signature.check(path)
        parts = [(store.read_run(path), path.parent) for path in paths]
        with Progress() as progress:
            said = [*confirm_shards(where, part, parts, get_command(), progress)]
        print_lines(*map(sentence, said or [Reason("confirm_nothing")]))
        return Exit.OK
    where = dataclasses.replace(where, reports=where.reports / FOLDER / str(part.index))
    with Progress() as progress:
        run, judgements = check_shard(where, part, get_command(), progress)
    if json:
        print_verdicts(run, judgements, json=True)
        return Exit.OK
    shard = f"{part.index}/{part.count}"
    if run.ops:
        print_verdicts(run, judgements, json=False, shard=shard)
    else:
        print_lines(say("Shard {shard}: there is nothing for it to measure.", shard=shard))
    print_lines(say("Run: {path}", path=relative(where.reports / store.RUN_FILE)))
    return Exit.OK


class Shards:
    """Checks that runners or devices share."""

    folder = FOLDER
    plan = staticmethod(plan_shards)
    refuse_foreign_plan = staticmethod(refuse_foreign_plan)
    check_planned = staticmethod(check_planned)
    check_on_devices = staticmethod(check_on_devices)
    run = staticmethod(run_shards)
    merge = staticmethod(merge_shards)
