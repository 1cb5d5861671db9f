"""The rounds of an op for people: tables for the terminal and the record of a merge request, and what to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfci.core import units
from perfci.core.model import Interval, Round, RoundChange, RoundVerdict
from perfci.core.wording import say, sentence
from perfci.report.charts.rounds import RoundPoint, draw_rounds
from perfci.report.charts.style import save_png
from perfci.report.markdown import write, write_table
from perfci.report.text import NAME_LIMIT, file_name, glyphs, plain
from perfci.report.view import Table, make_table
from perfci.store.logbook import Pattern, count_patterns

PARAMETERS = 8  # most columns of parameters


def write_gain(gain: Interval | None) -> str:
    """A gain with its interval: +5.2 % (+4.8 % .. +5.6 %)."""
    if gain is None:
        return "-"
    value, low, high = (units.percent(each, signed=True) for each in (gain.value, gain.low, gain.high))
    return f"{value} ({low} .. {high})" if gain.low != gain.high else value


def write_change(change: RoundChange) -> str:
    """What a round changed.

    >>> write_change(RoundChange("stages", "4", "3"))
    'stages 4 -> 3'
    """
    return f"{change.name} {change.was or '-'} -> {change.now or '-'}"


def tabulate_cases(found: Round) -> Table:
    """A row a case: its time, the best round's, and the gains."""
    return make_table(
        "case | time: | best so far: | gain: | since the start: | speedup:",
        (
            (
                each.case, units.time(each.us), units.time(each.best_us), write_gain(each.best),
                write_gain(each.start) if found.best else "-",
                f"{each.reference_us / each.us:.2f}x" if each.us and each.reference_us else "-",
            )
            for each in found.cases
        ),
    )  # fmt: skip


def list_columns(rounds: Sequence[Round]) -> list[str]:
    """Parameters that differ between rounds, those that were changed most often first."""
    counts: dict[str, int] = {}
    for each in rounds:
        for name in {change.name for change in each.changed}:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))[:PARAMETERS]


def tabulate_rounds(rounds: Sequence[Round]) -> Table:
    """A row a round: its parameters, what was expected and measured, and its verdict."""
    names = list_columns(rounds)
    return make_table(
        " | ".join([
            "round | verdict", *(f"{name}:" for name in names),
            "expected: | gain: | since the start: | speedup: | why",
        ]),
        (
            (
                str(each.number), str(each.verdict), *(_find_value(each, name) for name in names),
                units.percent(each.expected, signed=True), write_gain(each.gain), write_gain(each.total),
                f"{each.speedup:.2f}x" if each.speedup else "-", plain(each.why, NAME_LIMIT),
            )
            for each in rounds
        ),
    )  # fmt: skip


def _find_value(found: Round, name: str) -> str:
    """A parameter's values over the cases, or its change if only that is known."""
    if name in {change.name for change in found.changed}:
        own = (write_change(each) for each in found.changed if each.name == name)
        return ", ".join(dict.fromkeys(text.removeprefix(f"{name} ") for text in own))
    values = dict.fromkeys(
        value for case in found.cases for kernel in case.kernels if (value := kernel.parameters.get(name))
    )
    return ", ".join(values) or "-"


def write_pattern(pattern: Pattern, counts: tuple[int, int]) -> str:
    """How often a kind of change was kept."""
    (name, raised), (kept, tried) = pattern, counts
    if raised:
        return say("{name} raised: kept {kept} of {tried:time|times}", name=name, kept=kept, tried=tried)
    return say("{name} lowered: kept {kept} of {tried:time|times}", name=name, kept=kept, tried=tried)


def write_files(op: str, rounds: Sequence[Round], everywhere: Sequence[Round]) -> dict[str, bytes]:
    """The record of the last start's rounds, and its picture, by file name. everywhere: the rounds of all ops."""
    mine = [each for each in rounds if each.start == rounds[-1].start]
    points, known = list_points(mine)
    files = {}
    if len(points) > 1:
        unit = "times as fast as the reference" if known else "times as fast as the start"
        title = f"{glyphs(op, 40)}: speed by round"
        files[f"{file_name(op)}.png"] = save_png(draw_rounds(points, title, unit, f"start {mine[0].start[:10]}"))
    record = write_record(op, mine, next(iter(files), None), everywhere)
    return {f"{file_name(op)}.md": record.encode(), **files}


def write_record(op: str, rounds: Sequence[Round], picture: str | None, everywhere: Sequence[Round]) -> str:
    """Markdown for a merge request: what was tried from one start, what came of it, and what the next one can learn."""
    start, kept = rounds[-1].start[:10], [each for each in rounds if each.verdict is RoundVerdict.KEPT]
    said = say("{kept} of {count:round|rounds} from {start} kept", kept=len(kept), count=len(rounds), start=start)
    if kept and (total := kept[-1].total):
        said = say("{said}: {gain} since the start", said=said, gain=write_gain(total))
    parts = [f"## {write(say('{op}, round by round', op=op))}", write(f"{said}.")]
    parts += [f"![{write(op)}]({picture})"] if picture else []
    parts.append(write_table(tabulate_rounds(rounds)))
    for each in rounds:
        lines = [f"- **{each.number}, {each.verdict}**: {write(plain(each.why, NAME_LIMIT))}"]
        lines += [f"  - {write(plain(sentence(reason)))}" for reason in each.reasons]
        lines += [f"  - {write('; '.join(map(write_change, each.changed)))}"] if each.changed else []
        lines += [f"  - `git show {each.commit[:10]}`"] if each.commit else []
        parts.append("\n".join(lines))
    if patterns := [write_pattern(*item) for item in count_patterns(everywhere).items()]:
        parts += [write(say("Counted over all ops:")), "\n".join(f"- {write(text)}" for text in patterns)]
    return "\n\n".join(parts) + "\n"


def list_points(rounds: Sequence[Round]) -> tuple[list[RoundPoint], bool]:
    """What there is to draw of the rounds of one start, and whether heights are speedups over the reference.

    Otherwise they are times as fast as the start, whose own height is the first point's.
    """
    judged = [each for each in rounds if each.gain]
    first = next((each for each in judged if not each.best), None)
    pairs = [(case.reference_us, case.best_us) for case in first.cases] if first else []
    logs = [math.log(reference / best) for reference, best in pairs if reference and best]
    known = bool(pairs) and len(logs) == len(pairs)
    level = math.exp(sum(logs) / len(logs)) if known else 1.0
    points, heights = [RoundPoint(0, level)], {0: level}
    for each in judged:
        assert each.gain is not None
        below = heights.get(each.best, level)
        height = level * (1 + each.total.value) if each.total else below * (1 + each.gain.value)
        if each.verdict is RoundVerdict.KEPT:
            heights[each.number] = height
        points.append(RoundPoint(
            each.number, height, each.gain.value, below * (1 + each.gain.low), below * (1 + each.gain.high),
            None if each.expected is None else below * (1 + each.expected), str(each.verdict), each.why,
        ))  # fmt: skip
    return points, known
