"""The gate's questions: stored tensors are listed, checked, put beside accepted runs and judged."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.errors import StoredFileError
from perfci.core.model import Fact, Judgement, OpRun, Reason, Run, StoredTensor, Suite, Verdict
from perfci.core.settings import Settings
from perfci.extensions.common.history import read_history
from perfci.extensions.lowprec.advice import add_history, families, find_cause, way
from perfci.extensions.lowprec.declared import check_stored_tensors, list_stored_cases
from perfci.extensions.lowprec.figures import FORMATS
from perfci.judge.figures import show_command
from perfci.measure.stored import StoredChecks
from perfci.thresholds.limits import Thresholds

Limits = Mapping[str, float | None]


def judge_stored(op: OpRun, device: str, limits: Thresholds) -> Iterator[Judgement]:
    """Yields a row for each stored tensor with a figure beyond its limit. With a fixed seed there is no noise."""
    ways = families(op.stored)
    for tensor in op.stored:
        limit = vars(limits.for_case(op.op, tensor.case))
        beyond = find_beyond(tensor, limit)
        if not beyond:
            continue
        figure, value = beyond[0], _find_figures(tensor)[beyond[0]]
        facts: dict[str, Fact] = {
            "op": op.op, "case": tensor.case, "figure": figure, "value": value, "limit": limit[figure],
            "shown": _write(figure, value), "allowed": _write(figure, limit[figure]), "beyond": len(beyond),
            "source": limits.origin(op.op, tensor.case, figure, device),
            "command": show_command(op.op, tensor.case),
        }  # fmt: skip
        reason = Reason(f"stored_beyond_{find_cause(tensor)}", facts | _list_statistics(tensor))
        advised = advise(tensor, ways[tensor.family], limit)
        yield Judgement(op.op, Suite.ACCURACY, tensor.case, Verdict.WRONG, (reason, *((advised,) if advised else ())))


def _find_figures(tensor: StoredTensor) -> dict[str, float]:
    """Figures that have limits."""
    p99 = tensor.errors.p99_abs or 0.0
    return {"stored_p99": p99, "clip_ratio": tensor.clip_ratio, "divergence": tensor.divergence}


def find_beyond(tensor: StoredTensor, limits: Limits) -> list[str]:
    """Returns the figures beyond their limits, the one that is the most times its limit first."""
    shares: dict[str, float] = {}
    for figure, value in _find_figures(tensor).items():
        limit = limits.get(figure)
        if limit is not None and value > limit:
            shares[figure] = value / limit if limit else float("inf")
    return sorted(shares, key=lambda figure: -shares[figure])


def advise(tensor: StoredTensor, ways: Sequence[StoredTensor], limits: Limits) -> Reason | None:
    """Returns which of `ways`, all of the tensor's family, to take, by this run. None for divergence alone."""
    without = {**limits, "divergence": None}
    beyond = find_beyond(tensor, without)
    if not beyond:
        return None
    facts: dict[str, Fact] = {"case": tensor.case, "figure": beyond[0], "ways": len(ways)}
    if len(ways) == 1:
        return Reason("stored_advice_alone", facts)
    # The fewest bytes of scales, in the same dtype if one way keeps the limits in that. Else the least of the figure.
    fitting = [way for way in ways if not find_beyond(way, without)]
    if fitting:
        best = min(
            fitting, key=lambda other: (other.dtype != tensor.dtype, other.scale_bytes, other.errors.p99_abs or 0.0)
        )
    else:
        best = min(ways, key=lambda way: _find_figures(way)[beyond[0]])
    facts |= {"way": way(best), "shown": _write(beyond[0], _find_figures(best)[beyond[0]])}
    facts |= {"scale_bytes": best.scale_bytes, "now_bytes": tensor.scale_bytes}
    return Reason("stored_advice_to" if fitting else "stored_advice_none", facts)


def _write(figure: str, value: float | None) -> str:
    if value is None:
        return "-"
    return units.percent(value) if figure == "clip_ratio" else units.significant(value)


def _list_statistics(tensor: StoredTensor) -> dict[str, Fact]:
    """The statistics by which causes are found."""
    last, channels, form = tensor.before[-1] if tensor.before else None, tensor.channels, FORMATS.get(tensor.dtype)
    return {
        "dtype": tensor.dtype, "mode": tensor.mode, "largest": form.largest if form else None,
        "clip": tensor.clip_ratio, "lost": tensor.lost_ratio, "load": tensor.load.most, "amax": tensor.amax.most,
        "groups": tensor.groups,
        "extreme": channels.extreme if channels else 0, "channels": channels.count if channels else 0,
        "ratio": channels.ratio if channels else 0.0, "axis": channels.axis if channels else None,
        "mean": tensor.errors.mean_abs, "p99": tensor.errors.p99_abs,
        "mean_accepted": last.mean_abs if last else None, "p99_accepted": last.p99_abs if last else None,
        "since": last.created[:10] if last else None,
    }  # fmt: skip


def add_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """Returns the op with its stored tensors beside the device model's history, from where the rules are read."""
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:  # accepting and `perfci history` report it
        return op
    earlier = [line for line in history if line.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(tensor, earlier) for tensor in op.stored))


CHECKS = StoredChecks(list_stored_cases, check_stored_tensors, add_accepted, judge_stored)
