"""A store for more history than git should keep: PostgreSQL, or Parquet files that DuckDB reads. Home of SQLAlchemy.

The JSON lines in git stay the truth. A store takes copies, forgets none of them, and answers the same statements in
either form. Everything is written op by op: an op's runs are there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from perfci.core import codec
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import FORMAT, HistoryAccuracy, HistoryCase, HistoryRun, HistoryStored
from perfci.ops.spec import matches
from perfci.store import baseline_path
from perfci.store.files import FormatHead, decode, encode, write_atomically
from perfci.store.history import History, follow_names, held

HEAD = "store.json"  # in a folder of Parquet files: the format, so that an older perfci knows what it cannot read
AT_ONCE = 10_000  # rows
SUITES: Mapping[str, tuple[str, type]] = {
    "performance": ("cases", HistoryCase),
    "accuracy": ("accuracy", HistoryAccuracy),
    "stored": ("stored", HistoryStored),
}
"""`suite` of a row in `cases` -> the list of a history's line that it comes from, and the record in its `figures`."""

META = sa.MetaData()


def _make_table(name: str, keys: str, others: str) -> sa.Table:
    """A table of an op's runs on a device model. Columns are text, unless they are named here."""
    kinds: dict[str, Any] = dict.fromkeys(("process", "block", "position"), sa.BigInteger)
    kinds |= dict.fromkeys(_NUMBERS.split(), sa.Double)
    kinds |= {"accepted": sa.Boolean, "created": sa.DateTime(timezone=True)}
    key = [sa.Column(each, kinds.get(each, sa.Text), primary_key=True, autoincrement=False) for each in keys.split()]
    return sa.Table(name, META, *key, *(sa.Column(each, kinds.get(each, sa.Text)) for each in others.split()))


_NUMBERS = (
    "kernel_us reference_us speedup p99_abs change started_s launches median_us p25_us p75_us p95_us rsd sm_clock_mhz "
    "power_w temperature_c"
)
# position: a clock may be wrong, so this orders runs. line: a history's line as JSON, without its cases
RUNS = _make_table("runs", "device op run", "position accepted created revision branch board timer digest line")
# Of accepted runs. figures: the whole record, as JSON
CASES = _make_table("cases", "device op case_id suite run", "kernel_us reference_us speedup p99_abs figures")
# Of every run, accepted or not. An op as a whole has no case_id, a device at hand no target
VERDICTS = _make_table("verdicts", "device op case_id suite target run", "verdict gate reason said change")
BLOCKS = _make_table(
    "blocks",
    "device op case_id run process block arm",
    "board throttle started_s launches median_us p25_us p75_us p95_us rsd sm_clock_mhz power_w temperature_c",
)


@dataclass(frozen=True)
class Turn:
    """The right to write: nobody else does until it ends, and then everything is there."""

    connection: sa.Connection
    folder: Path | None

    def replace(self, table: sa.Table, device: str, op: str, gone: Collection[str], rows: Iterable[Any]) -> None:
        """Replaces what a table has of some of an op's runs by these rows, mappings of every column."""
        if self.folder:
            self._rewrite(table, baseline_path(self.folder / table.name, device, op), gone, rows)
            return
        mine = sa.and_(table.c.device == device, table.c.op == op, table.c.run.in_(gone))
        self.connection.execute(table.delete().where(mine))
        found = [{name: _clean(value) for name, value in row.items()} for row in rows]
        insert = sa.text(
            f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json))"
        )
        for at in range(0, len(found), AT_ONCE):  # as one value: four times as fast as row by row
            self.connection.execute(insert, {"rows": codec.encode(found[at : at + AT_ONCE]).decode()})

    def _rewrite(self, table: sa.Table, path: Path, gone: Collection[str], rows: Iterable[Any]) -> None:
        """An op has one file for each table. Values come from files too: none is part of a statement."""
        path = path.with_name(f"{path.name.removesuffix('.json')}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.tmp")
        types = {each.name: each.type.compile(self.connection.dialect) for each in table.columns}
        with TemporaryDirectory() as place:
            new, old = Path(place, "new"), Path(place, "old")
            new.write_bytes(b"\n".join(map(codec.encode, rows)))
            old.write_bytes(b"\n".join(codec.encode({"run": run}) for run in gone))
            left_out = f"SELECT run FROM {_read_json(old, {'run': 'TEXT'})}"
            kept = f"SELECT * FROM read_parquet({_quote(path)}) WHERE run NOT IN ({left_out}) UNION ALL BY NAME "
            both = kept * path.exists() + f"SELECT * FROM {_read_json(new, types)}"
            order = "position" if table is RUNS else "case_id"
            self.connection.exec_driver_sql(f"COPY ({both} ORDER BY {order}) TO {_quote(beside)} (FORMAT parquet)")
        beside.replace(path)


