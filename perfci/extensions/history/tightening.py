"""Keeps what accepted runs have earned, by `ratchet`, in `thresholds/<device key>/<op>.json`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from perfci.core.environment import list_differences, unmixable
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Fact, Reason, Suite
from perfci.core.settings import Settings
from perfci.core.wording import ENGLISH, sentence, speaking
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import history_devices, history_ops, read_history
from perfci.extensions.history.origins import read_counted, refuse_link, replace_file
from perfci.extensions.history.ratchet.steps import KEYS, Tighter, list_cases, propose, rescale_targets
from perfci.ops.discover import pick
from perfci.ops.spec import matches
from perfci.runs.effective_thresholds import place
from perfci.thresholds.earned import EarnedFile, read_file, write_earned
from perfci.thresholds.layers import Earned, find_strictest, is_stricter
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load
from perfci.thresholds.write import show

_KEPT = {"ratchet_tau": "earned_tau", "ratchet_figure": "earned_figure", "ratchet_growth": "earned_growth"}
"""Kind of what is proposed -> kind of what is kept beside the value."""


@dataclass(frozen=True)
class Rescaled:
    """Changes to the earned targets of an op with accepted losses, and the file to be written."""

    said: tuple[Reason, ...] = ()
    files: Mapping[Path, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Tightened:
    """The result for an op on a device."""

    op: str
    device: str  # key
    changes: tuple[Earned, ...] = ()  # values that were, or would be, written, each with its record
    whys: tuple[Reason, ...] = ()  # one a change
    anew: tuple[Earned, ...] = ()  # values that go back to where they began, since the environment is another now
    renamed: Mapping[str, str] = field(default_factory=dict)  # id of a case in the file -> its present name
    said: tuple[Reason, ...] = ()
    failure: Reason | None = None  # why its file could not be read or written, and so nothing of it changed
    path: str | None = None  # the file that was written, as people know it

    @property
    def moves(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.changes or self.anew or self.renamed)


def tighten(
    settings: Settings,
    ops: Sequence[str] = (),
    device: str | None = None,
    *,
    write: bool = False,
    day: date | None = None,
    pattern: str | None = None,
) -> list[Tightened]:
    """Returns what the histories of accepted runs have earned, op by op and device by device, and stores it on request.

    pattern: cases that are tightened. An op that cannot be read or written stops no other. Raises UsageError if no
    history has a device, an op or a case of these names, and StoredFileError.
    """
    written = load(settings.thresholds, None, settings.root)
    today = (day or datetime.now(UTC).date()).isoformat()
    devices = history_devices(settings.baselines)
    if device is not None and device not in devices:
        raise UsageError("history_no_device", device=device, known=", ".join(devices) or "-")
    chosen = [device] if device is not None else devices
    pairs = [(name, op) for name in chosen for op in history_ops(settings.baselines, name)]
    wanted = pick(sorted({op for _, op in pairs}), ops, "history_no_op")
    pairs = [pair for pair in pairs if pair[1] in wanted]
    if pattern is not None and not any(_has_case(settings, *pair, pattern) for pair in pairs):
        raise UsageError("no_case_fits", ops=", ".join(wanted), pattern=pattern)
    return [_tighten_op(settings, written, *pair, today, pattern, write=write) for pair in pairs]


def _has_case(settings: Settings, device: str, op: str, pattern: str) -> bool:
    newest = read_history(settings.baselines, device, op).runs[-1:]
    return any(matches(case, pattern) for run in newest for suite in Suite for case in list_cases(run, suite))


def refuse_in_pipeline(variables: Mapping[str, str]) -> None:
    """Raises UsageError in pipelines of merge requests, and of other branches than the default one."""
    if variables.get("CI_MERGE_REQUEST_IID") or variables.get("CI_PIPELINE_SOURCE") == "merge_request_event":
        raise UsageError("tighten_in_merge_request")
    branch, default = variables.get("CI_COMMIT_BRANCH"), variables.get("CI_DEFAULT_BRANCH")
    if default and branch != default:
        raise UsageError("tighten_off_default", default=default, branch=branch or variables.get("CI_COMMIT_TAG") or "-")


def _tighten_op(
    settings: Settings, written: Thresholds, device: str, op: str, today: str, pattern: str | None, *, write: bool
) -> Tightened:
    tightened = Tightened(op, device)
    try:
        history = read_counted(settings, device, op)
        if not history:
            return dataclasses.replace(tightened, said=(Reason("earned_nothing", {"op": op, "device": device}),))
        file = read_file(settings.thresholds / device / f"{op}.json", op, device)
        tightened, content = _work_out(written, file, history, today, pattern)
        if write and tightened.moves:
            replace_file(settings, file.path, file.content, content)
            tightened = dataclasses.replace(tightened, path=place(file.path, settings.root))
    except PerfciError as error:
        return dataclasses.replace(tightened, failure=error.reason)
    return tightened


def _work_out(
    written: Thresholds, file: EarnedFile, history: Sequence[HistoryRun], today: str, pattern: str | None
) -> tuple[Tightened, bytes]:
    """A file's changes, and its new content."""
    # Cases that have another name now, by what the runs recorded.
    there = {value.case for value in file.values}
    now: dict[str, str] = {}
    for run in reversed(history):
        now |= {old: now.get(new, new) for new, old in run.renamed.items()}
    renamed = {old: new for old, new in now.items() if old in there and new not in there and old != new}
    named = tuple(dataclasses.replace(value, case=renamed.get(value.case, value.case)) for value in file.values)

    # What noise a case has, and how fast its reference is, another driver, torch or Triton changes.
    where = history[-1].environment
    apart = unmixable(file.environment, where) if file.environment and named else ()
    anew, kept = (named, ()) if apart else ((), named)
    earned = dataclasses.replace(file, values=kept).by_case()
    earlier = {(one.case, one.key): one for one in kept}
    limits = dataclasses.replace(written, earned={file.op: earned})
    # A change to a kernel duels all cases of its op at the same time.
    family = len(list_cases(history[-1], Suite.PERFORMANCE))
    changes, whys = [], []
    for change in _list_agreed(propose(history, limits, file.op, family=family), history):
        if not matches(change.case, pattern):
            continue
        before = earlier.get((change.case, change.key))
        # One night's runs make one step, however often it is asked.
        if before is None or before.edited or before.last != change.runs[-1]:
            with speaking(ENGLISH):
                kept_why = sentence(Reason(_KEPT[change.why.kind], change.why.facts))
            changes.append(Earned(
                change.case, change.key, change.after, change.before, change.after,
                bound=float(f"{change.bound:.4g}"), began=before.began if before else change.before,
                predicted=change.predicted, date=today, runs=len(dict.fromkeys(change.runs)),
                first=change.runs[0], last=change.runs[-1], why=kept_why,
            ))  # fmt: skip
            whys.append(change.why)
    facts: dict[str, Fact] = {"op": file.op, "device": file.device, "count": len(anew)}
    said = (Reason("earned_anew", {**facts, "fields": list_differences(apart)}),) if anew else ()
    work = Tightened(file.op, file.device, tuple(changes), tuple(whys), anew, renamed, said)
    if not work.moves:
        return work, b""
    whole = {(change.case, change.key): change for change in (*kept, *changes)}
    return work, write_earned(file, where, whole.values())


