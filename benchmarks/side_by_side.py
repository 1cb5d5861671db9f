"""perfci and other tools on the same launches: the same kernel twice, and slower by a planted effect."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import resampling
import screen_on_traces as recorded
from cells import EFFECTS, PROMISES, length_class, recordings
from duels import FAMILY, LIMITS, Outcome, play
from peers import Missing, Pair, Peer
from tables import percent, planted, table

from perfci.statistics import duel_rule
from perfci.statistics.duel_rule import Ruling

CHUNK = 12
"""Launches in a row that a tool which times a loop sees as one value: 10 values of 120 launches."""

APART = (1, 5, 9)
"""How many processes further on the stored launches come from."""

OURS = "perfci"


@dataclass(frozen=True)
class Question:
    """Launches of base and head, and what is known of them."""

    length: str
    effect: float
    pair: Pair


@dataclass(frozen=True)
class Setting:
    """A way of timing both arms, and each tool's verdicts."""

    title: str
    slower: Mapping[tuple[str, str, float], float]
    """(tool, class of length, effect) -> share of checks called slower"""
    changed: Mapping[str, tuple[int, int]]
    """tool -> times that it called the same kernel slower or faster, and checks"""


def settings(pairs: int, tools: Sequence[Peer]) -> list[Setting]:
    """All ways; pairs: resampled duels a recorded case and effect."""
    few, _ = _interleaved(pairs, duel_rule.FIRST)
    many, ours = _interleaved(pairs, duel_rule.FINAL[duel_rule.PROCESSES])
    stored = [question for apart in APART for question in _in_a_row(apart)]
    return [
        _asked("in one process", _in_a_row(0), tools),
        _asked("against another process", stored, tools),
        _asked("interleaved, 4 blocks", few, tools),
        _asked("interleaved, 48 blocks", many, tools, ours),
    ]


def _in_a_row(apart: int) -> list[Question]:
    """120 launches of one arm, then of the other: of the same process, or of one so many further on."""
    rows = [row for row in recorded.rows("h200-sequential.jsonl.gz") if row["factor"] == 1.0]
    taken = {(row["case"], row["proc"], row["rep"]): row for row in rows}
    processes = sorted({row["proc"] for row in rows})
    questions: list[Question] = []
    for case, number in itertools.product(sorted({row["case"] for row in rows}), range(len(processes))):
        other = processes[(number + apart) % len(processes)]
        questions += _questions(taken[case, processes[number], 0], taken[case, other, 0 if apart else 1])
    return questions


def cells_between() -> float:
    """Median number of other cells that a process ran between the two of the same kernel."""
    processes: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(recorded.rows("h200-sequential.jsonl.gz"), key=lambda row: row["t"]):
        processes.setdefault(row["proc"], []).append(row)
    places: dict[tuple[int, str], list[int]] = {}
    for process, rows in processes.items():
        for place, row in enumerate(rows):
            if row["factor"] == 1.0:
                places.setdefault((process, row["case"]), []).append(place)
    return statistics.median(second - first - 1 for first, second in places.values())


