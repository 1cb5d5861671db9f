"""Tensors that an op stores in low precision. An extension checks and judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfci.core.errors import require

if TYPE_CHECKING:
    from perfci.core.model import AccuracyCase, Judgement, OpRun, Run, StoredTensor
    from perfci.core.settings import Settings
    from perfci.device.seam import Accelerator
    from perfci.measure.bench import Describe
    from perfci.ops.spec import Accuracy
    from perfci.thresholds.limits import Thresholds


@dataclass(frozen=True)
class StoredChecks:
    """The checks of stored tensors."""

    list_cases: Callable[[Accuracy, str | None], tuple[str, ...]]
    """ids of the cases that may fit a pattern, with * for the tensors' names"""
    check: Callable[[Accuracy, Accelerator, str | None, Describe], Iterator[StoredTensor | AccuracyCase]]
    """every tensor of the cases that fit a pattern. A fault is a failed check"""
    add_history: Callable[[OpRun, Run, Settings], OpRun]
    """the op with its tensors beside what was accepted before, by the project whose rules count"""
    judge: Callable[[OpRun, str, Thresholds], Iterator[Judgement]]
    """a row for each tensor beyond a limit on a device"""


BEYOND = "stored_beyond_"  # what the kinds of reasons for figures beyond their limits begin with


def find_checks() -> StoredChecks:
    """Returns what checks stored tensors. Raises UsageError if the extension was removed."""
    checks: StoredChecks = require("stored", "lowprec", "perfci.Quantised")
    return checks