def _list_agreed(proposed: Sequence[Tighter], history: Sequence[HistoryRun]) -> Iterator[Tighter]:
    """One change a case and key. Errors of an id in both suites go to the looser of two values, if both have one."""
    changes_of: dict[tuple[str, str], list[Tighter]] = {}
    for change in proposed:
        changes_of.setdefault((change.case, change.key), []).append(change)
    keys = {threshold_key.name: threshold_key for threshold_key in KEYS}
    for (case, name), changes in changes_of.items():
        count, key = 1, keys.get(name)
        if key is not None and key.error:
            both = [list_cases(history[-1], suite).get(case) for suite in (Suite.PERFORMANCE, Suite.ACCURACY)]
            count = sum(side is not None and key.figure(side) is not None for side in both)
        if len(changes) == count:
            yield max(changes, key=lambda change: change.after)


def rescale(settings: Settings, op: str, losses: Sequence[tuple[HistoryRun, Mapping[str, float]]]) -> Rescaled:
    """Makes targets of speed as tight for a kernel with accepted losses as they were before. Writes nothing.

    losses: runs of one device with which an epoch began, each with its cases -> accepted slow-down, log scale. Only
    earned targets are scaled.
    """
    said: list[Reason] = []
    if not losses:
        return Rescaled()
    last = losses[-1][0]
    device, today = last.environment.device.key, datetime.now(UTC).date().isoformat()
    try:
        written = load(settings.thresholds, None, settings.root)
        file = read_file(settings.thresholds / device / f"{op}.json", op, device)
        if file.environment is None or unmixable(file.environment, last.environment):
            return Rescaled()
        values = {(value.case, value.key): value for value in file.values}
        for run, shifts in losses:
            earned = dataclasses.replace(file, values=tuple(values.values())).by_case()
            limits = dataclasses.replace(written, earned={op: earned})
            for change in rescale_targets(limits, op, shifts, run.run):
                mine = values.get((change.case, change.key))
                strictest = find_strictest(written.for_case(op, change.case), change.key)
                if mine is None or not is_stricter(change.key, mine.value, strictest):
                    continue
                after = float(f"{change.after:.4g}")
                with speaking(ENGLISH):
                    why = sentence(Reason("earned_rescaled", change.why.facts))
                values[mine.case, mine.key] = dataclasses.replace(
                    mine, value=after, before=mine.value, after=after, bound=after, predicted=None, date=today,
                    runs=1, first=run.run, last=run.run, rescaled=run.run, why=why,
                )  # fmt: skip
                facts: dict[str, Fact] = {"key": change.key, "op": op, "case": change.case}
                facts |= {"before": show(change.key, mine.value), "after": show(change.key, after)}
                said.append(Reason("earned_rescaled_said", {**facts, "file": place(file.path, settings.root)}))
        if not said:
            return Rescaled()
        refuse_link(settings, file.path)
        return Rescaled(tuple(said), {file.path: write_earned(file, last.environment, values.values())})
    except PerfciError as error:
        return Rescaled((error.reason,))
