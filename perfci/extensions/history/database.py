"""A store for more history than git should keep: PostgreSQL, or Parquet files that DuckDB reads. Home of SQLAlchemy.

The JSON lines in git stay the truth. A store takes copies and keeps what git drops. The same statements serve both.
Every copy is of one op: its runs are there as a whole or not at all.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.ddl.impl import DefaultImpl
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from perfci.core import codec
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, HistoryAccuracy, HistoryCase, HistoryRun, HistoryStored
from perfci.ops.spec import matches
from perfci.store import baseline_path
from perfci.store.files import FormatHead, decode, encode, write_atomically
from perfci.store.history import History, follow_names, held

TABLES = ("runs", "cases", "verdicts", "blocks")
HEAD = "store.json"  # in a folder of Parquet files: the format, so that an older perfci knows what it cannot read
AT_ONCE = 10_000  # rows
SUITES: Mapping[str, tuple[str, type]] = {
    "performance": ("cases", HistoryCase),
    "accuracy": ("accuracy", HistoryAccuracy),
    "stored": ("stored", HistoryStored),
}
"""`suite` of a row in `cases` -> the list of a history's line that it comes from, and the record in its `figures`."""

_MINE = "WHERE device = :device AND op = :op"
_ZERO = re.compile(rb"(?<!\\)\\u0000")  # PostgreSQL has no text with it


class DuckDBMigrations(DefaultImpl):
    """Alembic knows DuckDB by this."""

    __dialect__ = "duckdb"


@dataclass(frozen=True)
class HistoryStore:
    """Tables of runs, cases, verdicts and blocks, in a server or in a folder."""

    engine: sa.Engine
    folder: Path | None  # of Parquet files. None if a server has the tables

    @contextmanager
    def take_turn(self) -> Iterator[sa.Connection]:
        """No one else writes until it ends. A server keeps all that is written within or nothing."""
        if self.folder:
            with held(self.folder), self.engine.connect() as connection:
                yield connection
            return
        with self.engine.begin() as connection:
            connection.execute(sa.text("LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE"))
            yield connection

    def replace(
        self, turn: sa.Connection, table: str, device: str, op: str, gone: Collection[str], rows: Iterable[Any]
    ) -> None:
        """Replaces what a table has of some of an op's runs by these rows, mappings of every column."""
        if self.folder:
            path = baseline_path(self.folder / table, device, op).with_name(f"{op}.parquet")
            _rewrite(turn, table, path, gone, rows)
            return
        mine = {"device": device, "op": op, "gone": list(gone)}
        turn.execute(*_bind(f"DELETE FROM {table} {_MINE} AND run IN :gone", mine))
        insert = f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json))"
        batch = list(rows)
        for at in range(0, len(batch), AT_ONCE):  # as one value: four times as fast as row by row
            text = _ZERO.sub(b"", codec.encode(batch[at : at + AT_ONCE])).decode()
            turn.execute(*_bind(insert, {"rows": text}))

    def ask(self, statement: str, **values: Any) -> list[sa.Row[Any]]:
        """Returns all rows. A value that is a list stands for any of its elements."""
        with self.engine.connect() as connection:
            return list(connection.execute(*_bind(statement, values)))

    def read_known(self, device: str, op: str) -> dict[str, tuple[int, str | None]]:
        """Returns run -> its place among the op's runs and the digest of its line, None if it was not accepted."""
        answers = self.ask(f"SELECT run, position, digest FROM runs {_MINE}", device=device, op=op)
        return {row.run: (row.position, row.digest) for row in answers}

    def list_ops(self) -> dict[str, list[str]]:
        """Returns device -> ops that have accepted runs there, by name."""
        ops: dict[str, list[str]] = {}
        for row in sorted(self.ask("SELECT DISTINCT device, op FROM runs WHERE accepted")):
            ops.setdefault(row.device, []).append(row.op)
        return ops

    def read_verdicts(self) -> list[sa.Row[Any]]:
        """Returns each case's newest verdict on the branch of accepted runs, of those that warn or fail.

        Of an op's runs only the last ten with verdicts count, so that a case which is gone is forgotten.
        """
        return self.ask(
            """
            SELECT * FROM (
              SELECT v.*, r.revision, r.created,
                row_number() OVER (PARTITION BY device, op, case_id, suite, target ORDER BY r.position DESC) AS age,
                dense_rank() OVER (PARTITION BY device, op ORDER BY r.position DESC) AS run_age
              FROM verdicts v JOIN runs r USING (device, op, run)
              WHERE r.accepted OR r.branch IS NULL OR r.branch IN (SELECT branch FROM runs WHERE accepted)
            ) AS newest WHERE age = 1 AND run_age <= 10 AND gate <> 'ok' ORDER BY device, op, case_id, suite, target
            """
        )

    def read_history(
        self, device: str, op: str, pattern: str | None = None,
        choose: Callable[[Sequence[HistoryRun]], Sequence[HistoryRun]] | None = None,
    ) -> History:  # fmt: skip
        """Returns an op's accepted runs in the order of acceptance, with the present names of cases.

        pattern: of the cases that are wanted. Others may be among them. choose: of the runs, oldest first, those to
        return with figures. The others have none.
        """
        former: set[str] = set()  # names that cases had before

        def read(name: str) -> History:
            mine: dict[str, Any] = {"device": device, "op": name}
            lines = self.ask(f"SELECT line FROM runs {_MINE} AND accepted ORDER BY position", **mine)
            runs = [codec.decode(row.line, HistoryRun) for row in lines]
            former.update(old for run in runs for old in run.renamed.values())
            among = ""
            if choose is not None:
                mine["chosen"], among = [run.run for run in choose(runs)], "AND run IN :chosen"
            if pattern is not None:
                kept = [row.case_id for row in self.ask(f"SELECT DISTINCT case_id FROM cases {_MINE}", **mine)]
                mine["wanted"] = [case for case in kept if case in former or matches(case, pattern)]
                among += " AND case_id IN :wanted"
            # A copy that broke off between two files left cases with a run that comes with the next one.
            lists: dict[str, dict[str, list[Any]]] = {run.run: {} for run in runs}
            for row in self.ask(f"SELECT run, suite, figures FROM cases {_MINE} {among} ORDER BY case_id", **mine):
                field, record = SUITES[row.suite]
                lists.setdefault(row.run, {}).setdefault(field, []).append(codec.decode(row.figures, record))
            full = [{field: tuple(items) for field, items in lists[run.run].items()} for run in runs]
            return History(
                name,
                device,
                tuple(replace(run, **cast(Any, fields_of)) for run, fields_of in zip(runs, full, strict=True)),
            )

        return follow_names(read, op)


