"""What states and marks are called, in the reader's language."""

from __future__ import annotations

from perfci.core.wording import say
from perfci.report.site.trend import Kind, State

GATES = {State.DAMAGED: "fails", State.SLOWER: "warns", State.FASTER: "ok", State.STEADY: "ok"}
"""Colours of states, as of verdicts; the others have none."""

RANKS = tuple(State)
"""The gravest first."""


class Stated:
    """What has a state, as a table shows it."""

    state: State

    @property
    def word(self) -> str:
        """Its state in the reader's language."""
        return state(self.state)

    @property
    def gate(self) -> str:
        """The class that colours it."""
        return GATES.get(self.state, "")

    @property
    def rank(self) -> int:
        """Of its state, 0 the gravest."""
        return RANKS.index(self.state)


def state(found: State) -> str:
    """A state as a chip and a cell have it."""
    return {
        State.DAMAGED: say("damaged"),
        State.SLOWER: say("slower"),
        State.FASTER: say("faster"),
        State.STEADY: say("steady"),
        State.FEW: say("few runs"),
        State.GONE: say("gone"),
        State.ACCURACY: say("accuracy"),
    }[found]


def kind(found: Kind) -> str:
    """What a mark is about."""
    return {
        Kind.EPOCH: say("epoch"),
        Kind.ENVIRONMENT: say("environment"),
        Kind.BOARD: say("another board"),
    }[found]


def runs(count: int) -> str:
    """A count of runs.

    >>> runs(1), runs(2)
    ('1 run', '2 runs')
    """
    return say("{count:run|runs}", count=count)


def pages(count: int) -> str:
    """A count of pages beside the index.

    >>> pages(1), pages(2)
    ('1 page', '2 pages')
    """
    return say("{count:page|pages}", count=count)
