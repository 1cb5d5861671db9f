"""What another job left in the folders of baselines and thresholds: read as data, compared, and put into words.

Nothing of it is run or believed. Only regular files of bounded size count, with the names that perfci gives, and what
changed is read by perfci's own readers before anything of it is proposed.
"""

from __future__ import annotations

import math
import os
import re
import stat
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from perfci import store
from perfci.core import units
from perfci.core.environment import unmixable
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.gitlab.markup import code
from perfci.report.text import plain
from perfci.store.history import ENDING, read_history
from perfci.thresholds.earned import EarnedFile, read_file
from perfci.thresholds.layers import HIGHER, stricter
from perfci.thresholds.limits import CaseThresholds, Thresholds
from perfci.thresholds.read import load

TRAILER = "Perfci-Proposal"
"""Begins the last line of perfci's commits, followed by the commit whose run they come from."""

MOST_BYTES = 16 << 20
"""Of one file."""

ROWS = 200
"""Most rows of a table in the description, which has to fit into a push option."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
_NAMES = {
    "baselines": re.compile(rf"(?P<device>{_NAME})/(?P<op>{_NAME}?)({re.escape(ENDING)}|\.json)"),
    "thresholds": re.compile(rf"(?:(?P<device>{_NAME})/)?(?P<op>{_NAME})\.yaml"),
}
_HIGHER = HIGHER - {"alpha"}
"""Thresholds of which more is stricter. A changed alpha is never stricter."""


@dataclass(frozen=True)
class ProposedFile:
    """A changed file of the other job."""

    path: str
    """from the top of the repository"""
    after: Path
    before: Path
    """the same file as the job found it. It need not exist"""
    folder: str
    """baselines or thresholds"""
    op: str
    device: str
    """key. Empty for thresholds that people write"""

    @property
    def is_history(self) -> bool:
        """Whether this is a history, to which every run adds a line."""
        return self.path.endswith(ENDING)


@dataclass(frozen=True)
class MovedCase:
    """A case whose stored median changed."""

    op: str
    device: str
    case: str
    before_us: float | None
    after_us: float | None
    """None if the baseline no longer has the case"""

    @property
    def change(self) -> float | None:
        """Ratio - 1. Plus is slower. None if one side is unknown."""
        return self.after_us / self.before_us - 1 if self.before_us and self.after_us else None


@dataclass(frozen=True)
class MovedThreshold:
    """A threshold that changed; None means that no value is set, so that anything is allowed."""

    op: str
    case: str | None
    """None: of the op as a whole"""
    key: str
    before: float | None
    after: float | None
    looser: bool


@dataclass(frozen=True)
class Proposal:
    """What is proposed, for people."""

    cases: tuple[MovedCase, ...]
    same: int
    """cases stored anew whose median stayed within what is shown"""
    thresholds: tuple[MovedThreshold, ...]
    runs: int
    """new lines of histories"""
    files: tuple[str, ...]


# --- files ------------------------------------------------------------------------------------------------------------


def read_changed(source: Path, before: Path, folders: Mapping[str, str], prefix: str) -> tuple[ProposedFile, ...]:
    """The files below `source` that differ from those below `before`, each one read by perfci's own reader.

    folders: baselines and thresholds -> path in the project; prefix: the project's path in the repository. Raises
    UsageError for a file that is none of perfci's, and StoredFileError for one that cannot be read.
    """
    if not any((source / folder).is_dir() for folder in folders.values()):
        raise UsageError("propose_nothing_there", folder=str(source), names=", ".join(folders.values()))
    found = []
    for kind, folder in folders.items():
        for part in (Path(folder), *Path(folder).parents):
            if part != Path() and (source / part).is_symlink():
                raise UsageError("propose_not_regular", path=str(source / part))
        for path in _walk(source / folder):
            inner = path.relative_to(source).as_posix()
            old = before / prefix / inner
            if old.is_file() and old.read_bytes() == path.read_bytes():
                continue
            name = _NAMES[kind].fullmatch(path.relative_to(source / folder).as_posix())
            if name is None:
                raise UsageError("propose_other_file", path=prefix + inner)
            found.append(ProposedFile(prefix + inner, path, old, kind, name["op"], name["device"] or ""))
    for file in found:
        if file.is_history:
            _read_runs(file.after, file)
        elif file.folder == "baselines":
            store.read_baseline(file.after)
        elif file.device:
            read_file(file.after, file.op, file.device)
    return tuple(sorted(found, key=lambda file: file.path))


def _walk(folder: Path) -> Iterator[Path]:
    for place, names, files in os.walk(folder, followlinks=False):
        names.sort()
        for name in sorted((*names, *files)):
            path = Path(place, name)
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise UsageError("propose_not_regular", path=str(path))
            if stat.S_ISREG(found.st_mode):
                if found.st_size > MOST_BYTES:
                    raise UsageError("propose_too_large", path=str(path), size=found.st_size, most=MOST_BYTES)
                yield path


def _read_runs(path: Path, file: ProposedFile) -> set[str]:
    """Ids of a history's runs. Raises StoredFileError if a line cannot be read."""
    found = read_history(path.parents[1], file.device, file.op, follow=False)
    if found.problems:
        raise StoredFileError(found.problems[0].kind, **found.problems[0].facts)
    return {run.run for run in found.runs}


