"""What the report of a check says of ops over several boards: that its figures are of one rank."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfci.core.model import OpRun, Run
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.ranks.declared import find_sizes
from perfci.ops.discover import ops
from perfci.report.text import code, plain
from perfci.report.view import Picture, Section


class RankNotes:
    """A line in the section of each op that is for several ranks."""

    def __init__(self, sizes: Mapping[str, tuple[int, ...]]) -> None:
        """`sizes`: of groups, by op."""
        self._sizes = sizes

    def draw(self, op: OpRun, painter: Any, name: str) -> Iterator[Picture]:
        """Draw nothing."""
        yield from ()

    def section(self, op: OpRun, pictures: Sequence[Picture]) -> Section | None:
        """Say what was left out, if anything was."""
        sizes = self._sizes.get(op.op)
        if not sizes:
            return None
        command = code(f"perfci ranks {op.op}")
        facts = {"op": plain(op.op, 80), "sizes": ", ".join(map(str, sizes)), "command": command}
        line = say(
            "{op} is for groups of {sizes} ranks, and all of this is of one rank: {command} checks groups.", **facts
        )
        return Section(say("{op}: several ranks", op=plain(op.op, 80)), lines=(line,))


def read_sections(_run: Run, settings: Settings, _rules: Settings) -> RankNotes:
    """Returns what a project's ops say of ranks."""
    folders = ops(settings) if settings.kernels.is_dir() else ()
    return RankNotes({op.op: sizes for op in folders if (sizes := find_sizes(op))})
