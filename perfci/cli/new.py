"""`perfci new`: a new op's four files, what was made, what to look at, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfci.cli import language
from perfci.cli.exits import Exit
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.ops import discover
from perfci.runs import sketch as pipeline_sketch
from perfci.scaffold import new
from perfci.scaffold.new import Draft, Place


def make(
    name: str,
    project: Path,
    *,
    source: str | None = None,
    reference: str | None = None,
    sketches: Path | None = None,
    version: int | None = None,
    fake: bool = False,
) -> int:
    """Write the op's four files, and tell about them; see `perfci new --help` for the options."""
    _refuse_together(source, reference, sketches, version, fake=fake)
    where = language.load(project)
    place = new.place(name, where.kernels, _known(where))
    if source is not None:
        draft = pipeline_sketch.of_function(place.op, source, reference, where)
    elif sketches is not None:
        draft = pipeline_sketch.of_kernelgen(place.op, sketches, version, where)
    else:
        draft = new.fake(place.op) if fake else new.plain(place.op)
    written = new.write(place, draft)
    _tell(place, draft, written, "fake" if fake else None)
    return Exit.OK


def _refuse_together(
    source: str | None, reference: str | None, sketches: Path | None, version: int | None, *, fake: bool
) -> None:
    """Options that say different things about where the op comes from."""
    given = [
        option
        for option, value in (("--from", source), ("--from-kernelgen", sketches), ("--fake", fake or None))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError("new_options_exclude", first=given[0], second=given[1])
    if reference is not None and source is None:
        raise UsageError("new_option_needs", option="--reference", needed="--from FILE:function")
    if version is not None and sketches is None:
        raise UsageError("new_option_needs", option="--version", needed="--from-kernelgen DIR")


def _known(where: Settings) -> dict[str, Path]:
    """The project's ops; none where its kernels folder is still to be made."""
    return {each.op: each.folder for each in discover.ops(where)} if where.kernels.is_dir() else {}


def _tell(place: Place, draft: Draft, written: Sequence[Path], device: str | None) -> None:
    _lines(say("{op} is ready:", op=place.op), *(f"  {_shown(path)}" for path in written))
    _listed(say("Carried over:"), draft.carried)
    _listed(say("Not carried over:"), draft.left)
    _listed(say("To look at:"), (*draft.look, *_broken(place)))
    command = f"perfci check --op {place.op}" + (f" --device {device}" if device else "")
    _lines("", say("Next: `{command}`", command=command))


def _broken(place: Place) -> tuple[Reason, ...]:
    """Ways in which what was made breaks the contract all the same: a file that was copied may do anything."""
    triton, baseline, accuracy, performance = (place.file(part) for part in new.PARTS)
    return discover.check_contract(discover.OpFolder(place.op, place.folder, triton, baseline, accuracy, performance))


def _listed(title: str, reasons: Sequence[Reason]) -> None:
    if reasons:
        _lines("", title, *(f"  - {sentence(reason)}" for reason in reasons))


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _lines(*lines: str) -> None:
    for line in lines:
        print(line)
