"""What somebody who is to make an op faster has to know, as one page: `perfci brief`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from perfci.core import units
from perfci.core.model import Interval, Profile, Reason, Round, Verdict
from perfci.core.wording import say, sentence
from perfci.report import words
from perfci.report.markdown import write, write_table
from perfci.report.rounds import tabulate_rounds
from perfci.report.text import block, code, plain
from perfci.report.view import Table, make_table


@dataclass(frozen=True)
class BriefCase:
    """A performance case: what it takes by its suite, and where it stands. null: not known."""

    case: str
    us: float | None = None  # of the kernel, median
    reference_us: float | None = None
    speedup: Interval | None = None  # reference time / kernel time
    verdict: Verdict | None = None  # of the run
    target: float | None = None  # speedup that thresholds ask for
    bytes_moved: int | None = None  # declared by the suite: fewest bytes that must move
    flops: int | None = None  # declared by the suite: floating-point operations
    intensity: float | None = None  # operations a byte
    bound: str | None = None  # memory or arithmetic: which measured ceiling is the lower one
    share: float | None = None  # of that ceiling which it reaches


@dataclass(frozen=True)
class Brief:
    """What an op is, where it stands, what holds it back, what was tried, and what may be changed."""

    op: str
    words: str  # of <op>.md
    differs: tuple[Reason, ...]  # what these words say and the suites do not have
    call: str  # softmax(x)
    parameters: Mapping[str, tuple[str, ...]]  # of the performance cases, with their values
    checks: int  # accuracy cases
    source: Reason  # where the times are from
    cases: tuple[BriefCase, ...]
    profile: Profile | None  # the last one
    rounds: tuple[Round, ...]  # of the logbook
    rounds_left: int  # that the last start has, or a new one
    files: Mapping[str, tuple[str, ...]]  # kind of change -> the files that it may touch, below the project's root


def write_markdown(found: Brief) -> str:
    """Returns the page."""
    return "\n".join(_write_lines(found))


def _write_lines(found: Brief) -> Iterator[str]:
    # Its title is the page's, whatever the file says.
    own = [line for line in block(found.words).split("\n") if not line.startswith("# ")]
    yield from (f"# {write(plain(found.op))}", "", "\n".join(own).strip())
    yield from (f"\n> **{write(sentence(each))}**" for each in found.differs)
    yield f"\n## {say('What the suites hold')}\n"
    yield f"- {write(code(found.call))}"
    for name, values in found.parameters.items():
        yield f"- {write(say('{name}: {values}', name=code(name), values=', '.join(map(code, values))))}"
    counts = {"performance": len(found.cases), "accuracy": found.checks}
    yield "- " + say(
        "{performance:performance case|performance cases}, {accuracy:accuracy case|accuracy cases}", **counts
    )
    yield f"\n## {say('Where it stands')}\n\n{write(sentence(found.source))}\n"
    yield write_table(_tabulate_cases(found))
    if profile := found.profile:
        head = say(
            "What holds it back, by a profile of {created} on {device}",
            created=profile.time,
            device=profile.device.name,
        )
        yield f"\n## {write(plain(head))}\n"
        for note in filter(None, [profile.note]):
            yield f"{write(plain(sentence(note)))}\n"
        for case in profile.cases:
            said = _write_all(filter(None, (case.failure, *case.evidence)))
            yield f"- {write(code(case.case))}: **{case.bound or '-'}**. {said}"
            yield from (f"  - {write(code(advice.id))}: {_write_all([advice.reason])}" for advice in case.advice)
    yield f"\n## {say('What was tried')}\n"
    if found.rounds:
        yield write_table(tabulate_rounds(found.rounds)) + "\n"
    left = say(
        "{count:round is|rounds are} left; the next one: `perfci try {op} --why TEXT`",
        count=found.rounds_left,
        op=found.op,
    )
    yield f"{write(left)}\n\n## {say('What may be changed')}\n"
    kinds = {
        "tuning": say("tuning, numbers such as tiles, warps and stages"),
        "logic": say("logic, another way to the same answer"),
        "interface": say(
            "interface, other arguments or another answer: all of these together, by a merge request alone"
        ),
    }
    for kind, files in found.files.items():
        yield f"- {write(say('{name}: {values}', name=kinds[kind], values=', '.join(map(code, files))))}"


def _write_all(reasons: Iterable[Reason]) -> str:
    return write(plain(" ".join(map(sentence, reasons))))


def _tabulate_cases(found: Brief) -> Table:
    lines = (
        (
            code(each.case),
            units.time(each.us),
            units.time(each.reference_us),
            words.write_speedup(each.speedup),
            words.write_ratio(each.target),
            units.size(each.bytes_moved),
            words.write_number(None if each.flops is None else each.flops / 1e9),
            words.write_number(each.intensity),
            {"memory": say("memory"), "arithmetic": say("arithmetic")}.get(each.bound or "", "-"),
            units.percent(each.share),
        )
        for each in found.cases
    )
    heads = (
        "case | time: | reference: | speedup: | target: | moved: | GFLOP: | operations a byte: | bound by | of ceiling:"
    )
    return make_table(heads, lines)
