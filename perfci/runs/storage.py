"""What an op stores in low precision, beside what accepted runs had of it."""

from __future__ import annotations

import dataclasses

from perfci.core.errors import StoredFileError
from perfci.core.model import OpRun, Run
from perfci.core.settings import Settings
from perfci.measure.lowprec.advice import add_history
from perfci.store.history import read_history


def beside_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """The op with its stored tensors beside the history of the device model, from where the rules are read.

    A history that cannot be read says nothing here: accepting and `perfci history` tell what is wrong with it.
    """
    if not op.stored:
        return op
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:
        return op
    earlier = [each for each in history if each.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(found, earlier) for found in op.stored))
