"""What was measured as flat tables, and the files that they are written to.

A row a block and arm, or a row a tensor that is stored in low precision.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfci.core.errors import MissingPackageError
from perfci.core.model import Judgements, Run, Suite, Verdict
from perfci.ops.spec import STORED as TENSOR
from perfci.report import frame, lowprec, rows

if TYPE_CHECKING:
    import pandas as pd

TEXT, WHOLE, NUMBER, TRUTH = "string", "Int64", "float64", "boolean"
"""Types of columns. A missing number or text is missing, never 0."""


@dataclass(frozen=True)
class Column:
    """What a column holds."""

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
    "dtype": Column(TEXT, "the case's own dtype"),
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
    "p95_us": Column(NUMBER, "95th percentile, microseconds"),
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

_RUN = ("run", "created", "perfci", "commit", "dirty", "base", "device")

STORED: Mapping[str, Column] = {
    **{name: COLUMNS[name] for name in _RUN},
    "board": Column(TEXT, "UUID of the board of the run"),
    "op": COLUMNS["op"],
    "case": Column(TEXT, "id of the stored tensor: stored=a,m=128,scaling=row,dtype=float8_e4m3fn"),
    "tensor": Column(TEXT, "the op's name for it"),
    "mode": Column(TEXT, "how it is scaled: tensor, row, group"),
    "dtype": Column(TEXT, "of the stored values"),
    "family": Column(TEXT, "the same for all ways of storing the same tensor"),
    "seed": Column(WHOLE, "of the inputs"),
    "values": Column(WHOLE, "originals that are finite, which the errors are over"),
    "p50_abs": Column(NUMBER, "median absolute error of what is stored against the originals"),
    "p90_abs": Column(NUMBER, "its 90th percentile"),
    "p99_abs": Column(NUMBER, "its 99th percentile"),
    "max_abs": Column(NUMBER, "its greatest"),
    "mean_abs": Column(NUMBER, "its mean"),
    "rmse": Column(NUMBER, "root of the mean squared error"),
    "mean_rel": Column(NUMBER, "mean relative error, over originals other than 0"),
    "max_rel": Column(NUMBER, "greatest relative error"),
    "l2": Column(NUMBER, "relative error in the L2 norm"),
    "clip_ratio": Column(NUMBER, "share of the originals beyond the scale times the dtype's largest number"),
    "lost_ratio": Column(NUMBER, "share of the originals other than 0 that are stored as 0"),
    "divergence": Column(NUMBER, "of the errors' histogram from the newest accepted run's, nats; 0 where none is"),
    "groups": Column(WHOLE, "scales that are stored"),
    "scale_bytes": Column(WHOLE, "what the scales take, bytes"),
    "amax_least": Column(NUMBER, "largest magnitude of a group's originals: least over the groups"),
    "amax_median": Column(NUMBER, "median of it"),
    "amax_most": Column(NUMBER, "greatest of it"),
    "scale_least": Column(NUMBER, "least scale of a group"),
    "scale_median": Column(NUMBER, "median scale"),
    "scale_most": Column(NUMBER, "greatest scale"),
    "load_least": Column(NUMBER, "amax / (scale * the dtype's largest number): least over the groups"),
    "load_median": Column(NUMBER, "median of it"),
    "load_most": Column(NUMBER, "greatest of it; above 1 a group's largest values are clipped"),
    "channel_axis": Column(WHOLE, "axis along which slices differ most; with the next three missing where none has 8"),
    "channels": Column(WHOLE, "slices along it"),
    "extreme_channels": Column(WHOLE, "of them: largest magnitude 10 times the median of all or more"),
    "channel_ratio": Column(NUMBER, "greatest of the slices' largest magnitudes / their median"),
    "accepted_run": Column(TEXT, "id of the newest accepted run that has the tensor"),
    "accepted_p99_abs": Column(NUMBER, "what that run had"),
    "accepted_mean_abs": Column(NUMBER, "what that run had"),
    "accepted_clip_ratio": Column(NUMBER, "what that run had"),
}
"""The same of the table of stored tensors."""

STORED_VERDICTS: Mapping[str, Column] = {
    "verdict": Column(TEXT, "WRONG where a figure is beyond its limit, by the rules at hand, else PASS"),
    "reason": Column(TEXT, "kind of the reason, which names the likely cause"),
    "figure": Column(TEXT, "that is furthest beyond its limit: stored_p99, clip_ratio, divergence"),
    "limit": Column(NUMBER, "of that figure"),
}
"""The same."""

PARAMETER = "param."
"""What the name of a parameter's column begins with: param.rows."""

