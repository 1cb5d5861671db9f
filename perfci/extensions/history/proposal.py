"""Files that another job left in the folders of baselines and thresholds: read as data, compared, and put into words.

Nothing of it is run or believed: only regular files of bounded size and known names, as perfci's readers read them.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core import units
from perfci.core.environment import unmixable
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.wording import say
from perfci.extensions.common.history import read_history
from perfci.extensions.common.markup import code, write_some
from perfci.report import text
from perfci.report.view import make_table
from perfci.store import HISTORY_ENDING
from perfci.thresholds.earned import EarnedFile, read_file
from perfci.thresholds.layers import is_stricter
from perfci.thresholds.write import show

MOST_BYTES = 16 << 20  # of one file
ROWS = 200  # most rows of a table in the description, which has to fit into a push option
SMALL = 5e-4  # change of a median, ratio, below which it counts as the same

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
_NAMES = {
    "baselines": re.compile(rf"(?P<device>{_NAME})/(?P<op>{_NAME}?)({re.escape(HISTORY_ENDING)}|\.json)"),
    "thresholds": re.compile(rf"(?P<device>{_NAME})/(?P<op>{_NAME})\.json"),
}


@dataclass(frozen=True)
class ProposedFile:
    """A changed file of the other job."""

    kind: str  # baselines or thresholds
    path: str  # from the top of the repository
    after: Path
    before: Path  # the same file as the job found it. It need not exist
    op: str
    device: str  # key

    @property
    def is_history(self) -> bool:
        """Whether this is a history, to which every run adds a line."""
        return self.path.endswith(HISTORY_ENDING)


@dataclass(frozen=True)
class MovedCase:
    """A case with a changed stored median."""

    op: str
    device: str
    case: str
    before_us: float | None
    after_us: float | None  # None if the baseline no longer has the case

    @property
    def change(self) -> float | None:
        """Ratio - 1. Plus is slower. None if one side is unknown."""
        return self.after_us / self.before_us - 1 if self.before_us and self.after_us else None


@dataclass(frozen=True)
class MovedThreshold:
    """An earned threshold that changed. None means that nothing is earned."""

    op: str
    case: str
    key: str
    before: float | None
    after: float | None
    looser: bool


@dataclass(frozen=True)
class Proposal:
    """A proposal, for people."""

    cases: tuple[MovedCase, ...]
    same: int  # cases stored anew with a median that stayed within what is shown
    thresholds: tuple[MovedThreshold, ...]
    runs: int  # new lines of histories
    files: tuple[str, ...]

    @property
    def title(self) -> str:
        """The one line of the merge request and the commit."""
        cases, moved = len(self.cases) + self.same, len(self.thresholds)
        if not moved:
            return say(
                "perfci: baselines of {cases:case|cases}, runs in the history: {runs}", cases=cases, runs=self.runs
            )
        return say(
            "perfci: baselines of {cases:case|cases}, thresholds tightened: {thresholds}", cases=cases, thresholds=moved
        )


def list_changed(source: Path, before: Path, folders: Mapping[str, str], prefix: str) -> tuple[ProposedFile, ...]:
    """The files below `source` that differ from those below `before`. Raises UsageError for one that people write.

    folders: baselines and thresholds -> path in the project. prefix: the project's path in the repository.
    """
    if not any((source / folder).is_dir() for folder in folders.values()):
        raise UsageError("propose_nothing_there", folder=str(source), names=", ".join(folders.values()))
    changed = []
    for kind, folder in folders.items():
        for path in _walk(source, source / folder):
            inner = path.relative_to(source).as_posix()
            old = before / prefix / inner
            if old.is_file() and read_regular(old) == read_regular(path):
                continue
            name = _NAMES[kind].fullmatch(path.relative_to(source / folder).as_posix())
            if name is None:
                raise UsageError("propose_other_file", path=prefix + inner)
            changed.append(ProposedFile(kind, prefix + inner, path, old, name["op"], name["device"]))
    return tuple(sorted(changed, key=lambda file: file.path))


def _walk(source: Path, folder: Path) -> Iterator[Path]:
    """Yields the files of a folder. Raises UsageError for a link, a device or a file that is too large."""
    parents = [source / part for part in (folder.relative_to(source), *folder.relative_to(source).parents)][:-1]
    if link := next((path for path in parents if path.is_symlink()), None):
        raise UsageError("propose_not_regular", path=str(link))
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UsageError("propose_not_regular", path=str(path))
        if path.is_file():
            if (size := path.stat().st_size) > MOST_BYTES:
                raise UsageError("propose_too_large", path=str(path), size=size, most=MOST_BYTES)
            yield path


def describe_changes(changed: Sequence[ProposedFile]) -> Proposal:
    """Compare the files case by case. Cases that became slower come first. Raises StoredFileError for a damaged one."""
    cases: list[MovedCase] = []
    thresholds: list[MovedThreshold] = []
    runs = 0
    for file in changed:
        if file.is_history:
            runs += len(_read_runs(file, file.after) - _read_runs(file, file.before))
        elif file.kind == "thresholds":
            thresholds += compare_earned(*(read_file(path, file.op, file.device) for path in (file.before, file.after)))
        else:
            old, new = _read_medians(file.before), _read_medians(file.after)
            names = [case for case in dict.fromkeys((*new, *old)) if case not in old or old[case] != new.get(case)]
            cases += [MovedCase(file.op, file.device, case, old.get(case), new.get(case)) for case in names]

    def rank(case: MovedCase) -> tuple[bool, float, str, str, str]:
        change = math.inf if case.change is None else case.change
        return change <= 0, -abs(change), case.op, case.device, case.case

    shown = sorted((case for case in cases if case.change is None or abs(case.change) >= SMALL), key=rank)
    paths = tuple(file.path for file in changed)
    return Proposal(tuple(shown), len(cases) - len(shown), tuple(thresholds), runs, paths)


def _read_runs(file: ProposedFile, path: Path) -> set[str]:
    """Ids of a history's runs."""
    if not path.is_file():
        return set()
    runs = read_history(path.parents[1], file.device, file.op, follow=False)
    if runs.problems:
        raise StoredFileError(runs.problems[0].kind, **runs.problems[0].facts)
    return {run.run for run in runs.runs}


