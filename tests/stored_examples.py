"""Baselines and lines of histories, put where perfci reads them."""

from perfci import store
from perfci.extensions.common.history import extend_history, history_path
from perfci.store.files import held, write_atomically, write_together


def append_history(folder, device, op, line):
    """Appends an accepted run to an op's history."""
    with held(history_path(folder, device, op).parent):
        write_together(extend_history(folder, device, op, [line]))


def write_baseline(baseline, root):
    """Stores a baseline, and returns its path."""
    return write_atomically(*store.encode_baseline(baseline, root))
