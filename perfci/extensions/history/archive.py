"""`perfci history --store`: copies what a project accepted, and what its last runs came to, to a store."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perfci.core import codec
from perfci.core.model import HistoryAccuracy, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored
from perfci.extensions.common.history import History, history_devices, history_ops, read_history
from perfci.extensions.history import tables
from perfci.extensions.history.database import SUITES, HistoryStore
from perfci.extensions.history.results import StoredRun
from perfci.report import rows

ASTRAY = timedelta(days=1)  # how far a run's time may be ahead of now, or behind the runs accepted before it

_BLOCK = (
    "process block arm board throttle started_s launches median_us p25_us p75_us p95_us rsd sm_clock_mhz power_w "
    "temperature_c"
)


@dataclass
class Imported:
    """Counts of one import."""

    new: int = 0  # accepted runs of an op that the store had not, or had otherwise
    there: int = 0
    verdicts: int = 0
    blocks: int = 0
    problems: dict[tuple[str, str], tuple[Reason, ...]] = field(default_factory=dict)  # by device and op


def import_project(store: HistoryStore, where: Settings, runs: Sequence[StoredRun], kept: int) -> Imported:
    """Copies every history of a project to a store, then these runs. What is there already is not written again.

    kept: newest runs of an op with blocks that stay. Raises StoredFileError if the store fails: the ops before it are
    there, and the next import goes on from there.
    """
    done = Imported()
    for device in history_devices(where.baselines):
        for op in history_ops(where.baselines, device):
            _add_history(store, read_history(where.baselines, device, op, follow=False), done)
    for run in runs:
        _add_run(store, run, kept, done)
    return done


def _add_history(store: HistoryStore, history: History, done: Imported) -> None:
    device, op = history.device, history.op
    written: list[dict[str, Any]] = []
    figures: list[Mapping[str, Any]] = []
    with store.take_turn():
        stored = store.read_places(device, op)
        newest = max((at for at, _ in stored.values()), default=-1)
        for run in history.runs:
            digest = hashlib.sha256(codec.encode(run)).hexdigest()[:32]
            at, before = stored.get(run.run, (0, None))
            if before == digest:
                continue
            if before is None:  # the place of a run is that of its acceptance
                at = newest = newest + 1
            line = codec.encode(replace(run, cases=(), accuracy=(), stored=())).decode()
            written.append(_write_run(op, run.run, run, position=at, accepted=True, digest=digest, line=line))
            figures += _write_figures(device, op, run)
        if fresh := {row["run"] for row in written}:
            store.replace("cases", device, op, fresh, figures)
            store.replace("runs", device, op, fresh, written)
    done.new += len(fresh)
    done.there += len(history.runs) - len(fresh)
    if problems := history.problems + _check_times(history, fresh):
        done.problems[device, op] = problems


def _add_run(store: HistoryStore, stored_run: StoredRun, kept: int, done: Imported) -> None:
    run, device = stored_run.run, stored_run.run.environment.device.key
    verdicts: dict[str, dict[tuple[str, ...], Mapping[str, Any]]] = {}
    for row in stored_run.judgements.rows:
        key = {"device": device, "op": row.op, "case_id": row.case or "", "suite": str(row.suite)}
        key |= {"target": row.target or "", "run": run.id}
        first, change = next(iter(row.reasons), None), rows.find_change(row)
        said = " ".join(dict.fromkeys(map(sentence, row.reasons))) or None
        about = {"reason": first and first.kind, "said": said, "change": change and change.value}
        rows_of_op = verdicts.setdefault(row.op, {})
        rows_of_op.setdefault(tuple(key.values()), {**key, **about, "verdict": str(row.verdict), "gate": str(row.gate)})
    blocks: dict[str, list[Mapping[str, Any]]] = {}
    for block in tables.list_blocks(run):
        names = {"device": device, "op": block["op"], "case_id": block["case"], "run": run.id}
        blocks.setdefault(str(block["op"]), []).append({name: block[name] for name in _BLOCK.split()} | names)
    for op in verdicts.keys() | blocks.keys():
        with store.take_turn():
            stored_at = {name: at for name, (at, _) in store.read_places(device, op).items()}
            if run.id not in stored_at:
                stored_at[run.id] = max(stored_at.values(), default=-1) + 1
                new = _write_run(op, run.id, run, position=stored_at[run.id], accepted=False, digest=None, line=None)
                store.replace("runs", device, op, (), [new])
            old = sorted(stored_at, key=stored_at.__getitem__)[: max(len(stored_at) - kept, 0)]
            store.replace("verdicts", device, op, {run.id}, verdicts.get(op, {}).values())
            store.replace("blocks", device, op, {run.id, *old}, () if run.id in old else blocks.get(op, ()))
        done.verdicts += len(verdicts.get(op, ()))
        done.blocks += len(blocks.get(op, ()))


def _write_run(op: str, name: str, run: HistoryRun | Run, **more: Any) -> dict[str, Any]:
    where, board = run.environment, run.environment.device
    about = {"device": board.key, "op": op, "run": name, "created": _read_time(run.created), "board": board.uuid}
    return about | {"revision": where.commit, "branch": where.branch, "timer": where.timer} | more


def _write_figures(device: str, op: str, run: HistoryRun) -> Iterator[Mapping[str, Any]]:
    for suite, (name, _) in SUITES.items():
        case: HistoryCase | HistoryAccuracy | HistoryStored
        for case in {one.case: one for one in getattr(run, name)}.values():
            timed = case if isinstance(case, HistoryCase) else None
            reference = timed and timed.reference_us
            yield {
                "device": device, "op": op, "case_id": case.case, "suite": suite, "run": run.run,
                "kernel_us": timed and timed.kernel_us.median_us, "reference_us": reference and reference.median_us,
                "speedup": timed and timed.speedup, "p99_abs": case.errors and case.errors.p99_abs,
                "figures": codec.encode(case).decode(),
            }  # fmt: skip


def _check_times(history: History, fresh: set[str]) -> tuple[Reason, ...]:
    """Returns a problem if a clock was wrong when fresh runs were made. Their order does not rest on it."""
    limit, latest, astray = datetime.now(UTC) + ASTRAY, datetime.min.replace(tzinfo=UTC) + ASTRAY, []
    for run in history.runs:
        time = _read_time(run.created)
        if time and latest - ASTRAY <= time <= limit:
            latest = max(latest, time)
        elif run.run in fresh:
            astray.append(run)
    if not astray:
        return ()
    facts = {"op": history.op, "device": history.device, "run": astray[0].run, "created": astray[0].created}
    return (Reason("history_clock", {**facts, "count": len(astray)}),)


def _read_time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
