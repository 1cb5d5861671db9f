"""What was accepted of a run's ops before it, beside what they store in low precision."""

import dataclasses

from perfci.core.errors import StoredFileError
from perfci.core.model import OpRun, Run
from perfci.core.settings import Settings
from perfci.measure.lowprec.advice import add_history
from perfci.store.history import read_history


def add_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """Returns the op with its stored tensors beside the device model's history, from where the rules are read."""
    if not op.stored:
        return op
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:  # accepting and `perfci history` report it
        return op
    earlier = [line for line in history if line.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(tensor, earlier) for tensor in op.stored))
