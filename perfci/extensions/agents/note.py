"""Rounds in the note of a merge request."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from perfci.core.errors import StoredFileError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.agents.logbook import Round, RoundVerdict, read_logbook
from perfci.extensions.agents.round_tables import tabulate_rounds
from perfci.ops.discover import ops
from perfci.ops.fingerprint.tree import Tree
from perfci.report.view import Table


def list_records(settings: Settings, names: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Yields the last start's rounds of each of these ops whose kernel is the best of them: what a reviewer needs."""
    for rounds in find_rounds(settings, names):
        yield say("{op}, round by round", op=rounds[0].op), tabulate_rounds(rounds)


def find_rounds(settings: Settings, names: Sequence[str]) -> Iterator[tuple[Round, ...]]:
    """Yields the rounds that the note shows, of an op at a time."""
    tree = Tree(settings.root, settings.kernels)
    for op in (op for op in ops(settings) if op.op in names):
        with suppress(StoredFileError):  # a review does not wait for a logbook
            rounds = read_logbook(op.folder).rounds
            last = tuple(one for one in rounds if one.start == rounds[-1].start)
            kept = [one for one in last if one.verdict is RoundVerdict.KEPT]
            if kept and kept[-1].digest == tree.fingerprint(op.op).digest:
                yield last
