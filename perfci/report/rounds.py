"""The rounds of an op for people: tables for the terminal, the record of a merge request, and its picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfci.core import units
from perfci.core.model import Interval, Round, RoundVerdict
from perfci.core.wording import say, sentence
from perfci.report.charts.rounds import draw_rounds
from perfci.report.charts.style import save_png
from perfci.report.markdown import write, write_table
from perfci.report.text import NAME_LIMIT, file_name, glyphs, plain
from perfci.report.view import Table, make_table
from perfci.store.logbook import Pattern, count_patterns

PARAMETERS = 8  # most columns of parameters, those that were changed most often


def write_gain(gain: Interval | None) -> str:
    """A gain with its interval: +5.2 % (+4.8 % .. +5.6 %)."""
    if gain is None:
        return "-"
    value, low, high = (units.percent(each, signed=True) for each in (gain.value, gain.low, gain.high))
    return f"{value} ({low} .. {high})" if gain.low != gain.high else value


def list_changes(found: Round) -> list[str]:
    """What a round changed: stages 4 -> 3."""
    return [*dict.fromkeys(f"{each.name} {each.was or '-'} -> {each.now or '-'}" for each in found.changed)]


def tabulate_cases(found: Round) -> Table:
    """A row a case: its time, the best round's, and the gains."""
    return make_table("case | time: | best so far: | gain: | since the start: | speedup:", (
        (
            each.case, units.time(each.us), units.time(each.best_us), write_gain(each.best),
            write_gain(each.start) if found.best else "-",
            f"{each.reference_us / each.us:.2f}x" if each.us and each.reference_us else "-",
        )
        for each in found.cases
    ))  # fmt: skip


def tabulate_rounds(rounds: Sequence[Round]) -> Table:
    """A row a round: the parameters that any round changed, what was expected and measured, and its verdict."""
    every = [name for each in rounds for name in {change.name for change in each.changed}]
    names = sorted(set(every), key=lambda name: (-every.count(name), name))[:PARAMETERS]

    def find_value(found: Round, name: str) -> str:
        changes = [text for text in list_changes(found) if text.startswith(f"{name} ")]
        values = (kernel.parameters.get(name) for case in found.cases for kernel in case.kernels)
        return (
            ", ".join(text.removeprefix(f"{name} ") for text in changes or dict.fromkeys(filter(None, values))) or "-"
        )

    headings = "expected: | gain: | since the start: | speedup: | why"
    return make_table(" | ".join(["round | verdict", *(f"{name}:" for name in names), headings]), (
        (
            str(each.number), str(each.verdict), *(find_value(each, name) for name in names),
            units.percent(each.expected, signed=True), write_gain(each.gain), write_gain(each.total),
            f"{each.speedup:.2f}x" if each.speedup else "-", plain(each.why, NAME_LIMIT),
        )
        for each in rounds
    ))  # fmt: skip


def write_pattern(pattern: Pattern, counts: tuple[int, int]) -> str:
    """How often a kind of change, or of advice, was kept."""
    name, raised = pattern
    change = say("advice {name}", name=name) if raised is None else f"{name} {'+' if raised else '-'}"
    return say("{change}: kept {kept} of {tried:time|times}", change=change, kept=counts[0], tried=counts[1])


def write_files(op: str, rounds: Sequence[Round], everywhere: Sequence[Round]) -> dict[str, bytes]:
    """The record of the last start's rounds and its picture, by file name. everywhere: the rounds of all ops."""
    mine = [each for each in rounds if each.start == rounds[-1].start]
    start, kept = mine[-1].start[:10], [each for each in mine if each.verdict is RoundVerdict.KEPT]
    said = say("{kept} of {count:round|rounds} from {start} kept", kept=len(kept), count=len(mine), start=start)
    if kept:
        said = say("{said}: {gain} since the start", said=said, gain=write_gain(kept[-1].total))
    name, drawn = file_name(op), [each for each in mine if each.gain and each.place]
    parts = [f"## {write(say('{op}, round by round', op=op))}", write(f"{said}."), write_table(tabulate_rounds(mine))]
    parts[2:2] = [f"![{write(op)}]({name}.png)"] if drawn else []
    lines = []
    for each in mine:
        lines.append(f"- **{each.number}, {each.verdict}**: {write(plain(each.why, NAME_LIMIT))}")
        lines += [f"  - {write(plain(text))}" for text in (*map(sentence, each.reasons), "; ".join(list_changes(each)))
                  if text]  # fmt: skip
        lines += [f"  - `git show {each.commit[:10]}`"] if each.commit else []
    parts.append("\n".join(lines))
    if patterns := [write_pattern(*item) for item in count_patterns(everywhere).items()]:
        parts += [write(say("Counted over all ops:")), "\n".join(f"- {write(text)}" for text in patterns)]
    files = {f"{name}.md": ("\n\n".join(parts) + "\n").encode()}
    if drawn:
        # Over the reference, if its time is known for all cases of the start.
        pairs = [(case.reference_us, case.best_us) for case in drawn[0].cases]
        logs = [math.log(reference / us) for reference, us in pairs if reference and us]
        known = bool(logs) and len(logs) == len(pairs)
        unit = "times as fast as the reference" if known else "times as fast as the start"
        level = math.exp(sum(logs) / len(logs)) if known else 1.0
        files[f"{name}.png"] = save_png(draw_rounds(drawn, level, f"{glyphs(op, 40)}: speed by round", unit))
    return files
