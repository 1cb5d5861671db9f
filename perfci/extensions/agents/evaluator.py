"""The judge as the evaluator of those that evolve kernels, OpenEvolve and its kin."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.codec import encode
from perfci.core.files import read_regular
from perfci.core.settings import load
from perfci.core.temporary import temporary_folder
from perfci.core.wording import sentence
from perfci.extensions.agents.logbook import FILE, append_round, read_logbook
from perfci.extensions.agents.round_records import Round, RoundVerdict
from perfci.extensions.agents.rounds import try_round
from perfci.git.base import find_commit
from perfci.git.checkout import materialise
from perfci.git.command import require
from perfci.git.repository import find_repository
from perfci.ops.discover import select_one
from perfci.report.data import write_plain
from perfci.runs.plan import Request
from perfci.runs.rules import move_settings
from perfci.store.files import copy_files, write_atomically
from perfci.store.history import held

MOST = 10**6  # rounds of a search: it has a budget


@dataclass(frozen=True)
class Evaluation:
    """The answer to a search about a candidate. OpenEvolve takes both as `EvaluationResult(metrics, artifacts)`."""

    metrics: Mapping[str, float]
    """combined_score: times as fast as the start, never above the best so far unless beyond doubt, 0 if the answer is
    wrong or there is none. correct, kept: 1 or 0. gain, gain_low, gain_high: over the best so far, 0.2 is 20 % faster.
    speedup: reference time / kernel time, geometric mean"""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """verdict, reasons (sentences) and round (JSON): what to tell anyone who writes the next candidate"""


def evaluate(
    program: str | os.PathLike[str],
    op: str,
    project: str | os.PathLike[str] = ".",
    device: str = "auto",
    why: str = "a candidate of a search",
) -> Evaluation:
    """Judge a candidate for an op's `_triton.py` as one round, beside the best so far. The work tree stays as it is.

    All else is as the start of the op's rounds has it, HEAD for the first one. Other evaluations of the project are
    waited for. Raises PerfciError if that is not possible, not if the candidate is at fault.
    """
    settings = load(Path(project))
    folder = select_one(settings, op)
    with held(settings.reports, math.inf), temporary_folder("evaluate") as own:
        rounds = read_logbook(folder.folder).rounds
        start = rounds[-1].start if rounds else find_commit(settings.root, "HEAD")
        root = materialise(settings.root, start, own)
        write_atomically(own / ".git", f"gitdir: {require(find_repository(settings.root)).inner}\n".encode())
        there = move_settings(settings, root)
        kernel = root / folder.files[0].relative_to(settings.root)
        write_atomically(kernel, read_regular(Path(program).resolve()))
        copy_files([FILE], folder.folder, kernel.parent)
        request = Request((folder.op,), device=device)
        found = try_round(
            there, request, why, lambda _: None, "perfci.extensions.agents.evaluator.evaluate", start=start, most=MOST
        )
        append_round(folder.folder, found)
    score, gain = _score(found, {round_.number: round_ for round_ in rounds}), found.gain
    metrics = {"combined_score": score, "correct": float(score > 0), "kept": float(found.verdict is RoundVerdict.KEPT)}
    metrics |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high} if gain else {}
    metrics |= {"speedup": found.speedup} if found.speedup else {}
    reasons = "\n".join(map(sentence, found.reasons))
    told = {"verdict": str(found.verdict), "reasons": reasons, "round": encode(write_plain(found)).decode()}
    return Evaluation(metrics, told)


def _score(round_: Round, rounds: Mapping[int, Round]) -> float:
    """How many times as fast as the start a round is. What is not better beyond doubt is not better than the best."""
    same = round_.reasons[0].facts.get("number") if round_.verdict is RoundVerdict.REFUSED else None
    if same:  # the files of a round before
        return _score(rounds[int(str(same))], rounds)
    if round_.total and round_.verdict is RoundVerdict.KEPT:
        return 1 + round_.total.value
    before = rounds.get(round_.best)
    best = 1 + before.total.value if before and before.total else 1.0
    if round_.verdict in {RoundVerdict.SLOWER, RoundVerdict.MIXED} and round_.gain:
        return best * min(1 + round_.gain.value, 1.0)
    return best if round_.verdict is RoundVerdict.EQUAL or same == 0 else 0.0
