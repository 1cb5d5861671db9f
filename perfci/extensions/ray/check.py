"""A check on a cluster: a shard an op, joined as all shards are."""

import dataclasses
import functools
import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from perfci import store
from perfci.core import deadline, extensions
from perfci.core.environment import in_ci
from perfci.core.errors import UsageError, require
from perfci.core.files import read_regular
from perfci.core.model import Deadline, Judgements, Reason, Run
from perfci.core.settings import ONE, Settings
from perfci.core.stopping import Stopped
from perfci.core.temporary import temporary_folder
from perfci.extensions.ray.cluster import Cluster, Node, NodeCommand, open_cluster
from perfci.git import command as git
from perfci.git.repository import find_repository
from perfci.ops.discover import select
from perfci.runs.bench import GRANTING, NOTHING, Listener, find_granting
from perfci.runs.plan import Request, cases_to_run
from perfci.store.files import copy_files
from perfci.worker.protocol import Position

GRACE_S = 30.0  # after the deadline


def check_on_cluster(
    settings: Settings, request: Request, address: str, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Check on the boards of a cluster. What came back is judged even if nodes are lost.

    Raises UsageError as `open_cluster` does, and GitError without a repository.
    """
    shards = require("shards", "shards", "--on")
    with open_cluster(address, request.device) as cluster:
        request = dataclasses.replace(request, devices=ONE, device=cluster.device)
        last = store.read_run(settings.reports) if (settings.reports / store.RUN_FILE).is_file() else None
        sharded = shards.plan(settings, request, listener, len(select(settings, request.ops)), last)
        sharded = dataclasses.replace(sharded, shards=max((op.shard for op in sharded.ops), default=0) or 1)
        notes = list[Reason]()
        measure = functools.partial(measure_shards, cluster, notes, settings, request.deadline, listener)
        run, judgements = shards.run(settings, sharded, request.deadline, command, measure)
        return run, dataclasses.replace(judgements, notes=(*judgements.notes, *notes))


def measure_shards(
    cluster: Cluster, notes: list[Reason], settings: Settings, limit: Deadline | None, listener: Listener,
    sharded: Any, path: Path, options: Sequence[str], variables: Mapping[str, str],
) -> BaseException | None:  # fmt: skip
    """Write the folders of all shards that come back, and note what nodes did wrong. Returns what ended it early."""
    base, given = sharded.plan.base, git.require(find_repository(settings.root)).top / "plan.json"
    shares = zip(sharded.ops, sharded.plan.ops, strict=True)
    cases = {share.shard: cases_to_run(sharded.plan, op) for share, op in shares if share.shard}
    # A node knows nothing of the pipeline around this process, and may be in another one.
    granting, here = find_granting(settings), {"CI": "true" if in_ci(os.environ) else "", "GITLAB_CI": ""}
    variables = {deadline.TIMEOUT: "", deadline.STARTED: "", **here, GRANTING: granting, **variables}
    boards = list_boards(settings, sharded, max((node.boards for node in cluster.nodes.values()), default=1))
    done, folder = dict[int, Run](), settings.reports / require("shards", "shards", "--on").folder

    def plan(shard: int) -> NodeCommand:
        place = os.path.relpath(given, settings.root)
        words = ["check", "--plan", place, "--shard", f"{shard}/{sharded.shards}", *options]
        return NodeCommand(words, {given: read_regular(path)}, folder / str(shard), variables, boards.get(shard, 1))

    def show(begun: int) -> None:
        behind = sum(count for shard, count in cases.items() if shard in done)
        listener(Position(len(done), begun, len(cases), behind, sum(cases.values())))

    def keep(shard: int, node: Node, packed: bytes) -> Reason | None:
        place = folder / str(shard)
        shutil.rmtree(place, ignore_errors=True)  # of another node
        unpack(packed, place)
        run, first = store.read_run(place), next((run for run in done.values() if run.ops), None)
        if fault := cluster.find_fault(run, node, first, sharded.plan.put_aside):
            if fault.kind == "node_mixed":
                shutil.rmtree(place)  # else it stands if no other node has a better one
            return fault
        done[shard] = run
        return None

    commits = [*([base.commit] if base else []), *({granting} - {"", NOTHING})]
    commands = {shard: plan(shard) for shard in sorted(cases)}
    until = deadline.ends(limit) + GRACE_S if limit else inf
    try:
        notes += cluster.run(settings, commands, keep, commits, show=show, until=until)
    except (Stopped, UsageError) as error:
        return error
    return None


def list_boards(settings: Settings, sharded: Any, most: int) -> dict[int, int]:
    """How many boards each shard takes, of so many at most: as many as the largest group of its ops has ranks."""
    boards = dict[int, int]()
    for groups in extensions.provided("groups"):
        for shard, folder in ((op.shard, select(settings, [op.op])[0]) for op in sharded.ops if op.shard):
            sizes = (size for size in groups.find_sizes(folder) if size <= most)
            boards[shard] = max(boards.get(shard, 1), *sizes, 1)
    return boards


def unpack(packed: bytes, place: Path) -> None:
    """Put the folder that a node kept into its place. Raises StoredFileError if a file is a link or a pipe."""
    with temporary_folder("cluster") as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        files = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        copy_files([path.relative_to(folder).as_posix() for path in files], folder, place)
