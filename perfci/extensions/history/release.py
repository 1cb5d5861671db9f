"""Whether a release is fit: what was checked for it, part by part, and what that means."""

from dataclasses import dataclass, field

from perfci.core import commands, extensions
from perfci.core.model import Gate
from perfci.core.wording import say
from perfci.report.data import AnswerKind
from perfci.report.html.page import render_page
from perfci.report.text import plain
from perfci.report.view import Table

COMMIT = 10  # first digits of a commit that people read

RUNS = {"check": "check", "creep": "check --against-release"}
"""Folder in `reports/`, but for a check -> what leaves a run there."""

_ORDER = (Gate.FAILS, None, Gate.WARNS, Gate.OK)


@dataclass(frozen=True)
class Answer:
    """The findings of one command on one device, as it leaves them in `reports/` for the page of the next release."""

    created: str  # ISO 8601, UTC
    commit: str | None = None
    dirty: bool = False
    case: str | None = None  # pattern of the cases that it is about. None: all
    gate: Gate | None = None  # None if nothing could be checked
    looked: tuple[str, ...] = ()  # ops or chains that it is about
    said: tuple[str, ...] = ()  # sentences of a view: what, how much and why, the gravest first
    table: Table = field(default_factory=Table)
    command: str = ""  # what to do next
    title: str = ""

    @property
    def revision(self) -> str:
        """The commit as people read it, with a plus if there were changes beside it."""
        return plain((self.commit or "-")[:COMMIT] + "+" * self.dirty)


@dataclass(frozen=True)
class Fitness:
    """All parts."""

    commit: str = ""  # what is to be released
    release: str = ""  # the one before
    parts: tuple[Answer, ...] = ()

    @property
    def gravest(self) -> list[Answer]:
        """Its parts, what fails first, then what was not looked at."""
        return sorted(self.parts, key=lambda part: _ORDER.index(part.gate))

    @property
    def gate(self) -> Gate | None:
        """OK or WARNS if everything was looked at and nothing fails, so that it is fit."""
        return self.gravest[0].gate if self.parts else None


UNKNOWN = Fitness()


def list_answers() -> list[AnswerKind]:
    """Returns what else is checked for a release."""
    return [*extensions.provided("answer")]


def render_release(fitness: Fitness, project: str) -> str:
    """The page of a release. Its first line is whether it is fit, and why."""
    texts = {"title": say("{project}: the next release", project=plain(project, 80)), "project": plain(project, 80)}
    words = [*RUNS.values(), *(kind.command for kind in list_answers())]
    typed = [commands.write(*word.split()) for word in words]
    return render_page(
        "site_release.html.j2", __package__, ("site.css",), **texts, found=fitness, plain=plain, commands=typed
    )