FORMULA = ("=", "+", "-", "@", "\t")
"""What a spreadsheet takes for the beginning of a formula."""

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def tabulate(run: Run, judgements: Judgements | None = None) -> pd.DataFrame:
    """One row a block and arm, with COLUMNS, a column a parameter, and with judgements VERDICTS.

    A parameter's column holds whole numbers if all of its values are, else numbers, truth values or text.
    """
    return tabulate_blocks([(run, judgements)])


def tabulate_blocks(runs: Sequence[tuple[Run, Judgements | None]]) -> pd.DataFrame:
    """The tables of several runs, one behind the other."""
    return _set_types(frame.join([_merge_blocks(run, judgements) for run, judgements in runs]), COLUMNS, VERDICTS)


def tabulate_stored(runs: Sequence[tuple[Run, Judgements | None]]) -> pd.DataFrame:
    """One row a tensor that an op stores in low precision, of several runs one behind the other.

    With STORED, a column a parameter, and with judgements STORED_VERDICTS. What could not be stored as it was declared
    has no figures, and so no row.
    """
    found = frame.join([_merge_stored(run, judgements) for run, judgements in runs])
    return _set_types(found, STORED, STORED_VERDICTS)


def to_csv(found: pd.DataFrame) -> bytes:
    r"""The table as CSV: UTF-8, a line of names, \n at the end of lines, nothing if a value is missing.

    Names come from the repository that was measured, so a text that a spreadsheet would take for a formula gets an
    apostrophe in front, and what a terminal obeys or does not show is spelt out, a carriage return as `\r`.
    """
    texts = [name for name in found.columns if found[name].dtype == TEXT]
    safe = found.assign(**{name: found[name].map(_disarm, na_action="ignore") for name in texts})
    return str(safe.rename(columns=_disarm).to_csv(index=False, lineterminator="\n")).encode(errors="backslashreplace")


def to_parquet(found: pd.DataFrame) -> bytes:
    """The table as Parquet, texts as they are. Raises MissingPackageError without pyarrow."""
    try:
        import pyarrow  # noqa: F401 - pandas writes with it, and says less well that it is missing

        buffer = io.BytesIO()
        found.to_parquet(buffer, engine="pyarrow", index=False)
    except ImportError as error:
        raise MissingPackageError("parquet_needs_pyarrow") from error
    return buffer.getvalue()


def read_parameters(case: str) -> dict[str, str]:
    """The parameters that a case's id holds, as text.

    >>> read_parameters("rows=4096,dtype=float16")
    {'rows': '4096', 'dtype': 'float16'}
    """
    parts = (part.partition("=") for part in case.split(","))
    return {name: value for name, equals, value in parts if equals}


_Case = tuple[str, str]


