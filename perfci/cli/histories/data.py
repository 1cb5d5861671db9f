"""Histories for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfci.cli.histories.kept import HistoryOptions, Told
from perfci.cli.output import reason_data
from perfci.store.past.series import Point, StoredPoint


def as_data(one: Told, options: HistoryOptions) -> Mapping[str, Any]:
    """Times are microseconds, changes ratios - 1, plus is slower; the newest run is the last."""
    unknown = one.unknown if isinstance(one.unknown, tuple) else ()
    return {
        "op": one.history.op,
        "device": one.history.device,
        "runs": len(one.history.runs),
        "problems": [reason_data(reason) for reason in one.history.problems],
        "unknown_commits": unknown,
        "cases": [
            {"case": case.case, "points": [_point(point) for point in case.points[-(options.last or 0) :]]}
            for case in one.cases
        ],
        "stored": [
            {"case": case.case, "points": [_stored_point(point) for point in case.points[-(options.last or 0) :]]}
            for case in one.stored
        ],
    }


def _point(point: Point) -> Mapping[str, Any]:
    figures = point.figures
    return {
        **_place(point),
        "kernel_us": figures.kernel_us,
        "reference_us": figures.reference_us,
        "since_last": point.since_last,
        "since_first": point.since_first,
        "speedup": point.speedup,
        "blocks": figures.blocks,
        "compile_s": figures.compile_s,
        "peak_bytes": figures.peak_bytes,
        "moved": _differences(point),
        "epoch": point.why,
    }


def _stored_point(point: StoredPoint) -> Mapping[str, Any]:
    """The histogram of the errors stays in the file."""
    figures = point.figures
    return {
        **_place(point),
        "errors": figures.errors,
        "clip_ratio": figures.clip_ratio,
        "divergence": figures.divergence,
        "amax": figures.amax,
        "scale": figures.scale,
        "extreme": figures.extreme,
        "since_last": point.since_last,
        "since_first": point.since_first,
        "moved": _differences(point),
    }


def _place(point: Point | StoredPoint) -> Mapping[str, Any]:
    where = point.run.environment
    run = {"run": point.run.run, "created": point.run.created}
    return {**run, "commit": where.commit, "board": where.device.uuid}


def _differences(point: Point | StoredPoint) -> list[Mapping[str, Any]]:
    return [{"field": each.field, "before": each.before, "after": each.after} for each in point.moved]
