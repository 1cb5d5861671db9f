"""A stored tensor beside what accepted runs had of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfci.core.model import AcceptedStorage, HistoryRun, HistoryStored, StoredTensor
from perfci.measure.lowprec.histogram import divergence

KEPT = 30
"""Accepted runs whose figures a run takes along: the report's trends show so many."""


def beside(found: StoredTensor, history: Sequence[HistoryRun]) -> StoredTensor:
    """The tensor with the figures of the accepted runs (oldest first) and its divergence from the newest of them."""
    known = [(run, each) for run in history for each in run.stored if each.case == found.case]
    last = next((each.histogram for _, each in reversed(known) if each.histogram is not None), None)
    before = tuple(_accepted(run, each) for run, each in known[-KEPT:])
    return replace(found, divergence=divergence(found.histogram, last) if last else 0.0, before=before, accepted=last)


def _accepted(run: HistoryRun, found: HistoryStored) -> AcceptedStorage:
    return AcceptedStorage(
        run=run.run,
        created=run.created,
        mean_abs=found.errors.mean_abs,
        p99_abs=found.errors.p99_abs,
        clip_ratio=found.clip_ratio,
        divergence=found.divergence,
        extreme=found.extreme,
    )