def _merge_blocks(run: Run, judgements: Judgements | None) -> pd.DataFrame:
    """The run's blocks, and what is known of the run and of each case beside them."""
    where = run.environment
    about = {**_describe_run(run), "timer": where.timer}
    blocks = frame.tabulate_blocks(run)
    about["board"] = [board if isinstance(board, str) else where.device.uuid for board in blocks["board"]]
    about["throttle"] = [";".join(reasons) or None for reasons in blocks["throttle"]]
    columns: dict[str, dict[_Case, object]] = {"cache": {}}
    for op in run.ops:
        for case in op.performance:
            columns["cache"][op.op, case.case] = case.cache
            for name, value in read_parameters(case.case).items():
                columns.setdefault(PARAMETER + name, {})[op.op, case.case] = value
    if judgements is not None:
        judged = {
            (row.op, row.case or ""): row for row in judgements.rows if row.suite is Suite.PERFORMANCE and row.case
        }
        changes = {case: rows.find_change(row) for case, row in judged.items()}
        columns["verdict"] = {case: str(row.verdict) for case, row in judged.items()}
        columns["reason"] = {case: row.reasons[0].kind for case, row in judged.items() if row.reasons}
        columns["change"] = {case: change.value for case, change in changes.items() if change}
    cases = list(zip(blocks["op"], blocks["case"], strict=True))
    for name, values in columns.items():
        about[name] = [values.get(case) for case in cases]
    return blocks.assign(**about)


def _merge_stored(run: Run, judgements: Judgements | None) -> pd.DataFrame:
    """The run's stored tensors, and what is known of the run and of each beside them."""
    found = frame.tabulate_stored(run)
    about = {**_describe_run(run), "board": run.environment.device.uuid}
    own = [read_parameters(case) for case in found["case"]]
    # The tensor has a column of its own.
    names = [name for name in dict.fromkeys(name for each in own for name in each) if name != TENSOR]
    about |= {PARAMETER + name: [each.get(name) for each in own] for name in names}
    if judgements is not None:
        # Those beyond their limits have a verdict of their own. All others are within.
        beyond = {op: lowprec.find_beyond([row for row in judgements.rows if row.op == op]) for op in set(found["op"])}
        why = [beyond[op].get(case) for op, case in zip(found["op"], found["case"], strict=True)]
        about["verdict"] = [str(Verdict.WRONG if reason else Verdict.PASS) for reason in why]
        about["reason"] = [reason.kind if reason else None for reason in why]
        about["figure"] = [reason.facts.get("figure") if reason else None for reason in why]
        about["limit"] = [reason.facts.get("limit") if reason else None for reason in why]
    return found.assign(**about)


def _describe_run(run: Run) -> dict[str, Any]:
    where, base = run.environment, run.plan.base
    return {
        "run": run.id,
        "created": run.created,
        "perfci": run.perfci,
        "commit": where.commit,
        "dirty": where.dirty,
        "base": base.commit if base else None,
        "device": where.device.key,
    }


def _set_types(found: pd.DataFrame, columns: Mapping[str, Column], judged: Mapping[str, Column]) -> pd.DataFrame:
    """The columns in order, each of its type."""
    names = list(columns)
    behind = names.index("case") + 1
    extra = [name for name in found.columns if name.startswith(PARAMETER)]
    verdicts = [name for name in judged if name in found.columns]
    types = {name: column.type for name, column in {**columns, **judged}.items()}
    ordered = found[[*names[:behind], *extra, *names[behind:], *verdicts]]
    for name in extra:
        types[name] = _find_type([value for value in ordered[name] if isinstance(value, str)])
    read = {name: ordered[name].map(_READERS[types[name]], na_action="ignore") for name in extra}
    counts = [name for name in ordered.columns if types[name] == WHOLE and name not in read]
    whole = {name: frame.to_integers(ordered[name]) for name in counts}
    return ordered.assign(**read, **whole).astype({name: types[name] for name in ordered.columns})


_READERS: Mapping[str, Callable[[str], object]] = {TEXT: str, WHOLE: int, NUMBER: float, TRUTH: "True".__eq__}


def _find_type(values: Sequence[str]) -> str:
    """What all values of a parameter are."""
    if all(map(_WHOLE.fullmatch, values)):
        return WHOLE
    if all(map(_NUMBER.fullmatch, values)):
        return NUMBER
    return TRUTH if set(values) <= {"True", "False"} else TEXT


def _disarm(text: str) -> str:
    text = _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
    return f"'{text}" if text.startswith(FORMULA) else text