@contextmanager
def open_store(url: str) -> Iterator[HistoryStore]:
    """Opens postgresql://USER@HOST/DATABASE or parquet:FOLDER, and makes or updates its tables.

    Raises UsageError for another URL, and StoredFileError for a store that is newer than this perfci or that fails,
    also later on.
    """
    scheme, _, rest = url.partition(":")
    if not rest or scheme not in {"parquet", "postgresql"}:
        raise UsageError("store_url", scheme=scheme)  # only the scheme: a password may be in the rest
    shown, closing = url, ExitStack()
    try:
        with closing:
            if scheme == "parquet":
                engine = sa.create_engine("duckdb:///:memory:", poolclass=sa.StaticPool)
            else:
                address = sa.make_url(url).set(drivername="postgresql+psycopg")
                shown = address.set(drivername=scheme).render_as_string()
                engine = sa.create_engine(address)
            closing.callback(engine.dispose)
            _migrate(engine)
            store = HistoryStore(engine, Path(rest) if scheme == "parquet" else None)
            if store.folder:
                _look_into(store.folder, engine)
            yield store
    except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
        why = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
        raise StoredFileError("store_failed", url=shown, why=why[0]) from error


def _migrate(engine: sa.Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    revisions = [
        revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()
    ]  # the newest first
    with engine.begin() as connection:
        current_revision = MigrationContext.configure(connection).get_current_revision()
        if current_revision is not None and current_revision not in revisions:
            raise StoredFileError("store_too_new", found=current_revision, supported=revisions[0])
        if current_revision != revisions[0]:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _look_into(folder: Path, engine: sa.Engine) -> None:
    """Replaces DuckDB's empty tables by views of a folder's files, of which each table has one without rows."""
    head = folder / HEAD
    if head.exists():
        decode(head, FormatHead)  # which refuses what is newer
    with engine.begin() as connection:
        for table in TABLES:
            empty = folder / table / "-" / "none.parquet"  # no device is called "-"
            if not head.exists():
                with TemporaryDirectory() as place:
                    connection.exec_driver_sql(f"COPY {table} TO {_quote(made := Path(place, empty.name))}")
                    write_atomically(empty, read_regular(made))
            files = f"read_parquet({_quote(folder / table / '*' / '*.parquet')}, union_by_name = true)"
            connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql(f"CREATE VIEW {table} AS SELECT * FROM {files}")
    write_atomically(head, encode(FormatHead(FORMAT), head))


def _rewrite(turn: sa.Connection, table: str, path: Path, gone: Collection[str], rows: Iterable[Any]) -> None:
    """Writes an op's file of a table anew. Values come from files too: none is part of a statement."""
    types = {str(row[0]): str(row[1]) for row in turn.exec_driver_sql(f"DESCRIBE {table}")}
    with TemporaryDirectory() as place:

        def read(name: str, lines: Iterable[Any], types: Mapping[str, str]) -> str:
            Path(place, name).write_bytes(b"\n".join(map(codec.encode, lines)))
            options = f"format = 'newline_delimited', maximum_object_size = 67108864, columns = {types}"
            return f"read_json({_quote(Path(place, name))}, {options})"

        left_out = f"SELECT run FROM {read('gone', ({'run': run} for run in gone), {'run': 'TEXT'})}"
        kept = f"SELECT * FROM read_parquet({_quote(path)}) WHERE run NOT IN ({left_out}) UNION ALL BY NAME "
        both = kept * path.exists() + f"SELECT * FROM {read('new', rows, types)}"
        made = Path(place, "made.parquet")
        turn.exec_driver_sql(f"COPY ({both} ORDER BY ALL) TO {_quote(made)} (FORMAT parquet)")
        write_atomically(path, read_regular(made))


def _bind(statement: str, values: Mapping[str, Any]) -> tuple[sa.TextClause, Mapping[str, Any]]:
    lists = (name for name, value in values.items() if isinstance(value, list))
    return sa.text(statement).bindparams(*(sa.bindparam(name, type_=sa.Text, expanding=True) for name in lists)), values


def _quote(path: Path) -> str:
    return "'{}'".format(str(path).replace("'", "''"))
