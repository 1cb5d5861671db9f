"""The judgements as plain data, for programs: what `--format json` prints. answer.schema.json describes every field."""

from __future__ import annotations

import math
from typing import Any

from perfci.core import wording
from perfci.core.model import Interval, Judgement, Judgements, Look, PeerFigure, Reason, Run
from perfci.report import rows

FORMAT = 1  # 1: the first


def to_json(judgements: Judgements, run: Run | None = None) -> dict[str, Any]:
    """The gate, the counts and every verdict with its reasons and numbers. `exit_code` is that of a run not strict."""
    found = rows.count_all(judgements)
    return {
        "format": FORMAT,
        "gate": str(found.gate),
        "exit_code": rows.EXIT_CODES[found.gate],
        "summary": rows.write_summary(judgements),
        "ops": found.ops,
        "counts": {str(verdict): count for verdict, count in found.verdicts},
        "run": _write_run(run) if run else None,
        "verdicts": [_write_row(row) for row in judgements.rows],
        "notes": [_reason(note) for note in judgements.notes],
    }


def _write_run(run: Run) -> dict[str, Any]:
    return {
        **_pick(run, "id", "created", "perfci"),
        "commit": run.environment.commit,
        "dirty": run.environment.dirty,
        "device": run.environment.device.key,
        "timer": run.environment.timer,
        "seed": run.plan.seed,
        "stopped": run.stopped,
        "base": run.plan.base.commit if run.plan.base else None,
    }


def _write_row(row: Judgement) -> dict[str, Any]:
    seen = row.comparison
    return {
        "op": row.op,
        "suite": str(row.suite),
        "case": row.case,
        "target": row.target,
        "verdict": str(row.verdict),
        "gate": str(row.gate),
        "reason": _reason(row.reasons[0]) if row.reasons else None,
        "also": [_reason(reason) for reason in row.reasons[1:]],
        "change": _interval(rows.find_change(row)),
        "speedup": _interval(seen.speedup if seen else None),
        "kernel_us": seen.kernel_us if seen else None,
        "reference_us": seen.reference_us if seen else None,
        "baseline_us": seen.baseline_us if seen else None,
        "base_us": seen.base_us if seen else None,
        "duel": _write_duel(seen.duel) if seen and seen.duel else None,
        "p_adjusted": row.p_adjusted,
        "expected": _pick(row.expected, "case", "up_to", "why", "until", "file", "line") if row.expected else None,
        "suggested": _pick(row.suggested, "file", "line", "below", "replaces") if row.suggested else None,
        "differs": [_pick(each, "field", "before", "after", "moves") for each in seen.differs] if seen else [],
        "peers": [_write_peer(each) for each in seen.peers] if seen else [],
    }


def _write_peer(each: PeerFigure) -> dict[str, Any]:
    ratio, reason = _interval(each.ratio), _reason(each.failure) if each.failure else None
    return {"name": each.name, "us": each.us, "ratio": ratio, "faster": each.faster, "reason": reason}


def _write_duel(look: Look) -> dict[str, Any]:
    """Ratios - 1 if the record holds logarithms."""
    return {
        **_pick(look, "blocks", "processes"),
        "allowed": math.expm1(look.tau),
        "by_process": [math.expm1(median) for median in look.medians],
        **_pick(look, "p_slower", "p_faster", "p_differs"),
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": wording.sentence(reason)}


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return _pick(interval, "value", "low", "high", "confidence") if interval else None


def _pick(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}
