"""A store for more history than git should keep: PostgreSQL, or Parquet files that DuckDB reads.

The JSON lines in git stay the truth. A store takes copies and keeps what git drops. The same statements serve both.
Every copy is of one op: its runs are there as a whole or not at all.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict

from perfci.core import codec
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, HistoryAccuracy
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored
from perfci.extensions.common.history import History, follow_names
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
