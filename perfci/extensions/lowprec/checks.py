"""The gate's questions: stored tensors are listed, checked, put beside accepted runs and judged."""

import dataclasses

from perfci.core.errors import StoredFileError
from perfci.core.model import OpRun, Run
from perfci.core.settings import Settings
from perfci.extensions.common.history import read_history
from perfci.extensions.lowprec.advice import add_history
from perfci.extensions.lowprec.declared import check_stored_tensors, list_stored_cases
from perfci.extensions.lowprec.judge import judge_stored
from perfci.measure.stored import StoredChecks


def add_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """Returns the op with its stored tensors beside the device model's history, from where the rules are read."""
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:  # accepting and `perfci history` report it
        return op
    earlier = [line for line in history if line.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(tensor, earlier) for tensor in op.stored))


CHECKS = StoredChecks(list_stored_cases, check_stored_tensors, add_accepted, judge_stored)
