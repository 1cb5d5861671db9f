"""Measurements as a flat table, a row a block and arm, the files it is written to, and what `perfci.load` gives."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfci import store
from perfci.core import settings
from perfci.core.errors import MissingPackageError
from perfci.core.model import Judgements, Run, Suite, is_peer
from perfci.core.model.measured import find_median
from perfci.core.wording import sentence
from perfci.report import frame, rows
from perfci.report.data import pick
from perfci.runs.decide import decide
from perfci.store.launches import LaunchRow, read_launches

if TYPE_CHECKING:
    import pandas as pd


TEXT, WHOLE, NUMBER, TRUTH = "string", "Int64", "float64", "boolean"
"""Types of columns. A missing number or text is missing, never 0."""


@dataclass(frozen=True)
class Column:
    """The type of a column."""

    type: str
    holds: str


COLUMNS: Mapping[str, Column] = {
    "run": Column(TEXT, "id of the run"),
    "created": Column(TEXT, "when it began: ISO 8601, UTC"),
    "perfci": Column(TEXT, "version that measured"),
    "commit": Column(TEXT, "HEAD of the project under test"),
    "dirty": Column(TRUTH, "tracked files differed from that commit"),
    "base": Column(TEXT, "commit that the run was compared with"),
    "device": Column(TEXT, "device key: nvidia-h200"),
    "board": Column(TEXT, "UUID of the board that measured the block"),
    "timer": Column(TEXT, "activity, event or virtual; different timers are never compared"),
    "op": Column(TEXT, "the op"),
    "case": Column(TEXT, "id of the case"),
    "dtype": Column(TEXT, "the case's dtype"),
    "cache": Column(TEXT, "cold where L2 was flushed before each launch, warm where it was not"),
    "arm": Column(TEXT, "kernel, reference, base, or peer:NAME of a peer"),
    "process": Column(WHOLE, "0 the run's first look; 1, 2, ... fresh processes that measured again"),
    "block": Column(WHOLE, "number of the block within its process and case"),
    "started_s": Column(NUMBER, "seconds from the run's start to the block's"),
    "launches": Column(WHOLE, "launches of this arm in the block"),
    "median_us": Column(NUMBER, "median of their device times, microseconds: the observation that verdicts rest on"),
    "mean_us": Column(NUMBER, "mean, microseconds"),
    "min_us": Column(NUMBER, "least, microseconds"),
    "p05_us": Column(NUMBER, "5th percentile, microseconds"),
    "p25_us": Column(NUMBER, "25th percentile, microseconds"),
    "p75_us": Column(NUMBER, "75th percentile, microseconds"),
    "p90_us": Column(NUMBER, "90th percentile, microseconds. Missing of older runs"),
    "p95_us": Column(NUMBER, "95th percentile, microseconds"),
    "p99_us": Column(
        NUMBER, "99th percentile of the arm's launches in all blocks of the case, each block's shift taken out"
    ),
    "max_us": Column(NUMBER, "greatest, microseconds"),
    "rsd": Column(NUMBER, "sample standard deviation / mean"),
    "outliers": Column(WHOLE, "launches beyond the quartiles by more than 1.5 times their distance"),
    "span_us": Column(NUMBER, "median time from a launch's first start to its last end, microseconds"),
    "host_us": Column(NUMBER, "median time that the call itself kept the host busy, microseconds"),
    "activities": Column(WHOLE, "kernels, copies and memsets a launch"),
    "change_base": Column(NUMBER, "kernel / base - 1 in this block, Hodges-Lehmann; in the kernel's rows only"),
    "peer_ratio": Column(NUMBER, "peer / kernel in this block, Hodges-Lehmann; in a peer's rows only"),
    "sm_clock_mhz": Column(WHOLE, "clock of the processors beside the block, megahertz"),
    "memory_clock_mhz": Column(WHOLE, "clock of the memory, megahertz"),
    "power_w": Column(NUMBER, "watts"),
    "temperature_c": Column(WHOLE, "degrees Celsius"),
    "throttle": Column(TEXT, "why the clock was held down, joined by semicolons; missing where it was not"),
    "foreign_processes": Column(WHOLE, "processes of others on the device"),
    "memory_used_bytes": Column(WHOLE, "of the device's memory, by whomever"),
}
"""Every column that is always there, in order. Behind `case` come the case's parameters, one column each."""

