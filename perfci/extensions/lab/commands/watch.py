"""`perfci check --watch`: one op, checked again whenever one of its files changes, until a signal ends it."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from perfci.cli import language
from perfci.cli.main import print_error
from perfci.cli.options import name_backends, take_one
from perfci.core.errors import PerfciError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.discover import select, select_one
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.rules import hash_rules

GLANCE_S = 0.5


def check_often(check: Callable[[], int], project: Path, ops: Sequence[str]) -> NoReturn:
    """Check an op, and again after each change of what it needs or is judged by. Raises Stopped at a signal.

    Raises UsageError unless one op is named. A check that cannot be made prints why, and the next change is waited for.
    """
    op = select_one(language.load(project), take_one(ops)).op
    while True:
        seen = _look(project, op)
        try:
            check()
        except PerfciError as error:
            print_error(error.reason)
        print(say("Waiting for a change of {op}; Ctrl-C ends.", op=op), file=sys.stderr)
        _wait(project, op, seen)


def _wait(project: Path, op: str, seen: str) -> None:
    """Wait until the files differ and have stood still for a moment, as an editor writes them one after the other."""
    last = seen
    while True:
        time.sleep(GLANCE_S)
        before, last = last, _look(project, op)
        if last == before != seen:
            return


def _look(project: Path, op: str) -> str:
    """Digest of the files that the op needs, and of what it is judged by."""
    try:
        where: Settings = language.load(project)
        tree, backends = Tree(where.root, where.kernels), select(where, name_backends([op], []))
        return "".join(tree.fingerprint(one.op).digest for one in backends) + hash_rules(where)
    except (PerfciError, OSError):  # half-way through a change
        return ""
