"""What `perfci check --format json` prints: the verdicts for programs.

Times are microseconds (`_us`), changes are ratios - 1 with plus for slower. What is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from perfci.core.model.verdict import Fact


class AnsweredReason(TypedDict):
    """Why something is as it is."""

    kind: str
    """one of a fixed set of names, the same in every language"""
    facts: Mapping[str, Fact]
    """the numbers and words that the sentence holds"""
    sentence: str
    """in the language that was asked for"""


class AnsweredInterval(TypedDict):
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float
    """0.95 where the interval holds the true value in 95 of 100 runs"""


class AnsweredDuel(TypedDict):
    """How a case did beside the base revision."""

    blocks: int
    processes: int
    allowed: float
    """slow-down that is allowed, ratio - 1"""
    by_process: list[float]
    """median change of each process, ratio - 1"""
    p_slower: float
    """that it is slower than allowed by chance alone. 1 before the looks that may decide"""
    p_faster: float
    p_differs: float
    """small where kernel and base are as good as equal"""


class AnsweredDifference(TypedDict):
    """A field in which the environment of the run is not that of the case's baseline."""

    field: str
    """dotted: device.driver, packages.torch, variables.CUDA_LAUNCH_BLOCKING"""
    before: str | None
    """of the baseline's runs. null if it was not set, or not installed"""
    after: str | None
    moves: bool
    """it can move a number, so that nothing is blamed on the kernel. False if it is only named"""


class AnsweredExpected(TypedDict):
    """A slow-down that was agreed on: an entry under `expected` in `thresholds/<op>.yaml`."""

    case: str
    """--case pattern of the cases that it is about"""
    up_to: float
    """slow-down that it allows, ratio - 1"""
    why: str
    until: str
    """the last day on which it holds, ISO 8601"""
    file: str
    """relative to the project's root"""
    line: int


class AnsweredSuggestion(TypedDict):
    """An entry that would make a slow-down EXPECTED, as it is to be pasted."""

    file: str
    """relative to the project's root"""
    line: str
    """the entry itself"""
    below: int | None
    """line of the file's `expected:`, below which it goes. null if the file has none"""
    replaces: int | None
    """line of the file's entry for this very case, whose place it takes"""


class AnsweredPeer(TypedDict):
    """Another implementation beside the kernel. No verdict depends on it."""

    name: str
    """as the performance suite calls it"""
    us: float | None
    """median of block medians. null if it was not timed"""
    ratio: AnsweredInterval | None
    """peer's time / kernel time: below 1 the kernel is the slower one"""
    faster: bool
    """it beats the kernel beyond doubt: the whole 95 % interval lies below 1"""
    reason: AnsweredReason | None
    """why it was not timed, or not to the end"""


class AnsweredVerdict(TypedDict):
    """The verdict about one case, or about an op as a whole where case is null."""

    op: str
    suite: str
    """accuracy, performance or compiled"""
    case: str | None
    target: str | None
    """what a compiled kernel was compiled for: sm_90, gfx942"""
    verdict: str
    """PASS, REGRESSED, ..., as docs/how-perfci-decides.md lists them"""
    gate: str
    """what the verdict does to the merge request: ok, warns or fails"""
    reason: AnsweredReason | None
    """the one that decided"""
    also: list[AnsweredReason]
    """others worth knowing"""
    change: AnsweredInterval | None
    """current / baseline - 1, or against the base if the case was timed beside it"""
    speedup: AnsweredInterval | None
    """reference time / kernel time"""
    kernel_us: float | None
    """median of block medians, as are the other times"""
    reference_us: float | None
    baseline_us: float | None
    base_us: float | None
    duel: AnsweredDuel | None
    """null if the case was not timed beside a base"""
    p_adjusted: float | None
    """p value of being slower, adjusted for the other cases"""
    expected: AnsweredExpected | None
    """the entry that excuses the case, or that does not reach so far, or no more"""
    suggested: AnsweredSuggestion | None
    """the entry that would excuse it. null if none could"""
    differs: list[AnsweredDifference]
    """what is no longer as it was when the baseline was recorded"""
    peers: list[AnsweredPeer]
    """further implementations that were timed too. Empty without --peers"""


class AnsweredRun(TypedDict):
    """The run that was judged."""

    id: str
    created: str
    """ISO 8601, UTC"""
    perfci: str
    """version"""
    commit: str | None
    """HEAD of the project under test"""
    dirty: bool
    """tracked files differ from that commit"""
    device: str
    """device key: nvidia-h200"""
    timer: str | None
    """activity, event or virtual. null if nothing was timed"""
    seed: int
    stopped: str | None
    """SIGINT, SIGTERM or SIGHUP if the run was stopped early"""
    base: str | None
    """commit that it was compared with"""


class Answer(TypedDict):
    """The verdicts of a run."""

    format: int
    gate: str
    """the worst of all verdicts: ok, warns or fails"""
    exit_code: int
    """of a run that is not strict"""
    summary: str
    """one line, in the language that was asked for"""
    ops: int
    """how many"""
    counts: Mapping[str, int]
    """verdict -> how many, only those that occur; an op's accuracy counts once, however many of its cases are wrong"""
    run: AnsweredRun | None
    verdicts: list[AnsweredVerdict]
    notes: list[AnsweredReason]
    """about the run as a whole"""