@dataclass(frozen=True)
class HistoryStore:
    """Tables of runs, cases, verdicts and blocks, in a server or in a folder."""

    engine: sa.Engine
    folder: Path | None  # of Parquet files. None if a server has the tables

    @contextmanager
    def take_turn(self) -> Iterator[Turn]:
        """Writers take turns. What is written within is kept together, or in Parquet files table by table."""
        if self.folder:
            with held(self.folder), self.engine.connect() as connection:
                yield Turn(connection, self.folder)
            return
        with self.engine.begin() as connection:
            connection.execute(sa.text("LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE"))
            yield Turn(connection, None)

    def ask(self, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
        """Returns all rows."""
        with self.engine.connect() as connection:
            return list(connection.execute(statement))

    def read_known(self, device: str, op: str) -> dict[str, tuple[int, str | None]]:
        """Returns run -> its place among the op's runs and the digest of its line, None if it was not accepted."""
        mine = sa.and_(RUNS.c.device == device, RUNS.c.op == op)
        found = self.ask(sa.select(RUNS.c.run, RUNS.c.position, RUNS.c.digest).where(mine))
        return {row.run: (row.position, row.digest) for row in found}

    def list_ops(self) -> dict[str, list[str]]:
        """Returns device -> ops that have accepted runs there, by name."""
        found: dict[str, list[str]] = {}
        for row in sorted(self.ask(sa.select(RUNS.c.device, RUNS.c.op).where(RUNS.c.accepted).distinct())):
            found.setdefault(row.device, []).append(row.op)
        return found

    def read_history(self, device: str, op: str, pattern: str | None = None) -> History:
        """Returns an op's accepted runs in the order of acceptance, with the present names of cases.

        pattern: of the cases that are wanted. Others may be among them.
        """
        former: set[str] = set()  # names that cases had before

        def read(name: str) -> History:
            lines = sa.select(RUNS.c.line).where(RUNS.c.device == device, RUNS.c.op == name, RUNS.c.accepted)
            runs = [codec.decode(row.line, HistoryRun) for row in self.ask(lines.order_by(RUNS.c.position))]
            former.update(old for run in runs for old in run.renamed.values())
            mine = sa.and_(CASES.c.device == device, CASES.c.op == name)
            rows = sa.select(CASES.c.run, CASES.c.suite, CASES.c.figures).where(mine)
            if pattern is not None:
                known = [row.case_id for row in self.ask(sa.select(CASES.c.case_id).where(mine).distinct())]
                wanted = [case for case in known if case in former or matches(case, pattern)]
                rows = rows.where(CASES.c.case_id.in_(wanted))
            lists: dict[str, dict[str, list[Any]]] = {run.run: {} for run in runs}
            # A copy that broke off between two files left cases whose run comes with the next one.
            for row in self.ask(rows.order_by(CASES.c.case_id)):
                (field, record), own = SUITES[row.suite], lists.setdefault(row.run, {})
                own.setdefault(field, []).append(codec.decode(row.figures, record))
            full = [
                replace(run, **{field: cast(Any, tuple(own)) for field, own in lists[run.run].items()}) for run in runs
            ]
            return History(name, device, tuple(full))

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
            folder = Path(rest) if scheme == "parquet" else None
            _open_folder(engine, folder) if folder else _migrate(engine)
            yield HistoryStore(engine, folder)
    except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
        why = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
        raise StoredFileError("store_failed", url=shown, why=why[0]) from error


def _migrate(engine: sa.Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    known = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]  # the newest first
    with engine.begin() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known:
            raise StoredFileError("store_too_new", found=found, supported=known[0])
        if found != known[0]:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7373)"))  # two may come first at once
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _open_folder(engine: sa.Engine, folder: Path) -> None:
    head = folder / HEAD
    with engine.connect() as connection:
        if head.exists():
            decode(head, FormatHead)  # which refuses what is newer
        else:
            META.create_all(connection)
            for table in META.sorted_tables:  # A file without rows has today's columns. No device is called "-".
                (folder / table.name / "-").mkdir(parents=True, exist_ok=True)
                connection.exec_driver_sql(f"COPY {table} TO {_quote(folder / table.name / '-' / 'none.parquet')}")
            META.drop_all(connection)
            write_atomically(head, encode(FormatHead(FORMAT), head))
        for table in META.sorted_tables:
            files = f"read_parquet({_quote(folder / table.name / '*' / '*.parquet')}, union_by_name = true)"
            connection.exec_driver_sql(f"CREATE VIEW {table} AS SELECT * FROM {files}")
        connection.commit()


def _read_json(path: Path, types: Mapping[str, str]) -> str:
    """Types: of the columns, by name. A line may have 64 MiB."""
    options = f"format = 'newline_delimited', maximum_object_size = 67108864, columns = {dict(types)}"
    return f"read_json({_quote(path)}, {options})"


def _quote(text: object) -> str:
    return "'{}'".format(str(text).replace("'", "''"))


def _clean(value: Any) -> Any:
    """PostgreSQL has no text with a zero in it."""
    return value.replace("\0", "\\0") if isinstance(value, str) else value
