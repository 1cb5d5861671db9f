"""A store for more history than git should keep: PostgreSQL, or Parquet files that DuckDB reads.

The JSON lines in git stay the truth. A store takes copies and keeps what git drops. The same statements serve both.
Every copy is of one op: its runs are there as a whole or not at all.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict

from perfci.core import codec
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, HistoryAccuracy, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored
from perfci.extensions.common.history import History, follow_names, history_devices, history_ops, read_history
from perfci.extensions.history import tables
from perfci.extensions.history.tables import StoredRun
from perfci.report import rows
from perfci.store import baseline_path
from perfci.store.files import FormatHead, decode, encode, held, write_atomically

HEAD = "store.json"  # in a folder of Parquet files: the format, so that an older perfci knows what it cannot read
AT_ONCE = 10_000  # rows
SUITES: Mapping[str, tuple[str, type]] = {
    "performance": ("cases", HistoryCase),
    "accuracy": ("accuracy", HistoryAccuracy),
    "stored": ("stored", HistoryStored),
}
"""`suite` of a row in `cases` -> the list of a history's line that it comes from, and the record in its `figures`."""

TABLES = {
    "runs": """device TEXT, op TEXT, run TEXT, position BIGINT NOT NULL, accepted BOOLEAN NOT NULL,
        created TIMESTAMPTZ, revision TEXT, branch TEXT, board TEXT, timer TEXT, digest TEXT, line TEXT,
        PRIMARY KEY (device, op, run)""",
    "cases": """device TEXT, op TEXT, case_id TEXT, suite TEXT, run TEXT, kernel_us DOUBLE PRECISION,
        reference_us DOUBLE PRECISION, speedup DOUBLE PRECISION, p99_abs DOUBLE PRECISION, figures TEXT,
        PRIMARY KEY (device, op, case_id, suite, run)""",
    "verdicts": """device TEXT, op TEXT, case_id TEXT, suite TEXT, target TEXT, run TEXT, verdict TEXT, gate TEXT,
        reason TEXT, said TEXT, change DOUBLE PRECISION, PRIMARY KEY (device, op, case_id, suite, target, run)""",
    "blocks": """device TEXT, op TEXT, case_id TEXT, run TEXT, process BIGINT, block BIGINT, arm TEXT, board TEXT,
        throttle TEXT, started_s DOUBLE PRECISION, launches BIGINT, median_us DOUBLE PRECISION,
        p25_us DOUBLE PRECISION, p75_us DOUBLE PRECISION, p95_us DOUBLE PRECISION, rsd DOUBLE PRECISION,
        sm_clock_mhz BIGINT, power_w DOUBLE PRECISION, temperature_c BIGINT,
        PRIMARY KEY (device, op, case_id, run, process, block, arm)""",
}
"""Columns of each table, in PostgreSQL and in DuckDB by the same words. A run is one op's, on a device."""

_OF_OP = "WHERE device = %(device)s AND op = %(op)s"
_PLACE = re.compile(r"%\((\w+)\)s")  # of a value in a statement, as PostgreSQL's driver has it
_ZERO = re.compile(rb"(?<!\\)\\u0000")  # PostgreSQL has no text with it