# --- what moved -------------------------------------------------------------------------------------------------------


def describe_changes(changed: Sequence[ProposedFile], thresholds: Sequence[MovedThreshold]) -> Proposal:
    """Compare changed baselines and histories case by case. Cases that became slower come first."""
    cases: list[MovedCase] = []
    runs = 0
    for file in changed:
        if file.is_history:
            old_runs = _read_runs(file.before, file) if file.before.is_file() else set()
            runs += len(_read_runs(file.after, file) - old_runs)
        elif file.folder == "baselines":
            old, new = _medians(file.before), _medians(file.after)
            names = [case for case in dict.fromkeys((*new, *old)) if case not in old or old[case] != new.get(case)]
            cases += [MovedCase(file.op, file.device, case, old.get(case), new.get(case)) for case in names]

    def rank(case: MovedCase) -> tuple[float, str, str, str]:
        change = math.inf if case.change is None else case.change
        return -(abs(change) + 1e6 * (change > 0)), case.op, case.device, case.case

    shown = sorted((case for case in cases if case.change is None or abs(case.change) >= 5e-4), key=rank)
    paths = tuple(file.path for file in changed)
    return Proposal(tuple(shown), len(cases) - len(shown), tuple(thresholds), runs, paths)


def _medians(path: Path) -> Mapping[str, float]:
    if not path.is_file():
        return {}
    found = store.read_baseline(path)
    return {
        case.case: statistics.median(block.kernel_us for block in case.blocks) for case in found.cases if case.blocks
    }


def compare_thresholds(
    changed: Sequence[ProposedFile], source: Path, before: Path, baselines: Path
) -> Iterator[MovedThreshold]:
    """How thresholds moved, case by case. source, before: the thresholds folder now, and as the job found it.

    Raises StoredFileError if one cannot be read.
    """
    files = [file for file in changed if file.folder == "thresholds"]
    if any(not file.device for file in files):
        cases: dict[str, set[str]] = {}
        for path in _walk(baselines) if baselines.is_dir() else ():
            if path.suffix == ".json":
                stored = store.read_baseline(path)
                cases.setdefault(stored.op, set()).update(case.case for case in stored.cases)
        yield from compare_written(load(before), load(source), cases)
    for file in files:
        if file.device:
            old, new = (read_file(path, file.op, file.device) for path in (file.before, file.after))
            yield from compare_earned(old, new)


def compare_written(
    before: Thresholds, after: Thresholds, cases: Mapping[str, Iterable[str]]
) -> Iterator[MovedThreshold]:
    """`default` first, then every op, then those of its known cases that differ from their op."""
    yield from _compare("default", None, before.default, after.default)
    for op in sorted({*before.ops, *after.ops}):
        old, new = (each.ops[op].common if op in each.ops else each.default for each in (before, after))
        own = tuple(_compare(op, None, old, new))
        yield from own
        if before.expected(op) != after.expected(op):
            yield MovedThreshold(op, None, "expected", None, None, looser=True)
        relaxed = [each.ops[op].relaxed if op in each.ops else () for each in (before, after)]
        if relaxed[0] != relaxed[1]:
            yield MovedThreshold(op, None, "relaxed", None, None, looser=True)
        same = {(each.key, each.before, each.after) for each in own}
        for case in sorted(cases.get(op, ())):
            found = _compare(op, case, before.for_case(op, case), after.for_case(op, case))
            yield from (each for each in found if (each.key, each.before, each.after) not in same)


def _compare(op: str, case: str | None, before: CaseThresholds, after: CaseThresholds) -> Iterator[MovedThreshold]:
    starts = sorted({start for limits in (before, after) for start, _ in limits.tau})
    old, new = _flatten(before, starts), _flatten(after, starts)
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        if key in _HIGHER:
            looser = (now or 0.0) < (was or 0.0)
        else:
            looser = key == "alpha" or (math.inf if now is None else now) > (math.inf if was is None else was)
        if was != now:
            yield MovedThreshold(op, case, key, was, now, looser)