VERDICTS: Mapping[str, Column] = {
    "verdict": Column(TEXT, "of the row's case, by the rules and baselines at hand"),
    "reason": Column(TEXT, "kind of the reason that decided"),
    "change": Column(NUMBER, "current / baseline - 1, or against the base where the case was timed beside it"),
}
"""Columns at the end, if verdicts are asked for."""

PARAMETER = "param."  # what the name of a parameter's column begins with: param.rows
FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet takes for the beginning of a formula

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def tabulate(runs: Sequence[tuple[Run, Judgements | None]]) -> pd.DataFrame:
    """The tables of several runs, one behind the other: COLUMNS, a column a parameter, and with judgements VERDICTS."""
    import pandas as pd

    blocks = [row for run, judgements in runs for row in list_blocks(run, judgements)]
    names = list(COLUMNS)
    behind = names.index("case") + 1
    extra = list(dict.fromkeys(name for row in blocks for name in row if name.startswith(PARAMETER)))
    judged = VERDICTS if any(judgements for _, judgements in runs) else ()
    types = {name: column.type for name, column in {**COLUMNS, **VERDICTS}.items()}
    ordered = pd.DataFrame(blocks, columns=[*names[:behind], *extra, *names[behind:], *judged])
    for name in extra:
        values = [value for value in ordered[name] if isinstance(value, str)]
        types[name] = (
            WHOLE if all(map(_WHOLE.fullmatch, values))
            else NUMBER if all(map(_NUMBER.fullmatch, values))
            else TRUTH if set(values) <= {"True", "False"}
            else TEXT
        )  # fmt: skip
    read = {name: ordered[name].map(_READERS[types[name]], na_action="ignore") for name in extra}
    return ordered.assign(**read).astype({name: types[name] for name in ordered.columns})


def to_csv(table: pd.DataFrame) -> bytes:
    """The table as CSV in UTF-8. No text is a formula to a spreadsheet, nor obeyed by a terminal: names are foreign."""
    texts = [name for name in table.columns if table[name].dtype == TEXT]
    safe = table.assign(**{name: table[name].map(_disarm, na_action="ignore") for name in texts})
    return str(safe.rename(columns=_disarm).to_csv(index=False, lineterminator="\n")).encode(errors="backslashreplace")


def to_parquet(table: pd.DataFrame) -> bytes:
    """The table as Parquet, texts as they are. Raises MissingPackageError without pyarrow."""
    try:
        import pyarrow  # noqa: F401 - pandas writes with it, and its message about a missing one is worse

        buffer = io.BytesIO()
        table.to_parquet(buffer, engine="pyarrow", index=False)
    except ImportError as error:
        raise MissingPackageError("parquet_needs_pyarrow") from error
    return buffer.getvalue()