def _read_medians(path: Path) -> Mapping[str, float]:
    stored = store.read_baseline(path).cases if path.is_file() else ()
    return {case.case: statistics.median(block.kernel_us for block in case.blocks) for case in stored if case.blocks}


def compare_earned(before: EarnedFile, after: EarnedFile) -> Iterator[MovedThreshold]:
    """Differences between two files of earned values. No loosening is what began anew, or was rescaled by a loss."""
    old, new = ({(value.case, value.key): value for value in file.values} for file in (before, after))
    anew = bool(before.environment and after.environment and unmixable(before.environment, after.environment))
    for case, key in dict.fromkeys((*old, *new)):
        was, now = old.get((case, key)), new.get((case, key))
        values = was.value if was else None, now.value if now else None
        if values[0] == values[1]:
            continue
        rescaled = bool(now and now.rescaled and (was is None or was.rescaled != now.rescaled))
        looser = was is not None and is_stricter(key, values[0], values[1]) and not anew and not rescaled
        yield MovedThreshold(after.op, case, key, *values, looser=looser)


def write_description(proposal: Proposal, base: str, rows: int = ROWS) -> str:
    """The merge request's text in Markdown. No line begins with foreign text: there a slash would be a command."""
    moved = []
    for case in proposal.cases:
        times = map(units.time, (case.before_us, case.after_us))
        change = units.percent(case.change, signed=True)
        moved.append((*map(text.code, (case.op, case.case, case.device)), *times, change))
    tighter = [
        (
            *map(text.code, (threshold.op, threshold.case, threshold.key)),
            show(threshold.key, threshold.before),
            show(threshold.key, threshold.after),
        )
        for threshold in proposal.thresholds
    ]
    files = "\n".join(f"- {code(path)}" for path in proposal.files[:rows])
    parts = (
        say("The run of commit {commit} on the main branch measured what is stored here anew.", commit=code(base[:12])),
        say("### Baselines") if proposal.cases or proposal.same else "",
        write_some(make_table("op | case | device | before: | after: | change:", moved), rows),
        say("Cases stored anew whose median stayed: {count}.", count=proposal.same) if proposal.same else "",
        say("### Thresholds, tightened") if proposal.thresholds else "",
        write_some(make_table("op | case | threshold | before: | after:", tighter), rows),
        say("Histories: {runs:more run|more runs}.", runs=proposal.runs) if proposal.runs else "",
        say(
            "Merge it to compare later runs with these numbers. While it is open, the next run updates it. If it is "
            "closed, the next run proposes it anew, as long as the numbers differ."
        ),
        f"<details>\n<summary>{say('Files')}</summary>\n\n{files}\n\n</details>",
    )
    return "\n\n".join(part for part in parts if part) + "\n"
