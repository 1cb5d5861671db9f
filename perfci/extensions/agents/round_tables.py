"""The rounds of an op as Markdown: each one, and the record of a merge request."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from perfci.core import units
from perfci.core.errors import StoredFileError
from perfci.core.model import Interval
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.agents.logbook import Round, RoundVerdict, read_logbook
from perfci.ops.discover import ops
from perfci.ops.fingerprint.tree import Tree
from perfci.report.markdown import write, write_table
from perfci.report.text import NAME_LIMIT, code, plain
from perfci.report.view import Table, make_table

SHOWN = 6  # most parameters that are named. Constants come first
VALUES = 2  # most values of a parameter that are named: cases may differ


def write_gain(gain: Interval | None) -> str:
    """Writes a gain with its interval: +5.2 % (+4.8 % .. +5.6 %)."""
    if gain is None:
        return "-"
    value, low, high = (units.percent(share, signed=True) for share in (gain.value, gain.low, gain.high))
    return f"{value} ({low} .. {high})" if gain.low != gain.high else value


def _list_changes(round_: Round) -> dict[str, str]:
    """Returns what a round changed of each parameter: {"stages": "4 -> 3"}."""
    values: dict[str, list[str]] = {}
    for parameter in round_.changed:
        values.setdefault(parameter.name, []).append(f"{parameter.was} -> {parameter.now}")
    return {name: _write_some(many, VALUES) for name, many in values.items()}


def _write_some(texts: Sequence[str], most: int, mark: str = ", ") -> str:
    return mark.join(texts[:most]) + (f" (+{len(texts) - most})" if len(texts) > most else "")


def write_round(round_: Round) -> Iterator[str]:
    """Yields a list item: the verdict, the hypothesis, what decided, what changed, and how to get it or go back."""
    against = say("round {number}", number=round_.best) if round_.best else say("the start")
    head = say("round {number} against {against}", number=round_.number, against=against)
    yield f"- **{round_.verdict}**, {write(head)}: {write(plain(round_.why, NAME_LIMIT))}"
    lines = [*map(sentence, round_.reasons)]
    if changes := [f"{name} {values}" for name, values in _list_changes(round_).items()]:
        lines.append(say("Changed: {changes}", changes=_write_some(changes, SHOWN, "; ")))
    if round_.expected is not None and round_.gain:
        got = write_gain(round_.gain)
        lines.append(say("Expected {expected:+%}, got {gain}", expected=round_.expected, gain=got))
    if round_.total and round_.best:
        lines.append(say("Since the start: {gain}", gain=write_gain(round_.total)))
    yield from (f"  - {write(plain(line))}" for line in lines)
    if round_.commit:
        yield f"  - `git show {round_.commit[:10]}`"


def tabulate_cases(round_: Round) -> Table:
    """Returns a row for each case: its time, the best round's, and the gains."""
    return make_table("case | time: | best so far: | gain: | since the start: | speedup:", (
        (
            code(case.case), units.time(case.us), units.time(case.best_us), write_gain(case.best),
            write_gain(case.start) if round_.best else "-",
            f"{case.reference_us / case.us:.2f}x" if case.us and case.reference_us else "-",
        )
        for case in round_.cases
    ))  # fmt: skip


def tabulate_rounds(rounds: Sequence[Round]) -> Table:
    """Returns a row for each round: the parameters that rounds changed most often, the gains, and the verdict."""
    changes = [_list_changes(round_) for round_ in rounds]
    every = [name for change in changes for name in change]
    names = sorted(dict.fromkeys(every), key=lambda name: -every.count(name))[:SHOWN]
    headings = "expected: | gain: | since the start: | speedup: | why"
    return make_table(" | ".join(["round | verdict", *(f"{name}:" for name in names), headings]), (
        (
            str(round_.number), str(round_.verdict), *(changed.get(name, "-") for name in names),
            units.percent(round_.expected, signed=True), write_gain(round_.gain), write_gain(round_.total),
            f"{round_.speedup:.2f}x" if round_.speedup else "-", plain(round_.why, NAME_LIMIT),
        )
        for round_, changed in zip(rounds, changes, strict=True)
    ))  # fmt: skip


def write_record(op: str, rounds: Sequence[Round]) -> str:
    """Returns the record of the last start's rounds."""
    mine = [round_ for round_ in rounds if round_.start == rounds[-1].start]
    start, kept = mine[-1].start[:10], [round_ for round_ in mine if round_.verdict is RoundVerdict.KEPT]
    said = say("{kept} of {count:round|rounds} from {start} kept", kept=len(kept), count=len(mine), start=start)
    if kept:
        said = say("{said}: {gain} since the start", said=said, gain=write_gain(kept[-1].total))
    parts = [f"## {write(say('{op}, round by round', op=op))}", write(f"{said}."), write_table(tabulate_rounds(mine))]
    return "\n\n".join([*parts, "\n".join(line for round_ in mine for line in write_round(round_))]) + "\n"


def list_records(settings: Settings, names: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Yields the last start's rounds of each of these ops whose kernel is the best of them: what a reviewer needs."""
    for rounds in find_rounds(settings, names):
        yield say("{op}, round by round", op=rounds[0].op), tabulate_rounds(rounds)


def find_rounds(settings: Settings, names: Sequence[str]) -> Iterator[tuple[Round, ...]]:
    """Yields the rounds that the note shows, of an op at a time."""
    tree = Tree(settings.root, settings.kernels)
    for op in (op for op in ops(settings) if op.op in names):
        with suppress(StoredFileError):  # a review does not wait for a logbook
            rounds = read_logbook(op.folder).rounds
            last = tuple(one for one in rounds if one.start == rounds[-1].start)
            kept = [one for one in last if one.verdict is RoundVerdict.KEPT]
            if kept and kept[-1].digest == tree.fingerprint(op.op).digest:
                yield last
