"""Whether a release is fit: what was checked for it, part by part, and what that says."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfci.core.model import Gate
from perfci.core.wording import say
from perfci.report.html.page import render_page
from perfci.report.text import NAME_LIMIT, plain
from perfci.report.view import Table

_ORDER = (Gate.FAILS, None, Gate.WARNS, Gate.OK)


@dataclass(frozen=True)
class Part:
    """One of the things that are checked for a release, on one device."""

    name: str
    gate: Gate | None  # None if it was not looked at, or not as a whole
    what: str  # what it says, how much, and why: sentences of a view
    command: str  # what to do next
    seen: str = ""  # when and of which commit
    details: Sequence[str] = ()  # more sentences of a view
    table: Table = field(default_factory=Table)


@dataclass(frozen=True)
class Fitness:
    """All parts."""

    commit: str = ""  # what is to be released
    release: str = ""  # the one before
    parts: tuple[Part, ...] = ()

    @property
    def gate(self) -> Gate | None:
        """The gravest of the parts. None if a part was not looked at and none fails."""
        return self.gravest[0].gate if self.parts else None

    @property
    def fit(self) -> bool:
        """Whether everything was looked at and nothing fails."""
        return self.gate in {Gate.OK, Gate.WARNS}

    @property
    def gravest(self) -> list[Part]:
        """Its parts, what fails first, then what was not looked at."""
        return sorted(self.parts, key=lambda part: _ORDER.index(part.gate))


def render_release(found: Fitness, project: str) -> str:
    """The page of a release, whose first line says whether it is fit and why."""
    return render_page(
        "site_release.html.j2",
        ("style.css", "site.css"),
        title=say("{project}: the next release", project=plain(project, 80)),
        project=plain(project, NAME_LIMIT),
        gate="",
        index="index.html",
        found=found,
    )