def _questions(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[Question]:
    arms = [np.multiply(row["ev"], 1000).reshape(-1, CHUNK) for row in (base, head)]
    clocks = float(base["nv"]["sm"]), float(head["nv"]["sm"])
    for effect in EFFECTS:
        slowed = arms[1] * (1 + effect)
        yield Question(length_class(float(np.median(arms[0]))), effect, Pair(list(arms[0]), list(slowed), clocks))


def _interleaved(pairs: int, blocks: int) -> tuple[list[Question], list[Outcome]]:
    """The first blocks of resampled duels, with their buffers, and how perfci's duels end."""
    questions, outcomes = [], []
    for number, recording in enumerate(recordings("own")):
        rng = np.random.default_rng((7, number))
        drawn = [resampling.draw(recording, rng) for _ in range(pairs)]
        for effect, duel in itertools.product(EFFECTS, drawn):
            slowed = replace(duel, effect=effect)
            base, head, clock = slowed.launches()
            pair = Pair(base[:blocks], head[:blocks], (clock, clock))  # a block's arms run at the same clock
            questions.append(Question(length_class(recording.base_us), effect, pair))
            outcomes += play([slowed], LIMITS, FAMILY)
    return questions, outcomes


def _asked(title: str, questions: Sequence[Question], tools: Sequence[Peer], ours: Sequence[Outcome] = ()) -> Setting:
    said = {tool.name: tool.verdicts([question.pair for question in questions]) for tool in tools}
    if ours:
        words = {Ruling.SLOWER: "slower", Ruling.FASTER: "faster"}
        said = {OURS: [words.get(outcome.answer, "same") for outcome in ours], **said}
    keys = [(question.length, question.effect) for question in questions]
    slower = {
        (tool, *key): float(np.mean([word == "slower" for word, at in zip(words, keys, strict=True) if at == key]))
        for tool, words in said.items()
        for key in dict.fromkeys(keys)
    }
    same = [number for number, (_, effect) in enumerate(keys) if not effect]
    changed = {tool: (sum(words[number] != "same" for number in same), len(same)) for tool, words in said.items()}
    return Setting(title, slower, changed)


# --- shown ------------------------------------------------------------------------------------------------------------


def text(settings: Sequence[Setting], tools: Sequence[Peer], missing: Sequence[Missing]) -> str:
    names = [OURS, *(tool.name for tool in tools)]
    same = table(
        ("the same kernel twice, called different", *(setting.title for setting in settings)),
        [[name, *(_counted(setting.changed.get(name)) for setting in settings)] for name in names],
    )
    order = (
        f"In one process a median of {cells_between():g} other measurements lie between the two of the same kernel, as "
        "in a suite that is run twice."
    )
    rules = [f"- **{tool.name}**: {tool.rule}." for tool in tools]
    rules += [f"- **{peer.name}** is left out: {peer.why}." for peer in missing]
    return "\n\n".join(
        [same, order, *(_power(setting, names) for setting in (settings[0], settings[-1])), "\n".join(rules)]
    )


def _power(setting: Setting, names: Sequence[str]) -> str:
    keys = [key for key in PROMISES.items() if (names[1], *key) in setting.slower]
    head = (f"{setting.title}, called slower", *(f"{planted(effect)}, {length}" for length, effect in keys))
    return table(head, [[name, *(_share(setting.slower.get((name, *key))) for key in keys)] for name in names])


def _counted(counted: tuple[int, int] | None) -> str:
    return "-" if counted is None else f"{counted[0]} of {counted[1]:,} ({percent(counted[0] / counted[1])})"


def _share(rate: float | None) -> str:
    return "-" if rate is None else percent(rate)


COLOURS = ("#000000", "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#0072b2", "#8c8c8c")
MARKERS = "osv^DPXd"


def plot(settings: Sequence[Setting], path: Path) -> None:
    """Share of checks called slower, by effect: a column a class of length, a row a way of taking the launches."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    lengths = [name for name in PROMISES if any(name in key for key in settings[-1].slower)]
    rows = {
        "120 launches of each arm,\nother kernels in between": settings[0],
        "interleaved in 48 blocks": settings[-1],
    }
    figure, axes = plt.subplots(2, len(lengths), figsize=(11, 7.6), sharex=True, sharey=True, layout="constrained")
    for (label, setting), line in zip(rows.items(), axes, strict=True):
        line[0].set_ylabel(f"{label}\n\ncalled slower, % of checks")
        for length, axis in zip(lengths, line, strict=True):
            _curves(axis, setting, length)
    for length, top, bottom in zip(lengths, *axes, strict=True):
        top.set_title(f"kernels of {length}" if length[0].isdigit() else f"kernels {length}")
        bottom.set_xlabel("planted slow-down, %")
    handles = {text: line for axis in axes.flat for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    names = sorted(handles, key=lambda name: name != OURS)
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curves(axis: Any, setting: Setting, length: str) -> None:
    tools = [tool for tool in dict.fromkeys(tool for tool, *_ in setting.slower) if tool != OURS]
    drawn = {tool: (COLOURS[place], MARKERS[place], 1.4) for place, tool in enumerate(tools, 1)}
    if OURS in setting.changed:
        drawn[OURS] = (COLOURS[0], MARKERS[0], 3.0)
    for tool, (colour, marker, width) in drawn.items():
        shares = [100 * setting.slower[tool, length, effect] for effect in EFFECTS]
        axis.plot(shares, label=tool, color=colour, marker=marker, markersize=5, linewidth=width)
    place = EFFECTS.index(PROMISES[length])
    axis.axvline(place, color="#999999", linestyle=":", linewidth=1.2, label="what perfci promises to see")
    axis.set_xticks(range(len(EFFECTS)), [f"{100 * effect:g}" if effect else "none" for effect in EFFECTS])
    axis.set_ylim(-4, 104)
    axis.grid(alpha=0.3)