@dataclass(frozen=True)
class HistoryStore:
    """Tables of runs, cases, verdicts and blocks, in a server or in a folder."""

    connection: Any  # of psycopg, whose statements act at once, or of DuckDB
    folder: Path | None  # of Parquet files. None if a server has the tables

    @contextmanager
    def take_turn(self) -> Iterator[None]:
        """Nothing else writes until it ends. A server keeps all that is written within or nothing."""
        if self.folder:
            with held(self.folder):
                yield
            return
        with self.connection.transaction():
            self.connection.execute("LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE")
            yield

    def replace(self, table: str, device: str, op: str, gone: Collection[str], rows: Iterable[Any]) -> None:
        """Replaces what a table has of some of an op's runs by these rows, mappings of every column."""
        if self.folder:
            path = baseline_path(self.folder / table, device, op).with_name(f"{op}.parquet")
            _rewrite(self.connection, table, path, gone, rows)
            return
        values = {"device": device, "op": op, "gone": list(gone)}
        self.connection.execute(f"DELETE FROM {table} {_OF_OP} AND run = ANY(%(gone)s)", values)
        insert = f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, CAST(%(rows)s AS json))"
        batch = list(rows)
        for at in range(0, len(batch), AT_ONCE):  # as one value: four times as fast as row by row
            text = _ZERO.sub(b"", codec.encode(batch[at : at + AT_ONCE])).decode()
            self.connection.execute(insert, {"rows": text})

    def ask(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Returns all rows. Each value stands in the statement as `%(name)s`."""
        if self.folder:
            statement = _PLACE.sub(r"$\1", statement)
        rows: list[tuple[Any, ...]] = self.connection.execute(statement, values or None).fetchall()
        return rows

    def read_places(self, device: str, op: str) -> dict[str, tuple[int, str | None]]:
        """Returns run -> its place among the op's runs and the digest of its line, None if it was not accepted."""
        rows = self.ask(f"SELECT run, position, digest FROM runs {_OF_OP}", device=device, op=op)
        return {run: (position, digest) for run, position, digest in rows}

    def list_ops(self) -> dict[str, list[str]]:
        """Returns device -> ops that have accepted runs there, by name."""
        ops: dict[str, list[str]] = {}
        for device, op in sorted(self.ask("SELECT DISTINCT device, op FROM runs WHERE accepted")):
            ops.setdefault(device, []).append(op)
        return ops

    def read_history(self, device: str, op: str, newest: int | None = None) -> History:
        """Returns an op's accepted runs in the order of acceptance, with the present names of cases.

        newest: runs that have their figures. None for all.
        """

        def read(name: str) -> History:
            of_op = {"device": device, "op": name}
            lines = self.ask(f"SELECT line FROM runs {_OF_OP} AND accepted ORDER BY position", **of_op)
            runs = [codec.decode(line, HistoryRun) for (line,) in lines]
            # A copy that broke off between two files left cases with a run that comes with the next one.
            wanted = {run.run: dict[str, list[Any]]() for run in runs[-(newest or 0) :]}
            figures = f"SELECT run, suite, figures FROM cases {_OF_OP} AND run = ANY(%(runs)s) ORDER BY case_id"
            for run, suite, text in self.ask(figures, **of_op, runs=list(wanted)):
                field, record = SUITES[suite]
                wanted[run].setdefault(field, []).append(codec.decode(text, record))
            lists = [{field: tuple(items) for field, items in wanted.get(run.run, {}).items()} for run in runs]
            full = (replace(run, **cast(Any, fields)) for run, fields in zip(runs, lists, strict=True))
            return History(name, device, tuple(full))

        return follow_names(read, op)


@contextmanager
def open_store(url: str) -> Iterator[HistoryStore]:
    """Opens postgresql://USER@HOST/DATABASE or parquet:FOLDER, and makes its tables.

    Raises UsageError for another URL, and StoredFileError for a store that is newer than this perfci or that fails,
    also later on.
    """
    scheme, _, rest = url.partition(":")
    if not rest or scheme not in {"parquet", "postgresql"}:
        raise UsageError("store_url", scheme=scheme)  # only the scheme: a password may be in the rest
    shown = url if scheme == "parquet" else _hide_password(url)
    try:
        if scheme == "parquet":
            with closing(duckdb.connect()) as connection:
                _look_into(Path(rest), connection)
                yield HistoryStore(connection, Path(rest))
            return
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            _make_tables(connection)
            yield HistoryStore(connection, None)
    except (duckdb.Error, psycopg.Error, OSError) as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise StoredFileError("store_failed", url=shown, why=why[0]) from error


def _hide_password(url: str) -> str:
    """Returns a server's URL without all that may be a password. Raises UsageError if it is none."""
    try:
        about = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise UsageError("store_url", scheme="postgresql") from None  # the original quotes the URL
    return "postgresql://{}@{}/{}".format(*(about.get(name) or "" for name in ("user", "host", "dbname")))


def _make_tables(server: psycopg.Connection[Any]) -> None:
    """Makes what a server lacks. One with tables is only read, so that a user who may only read can build a site."""
    with server.transaction():
        rows = server.execute("SELECT to_regclass('store_format')").fetchall()
        if rows != [(None,)]:
            ((found,),) = server.execute("SELECT max(format) FROM store_format").fetchall()
            if found > FORMAT:
                raise StoredFileError("store_too_new", found=found, supported=FORMAT)
            return
        for table, columns in TABLES.items():
            server.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})".encode())
        server.execute("CREATE INDEX IF NOT EXISTS verdicts_run ON verdicts (run)")
        server.execute(f"CREATE TABLE store_format AS SELECT {FORMAT} AS format".encode())


def _look_into(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Makes views of a folder's files, of which each table has one without rows."""
    head = folder / HEAD
    if made_before := head.exists():
        decode(head, FormatHead)  # which refuses what is newer
    for table, columns in TABLES.items():
        empty = folder / table / "-" / "none.parquet"  # no device is called "-"
        if not made_before:
            with TemporaryDirectory() as place:
                made = Path(place, empty.name)
                connection.execute(f"CREATE TEMP TABLE made ({columns}); COPY made TO {_quote(made)}; DROP TABLE made")
                write_atomically(empty, read_regular(made))
        files = f"read_parquet({_quote(folder / table / '*' / '*.parquet')}, union_by_name = true)"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {files}")
    write_atomically(head, encode(FormatHead(FORMAT), head))


def _rewrite(
    connection: duckdb.DuckDBPyConnection, table: str, path: Path, gone: Collection[str], rows: Iterable[Any]
) -> None:
    """Writes an op's file of a table anew. Values come from files too: none is part of a statement."""
    types = {str(row[0]): str(row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall()}
    with TemporaryDirectory() as place:

        def read(name: str, lines: Iterable[Any], types: Mapping[str, str]) -> str:
            Path(place, name).write_bytes(b"\n".join(map(codec.encode, lines)))
            options = f"format = 'newline_delimited', maximum_object_size = 67108864, columns = {types}"
            return f"read_json({_quote(Path(place, name))}, {options})"

        left_out = f"SELECT run FROM {read('gone', ({'run': run} for run in gone), {'run': 'TEXT'})}"
        kept = f"SELECT * FROM read_parquet({_quote(path)}) WHERE run NOT IN ({left_out}) UNION ALL BY NAME "
        both = kept * path.exists() + f"SELECT * FROM {read('new', rows, types)}"
        made = Path(place, "made.parquet")
        connection.execute(f"COPY ({both} ORDER BY ALL) TO {_quote(made)} (FORMAT parquet)")
        write_atomically(path, read_regular(made))


def _quote(path: Path) -> str:
    return "'{}'".format(str(path).replace("'", "''"))


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
