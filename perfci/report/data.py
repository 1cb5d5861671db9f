"""Records as plain data, for programs: what `--format json` prints. answer.schema.json in docs/_site describes it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from perfci.core.model import Comparison, Judgement, Judgements, Reason, Run
from perfci.core.wording import sentence
from perfci.report import frame, rows, speed

FORMAT = 1  # 1: the first


def pick(record: object, names: str, **more: Any) -> dict[str, Any]:
    """Returns fields of a record by name, and more beside them."""
    return {name: getattr(record, name) for name in names.split()} | more


def write_plain(value: Any) -> Any:
    """Returns a value in which records, however nested, are mappings. Each reason has its sentence beside it."""
    if isinstance(value, Reason):
        return {"kind": value.kind, "facts": dict(value.facts), "sentence": sentence(value)}
    if dataclasses.is_dataclass(value):
        return {field.name: write_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: write_plain(item) for name, item in value.items()}
    return [write_plain(item) for item in value] if isinstance(value, list | tuple) else value


def to_json(judgements: Judgements, run: Run | None = None) -> dict[str, Any]:
    """The gate, the counts and every verdict with its reasons and numbers. `exit_code` is that of a run not strict."""
    counts, figures = rows.count_all(judgements), _find_figures(run) if run else {}
    answer: dict[str, Any] = write_plain({
        "format": FORMAT,
        "gate": counts.gate,
        "exit_code": rows.EXIT_CODES[counts.gate],
        "summary": rows.write_summary(judgements),
        "ops": counts.ops,
        "counts": {str(verdict): count for verdict, count in counts.verdicts},
        "run": _write_run(run) if run else None,
        "verdicts": [_write_row(row, figures.get((row.op, row.case), {})) for row in judgements.rows],
        "compiled": [
            pick(op, "op target", case=case.case, kernels=case.binaries, failure=case.failure)
            for op in (run.static.ops if run and run.static else ())
            for case in op.cases
        ],
        "notes": judgements.notes,
    })  # fmt: skip
    return answer


def _write_run(run: Run) -> dict[str, Any]:
    where = run.environment
    return {
        **pick(run, "id created perfci stopped"),
        **pick(where, "commit dirty timer"),
        "device": where.device.key,
        "seed": run.seed,
        "base": run.plan.base.commit if run.plan.base else None,
    }


def _find_figures(run: Run) -> dict[tuple[str, str | None], dict[str, Any]]:
    """Figures of each arm of every timed case, the rates that its kernel reaches, and what it was compiled to."""
    figures: dict[tuple[str, str | None], dict[str, Any]] = {}
    names = "blocks launches min_us p50_us p90_us p99_us mean_us sd_us rsd iqr_us outliers"
    for op in run.ops:
        for case in op.performance:
            spreads = {one.arm: one for one in frame.pool_case(op.op, case)}
            if kernel := spreads.get("kernel"):
                arms = [pick(one, f"arm {names}") for one in spreads.values()]
                rates = speed.find_rates(case, kernel.p50_us, run.limits)
                figures[op.op, case.case] = {"arms": arms, "rates": rates, "compiled": case.compiled}
    return figures


def _write_row(row: Judgement, figures: Mapping[str, Any]) -> dict[str, Any]:
    seen = row.comparison or Comparison(row.op, row.case or "")
    # Ratios - 1 where the record holds logarithms.
    duel, names = seen.duel, "blocks processes p_slower p_faster p_differs"
    return {
        **pick(row, "op suite case target verdict gate p_adjusted"),
        "reason": row.reasons[0] if row.reasons else None,
        "also": row.reasons[1:],
        "change": rows.find_change(row),
        **pick(seen, "speedup kernel_us reference_us baseline_us base_us"),
        "duel": duel and pick(duel, names, allowed=math.expm1(duel.tau), by_process=[*map(math.expm1, duel.medians)]),
        "tail": seen.tail and pick(seen.tail, "mean p90 p share base_share times apart slow_blocks slow_processes"),
        "arms": figures.get("arms", []),
        "rates": figures.get("rates"),
        "compiled": figures.get("compiled", []),
        "expected": pick(row.expected, "case up_to why until file line") if row.expected else None,
        "suggested": pick(row.suggested, "file line") if row.suggested else None,
        "differs": [pick(differ, "field before after moves") for differ in seen.differs],
        "peers": [pick(peer, "name us ratio faster", reason=peer.failure) for peer in seen.peers],
    }