def list_blocks(run: Run, judgements: Judgements | None = None) -> Iterator[dict[str, object]]:
    """Each arm of each block with what is known of its run and case, by the names of the columns, and of more."""
    where, base = run.environment, run.plan.base
    about = {**pick(run, "created perfci"), **pick(where, "commit dirty timer"), "run": run.id}
    about |= {"base": base.commit if base else None, "device": where.device.key}
    p99s = {(one.op, one.case, one.arm): one.p99_us for one in frame.pool_spreads(run)}
    timed = (row for row in judgements.rows if row.suite is Suite.PERFORMANCE) if judgements else ()
    judged = {(row.op, row.case): row for row in timed}
    for op, case in ((run_of_op.op, case) for run_of_op in run.ops for case in run_of_op.performance):
        parts = (part.partition("=") for part in case.case.split(","))
        row_about = about | {PARAMETER + name: value for name, equals, value in parts if equals}
        row_about |= {"op": op, "case": case.case, "dtype": case.dtype, "cache": case.cache}
        if row := judged.get((op, case.case)):
            change, why = rows.find_change(row), next((reason.kind for reason in row.reasons), None)
            row_about |= {"verdict": str(row.verdict), "reason": why, "change": change and change.value}
        # Of calls in a row, if they were made.
        hosts = {arm: [block.arms[arm] for block in case.host if arm in block.arms] for arm in ("kernel", "base")}
        host_us = {arm: find_median(block_arm.host_us for block_arm in timings) for arm, timings in hosts.items()}
        for block in case.blocks:
            row_about |= {**vars(block.state), "throttle": ";".join(block.state.throttle) or None}
            row_about |= pick(block, "process started_s", block=block.index, board=block.board or where.device.uuid)
            for arm, each in block.arms.items():
                timing = {"arm": arm, **vars(each.time), **pick(each, "span_us activities"), "p90_us": each.time.p90_us}
                timing |= {"host_us": host_us.get(arm) or each.host_us, "p99_us": p99s[op, case.case, arm]}
                if arm == "kernel" and "kernel/base" in block.shifts:
                    timing |= {"change_base": math.expm1(block.shifts["kernel/base"])}
                elif is_peer(arm) and f"kernel/{arm}" in block.shifts:
                    timing |= {"peer_ratio": math.exp(-block.shifts[f"kernel/{arm}"])}
                yield row_about | timing


def tabulate_launches(launch_rows: Iterable[LaunchRow]) -> pd.DataFrame:
    """Raw launches with the columns op, case, process, block, arm, us: one row a launch, in time order."""
    import pandas as pd

    records = [(row.op, row.case, row.process, row.block, row.arm, row.us) for row in launch_rows]
    table = pd.DataFrame.from_records(records, columns=["op", "case", "process", "block", "arm", "us"])
    return table.explode("us", ignore_index=True).astype({"us": "float64"}).dropna(subset=["us"])


_READERS: Mapping[str, Callable[[str], object]] = {TEXT: str, WHOLE: int, NUMBER: float, TRUTH: "True".__eq__}


def _disarm(text: str) -> str:
    text = _UNSEEN.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
    return f"'{text}" if text.startswith(FORMULA) else text


@dataclass(frozen=True)
class StoredRun:
    """A run as it was stored, its tables, and its verdicts.

    Every method raises `perfci.core.errors.PerfciError` if a file cannot be read. Its text has the remedy.
    """

    run: Run  # the record: every case with its blocks, checks and compiled kernels
    folder: Path  # where it lies
    project: Path  # a folder of the project with the thresholds and baselines that judge it

    @cached_property
    def judgements(self) -> Judgements:
        """The verdicts, by the thresholds and baselines that the project has now."""
        return decide(self.run, settings.load(self.project))

    def frame(self, *, verdicts: bool = False) -> pd.DataFrame:
        """One row a block and arm (docs/stored-files.md), times in us. verdicts: adds verdict, reason and change."""
        return tabulate([(self.run, self.judgements if verdicts else None)])

    def launches(self) -> pd.DataFrame:
        """One row a launch, in time order: op, case, process, block, arm, us. Warns if the file is torn."""
        kept = read_launches(self.folder)
        if kept.note:
            warnings.warn(sentence(kept.note), stacklevel=2)
        return tabulate_launches(kept.rows)


def read(path: Path, project: Path | None = None) -> StoredRun:
    """The run in a file, or in the folder that holds it. Raises StoredFileError."""
    folder = path if path.is_dir() else path.parent
    return StoredRun(store.read_run(path), folder, project or folder)