def _flatten(limits: CaseThresholds, starts: Iterable[float]) -> dict[str, float | None]:
    """Every number by name: floors by timer, tau by each length from which either side sets it."""
    found: dict[str, float | None] = {}
    for each in fields(limits):
        value = getattr(limits, each.name)
        if each.name == "tau":
            found |= {f"tau {start:g}": limits.tau_at(start) for start in starts}
        elif isinstance(value, Mapping):
            found |= {f"{each.name} {timer}": floor for timer, floor in value.items()}
        else:
            found[each.name] = value
    return found


def compare_earned(before: EarnedFile, after: EarnedFile) -> Iterator[MovedThreshold]:
    """What differs between two files of earned values of one op on one device.

    A looser or missing entry is a loosening, unless all began anew in another environment, or a loss was accepted and
    the value was rescaled by it.
    """
    old, new = ({(each.case, each.key): each for each in file.values} for file in (before, after))
    anew = bool(before.environment and after.environment and unmixable(before.environment, after.environment))
    for case, key in dict.fromkeys((*old, *new)):
        was, now = old.get((case, key)), new.get((case, key))
        values = was.value if was else None, now.value if now else None
        if values[0] == values[1]:
            continue
        rescaled = bool(now and now.rescaled and (was is None or was.rescaled != now.rescaled))
        looser = was is not None and stricter(key, values[0], values[1]) and not anew and not rescaled
        yield MovedThreshold(after.op, case, key, *values, looser=looser)


def refuse_looser(moved: Iterable[MovedThreshold], folder: str) -> tuple[Reason, ...]:
    """A reason for each loosened threshold: only people loosen."""
    return tuple(
        Reason("propose_looser", {"op": each.op, "key": each.key, "case": each.case or "-", "folder": folder})
        for each in moved
        if each.looser
    )


# --- words ------------------------------------------------------------------------------------------------------------


def write_title(wanted: str | None, found: Proposal) -> str:
    """One line, of the merge request and the commit."""
    if wanted:
        return plain(wanted, 120)
    cases = len(found.cases) + found.same
    if found.thresholds:
        thresholds = len(found.thresholds)
        return say(
            "perfci: baselines of {cases:case|cases}, thresholds tightened: {thresholds}",
            cases=cases,
            thresholds=thresholds,
        )
    return say("perfci: baselines of {cases:case|cases}, runs in the history: {runs}", cases=cases, runs=found.runs)


def write_description(found: Proposal, base: str, rows: int = ROWS) -> str:
    """The merge request's text in Markdown. No line begins with foreign text: there a slash would be a command."""
    cases = [
        (code(each.op), code(each.case), code(each.device), _time(each.before_us), _time(each.after_us), _change(each))
        for each in found.cases
    ]
    thresholds = [
        (
            code(each.op),
            code(each.case) if each.case else say("all"),
            code(each.key),
            _number(each.key, each.before),
            _number(each.key, each.after),
        )
        for each in found.thresholds
    ]
    case_heads = (say("op"), say("case"), say("device"), say("before"), say("after"), say("change"))
    threshold_heads = (say("op"), say("case"), say("threshold"), say("before"), say("after"))
    files = "\n".join(f"- {code(path)}" for path in found.files[:rows])
    parts = (
        say("The run of commit {commit} on the main branch measured what is stored here anew.", commit=code(base[:12])),
        say("### Baselines") if found.cases or found.same else "",
        _table(case_heads, cases, 3, rows),
        say("Cases stored anew whose median stayed: {count}.", count=found.same) if found.same else "",
        say("### Thresholds, tightened") if thresholds else "",
        _table(threshold_heads, thresholds, 3, rows),
        say("Histories: {runs:more run|more runs}.", runs=found.runs) if found.runs else "",
        say(
            "Merge it to hold later runs against these numbers. Left open it is brought up to date by the next run; "
            "closed it is proposed anew, as long as the numbers differ."
        ),
        f"<details>\n<summary>{say('Files')}</summary>\n\n{files}\n\n</details>",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: int, rows: int) -> str:
    if not lines:
        return ""
    rule = ["---" if column < texts else "--:" for column in range(len(heads))]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines[:rows]))
    more = len(lines) - rows
    return table + ("\n\n" + say("Rows left out here: {count}; the files have them.", count=more) if more > 0 else "")


def _change(case: MovedCase) -> str:
    return units.percent(case.change, signed=True) if case.change is not None else "-"


def _time(value: float | None) -> str:
    return units.time(value) if value is not None else "-"


def _number(key: str, value: float | None) -> str:
    """As threshold files write it: ratios in per cent, everything else as it is."""
    if value is None:
        return say("none")
    plain_number = key.startswith(("speedup", "span_floor_us", "floor_us", "spill_bytes"))
    return units.significant(value) if plain_number else units.percent(value)
