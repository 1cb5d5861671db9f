"""Everything you need to make an op faster, on one page: `perfci brief`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from perfci.core import units
from perfci.core.model import Interval, Reason
from perfci.core.wording import say, sentence
from perfci.extensions.agents.profile_records import Profile
from perfci.extensions.agents.round_records import Round
from perfci.extensions.agents.round_tables import tabulate_rounds
from perfci.report import words
from perfci.report.markdown import write, write_table
from perfci.report.text import block, code, plain
from perfci.report.view import Table, make_table


@dataclass(frozen=True)
class BriefCase:
    """A performance case: what it takes by its suite, and where it stands. null: not known."""

    case: str
    us: float | None = None  # of the kernel, median
    reference_us: float | None = None
    speedup: Interval | None = None  # reference time / kernel time
    target: float | None = None  # speedup that thresholds ask for
    bytes_moved: int | None = None  # declared by the suite: fewest bytes that must move
    flops: int | None = None  # declared by the suite: floating-point operations
    intensity: float | None = None  # operations a byte
    rates: Mapping[str, float | None] = field(default_factory=dict)
    """gbps, tflops: what it reaches; of_copy, of_matmul: shares of the ceilings that the run measured"""


@dataclass(frozen=True)
class Brief:
    """What an op is, where it stands, what holds it back, what was tried, and what may be changed."""

    op: str
    words: str  # of <op>.md
    warnings: tuple[Reason, ...]  # what these words ask for and the suites do not have, and torn lines of the logbook
    call: str  # softmax(x)
    checks: int  # accuracy cases
    source: Reason  # where the times are from
    cases: tuple[BriefCase, ...]
    profile: Profile | None  # the last one
    rounds: tuple[Round, ...]  # of the logbook
    rounds_left: int  # that the last start has, or a new one
    files: Mapping[str, tuple[str, ...]]  # kind of change -> the files that it may touch, below the project's root


def write_markdown(brief: Brief) -> Iterator[str]:
    """Yields the page, part by part."""
    # Its title is the page's, whatever the file has.
    lines = [line for line in block(brief.words).split("\n") if not line.startswith("# ")]
    yield from (f"# {write(plain(brief.op))}", "", "\n".join(lines).strip(), "")
    yield from (f"> **{write(sentence(warning))}**\n" for warning in brief.warnings)
    cases = say("{count:performance case|performance cases}", count=len(brief.cases))
    checks = say("{count:accuracy case|accuracy cases}", count=brief.checks)
    suites = say("{performance}, {accuracy}", performance=cases, accuracy=checks)
    yield f"{write(code(brief.call))}: {suites}.\n\n## {say('Where it stands')}\n\n{write(sentence(brief.source))}\n"
    yield write_table(_tabulate_cases(brief.cases))
    if brief.profile:
        yield f"\n## {write(say('What holds it back'))}\n"
        yield from write_profile(brief.profile)
    yield f"\n## {say('What was tried')}\n"
    yield from [f"{write_table(tabulate_rounds(brief.rounds))}\n"] if brief.rounds else []
    left, op = brief.rounds_left, brief.op
    yield write(say("{left:round is|rounds are} left; the next one: `perfci try {op:sh} --why TEXT`", left=left, op=op))
    yield f"\n## {say('What may be changed')}\n"
    kinds = {
        "tuning": say("tuning, numbers such as tiles, warps and stages"),
        "logic": say("logic, another way to the same answer"),
        "interface": say("interface, other arguments or answers, by a merge request that has all of these"),
    }
    for kind, files in brief.files.items():
        yield f"- {write(say('{name}: {values}', name=kinds[kind], values=', '.join(map(code, files))))}"


def write_profile(profile: Profile) -> Iterator[str]:
    """Yields each case's bound with its evidence, counters, and what promises most."""
    yield write(plain(say("By a profile of {created} on {device}.", created=profile.time, device=profile.device.name)))
    yield from (f"\n{write(plain(sentence(note)))}" for note in [profile.note] if note)
    yield ""
    for case in profile.cases:
        if case.failure:
            yield "- " + say("{op}: {told}", op=write(code(case.case)), told=write(plain(sentence(case.failure))))
            continue
        yield f"- {write(code(case.case))}: {write(say('{us:us}, bound by', us=case.us))} **{case.bound}**"
        if counted := ", ".join(f"{name} {_write_counter(name, value)}" for name, value in case.counters.items()):
            yield f"  - {write(counted)}"
        yield from (f"  - {write(plain(sentence(reason)))}" for reason in case.evidence)
        for advice in case.advice:
            yield "  - " + say("{op}: {told}", op=write(code(advice.id)), told=write(plain(sentence(advice.reason))))


def _write_counter(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return units.size(value)
    return units.significant(value) if name.startswith("sectors") else units.percent(value)


def _tabulate_cases(cases: Iterable[BriefCase]) -> Table:
    return make_table(
        "case | time: | reference: | speedup: | target: | moved: | operations a byte: | of copy limit: | "
        "of matmul limit:",
        (
            (
                code(case.case), units.time(case.us), units.time(case.reference_us), words.write_speedup(case.speedup),
                words.write_ratio(case.target), units.size(case.bytes_moved), words.write_number(case.intensity),
                units.percent(case.rates.get("of_copy")), units.percent(case.rates.get("of_matmul")),
            )
            for case in cases
        ),
    )  # fmt: skip
