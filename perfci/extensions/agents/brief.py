"""What is known of an op, on a page: its words and suites, its times, its last profile, and the rounds so far."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from perfci import store
from perfci.core import units
from perfci.core.errors import PerfciError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Baseline, BaselineCase, Comparison, Interval, Limits, PerformanceCase, PlannedOp, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.agents.logbook import Round, read_logbook
from perfci.extensions.agents.profile_records import Profile
from perfci.extensions.agents.profiles import read_profile
from perfci.extensions.agents.round_tables import tabulate_rounds
from perfci.extensions.agents.rounds import may_change
from perfci.judge.compare import find_speedup
from perfci.ops.discover import OpFolder, select_one
from perfci.ops.fingerprint.tree import Tree
from perfci.ops.spec import matches, name_parameters
from perfci.report import words
from perfci.report.markdown import write, write_table
from perfci.report.speed import find_rates
from perfci.report.text import block, code, plain
from perfci.report.view import Table, make_table
from perfci.runs import experiment
from perfci.runs.bench import Listener
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import in_force
from perfci.runs.plan import Request
from perfci.thresholds.read import load
from perfci.worker.protocol import Message, Prepared


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


_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_DTYPE = re.compile(r"bool|(?:b?float|u?int|complex)\d+(?:_\w+)?")


def brief(settings: Settings, op: str, device: str, listener: Listener, pattern: str | None = None) -> Brief:
    """Returns what is known of an op and of its cases that fit. Its suites are imported for it.

    Raises PerfciError if they cannot be, UsageError if no case fits.
    """
    folder = select_one(settings, op)
    declared: dict[str, PerformanceCase] = {}

    def hear(message: Message) -> None:
        if isinstance(message, Prepared):
            declared[message.case.case] = message.case
        listener(message)

    [planned] = experiment.describe(settings, Request((folder.op,), device=device), hear).ops
    if planned.failure:
        raise PerfciError(planned.failure.kind, **planned.failure.facts)
    page = folder.folder / f"{folder.op}.md"
    words = None
    with contextlib.suppress(OSError):
        words = read_regular(page).decode(errors="replace")
    fitting = [case for case in planned.performance if matches(case, pattern)]
    if pattern is not None and not fitting:
        raise UsageError("no_case_fits", ops=folder.op, pattern=pattern)
    timed = (declared.get(case) or PerformanceCase(case) for case in fitting)
    source, cases = _place_cases(settings, folder.op, timed)
    logbook = read_logbook(folder.folder)
    judged = len(logbook.list_of(logbook.rounds[-1].start)) if logbook.rounds else 0
    wordless = Reason("brief_wordless", {"op": folder.op, "file": page.name})
    wrong = [wordless] if words is None else check_words(words, planned)
    return Brief(
        op=folder.op, words=words or "", warnings=(*wrong, *logbook.problems),
        call=_write_call(planned), checks=len(planned.accuracy), source=source, cases=cases,
        profile=read_profile(settings, folder.op), rounds=logbook.rounds,
        rounds_left=max(settings.rounds - judged, 0), files=_list_files(settings, folder),
    )  # fmt: skip


def _list_files(settings: Settings, op: OpFolder) -> dict[str, tuple[str, ...]]:
    """Returns the files that each kind of change may touch: the kernel's, with what ops share, and tuned ones."""
    needed = Tree(settings.root, settings.kernels).list_code(op.op, op.files[0])
    code = [settings.root / name for name in needed if may_change(settings, op, settings.root / name)]
    tuning = [*code, *sorted((op.folder / "tuned").glob("*.json"))]
    files = {"tuning": tuning, "logic": code, "interface": [*op.files, op.folder / f"{op.op}.md"]}
    return {kind: tuple(path.relative_to(settings.root).as_posix() for path in paths) for kind, paths in files.items()}


def check_words(words: str, op: PlannedOp) -> Iterator[Reason]:
    """Yields what an op's page has in backticks and its suites do not have: its call, dtypes, and shapes of cases.

    A shape is what --case takes, with a name that cases have: `rows=4096,cols=1024`.
    """
    cases = (*op.performance, *op.accuracy)
    parts = [part.partition("=") for case in cases for part in case.split(",")]
    names, values = {name for name, _, _ in parts}, {value for _, _, value in parts}
    for span in dict.fromkeys(" ".join(span_text.split()) for span_text in _SPAN.findall(words)):
        if span.startswith(f"{op.op}(") and span.endswith(")"):
            real = span == _write_call(op)
        elif _DTYPE.fullmatch(span):
            real = span in values
        elif " " not in span and names.intersection(re.findall(r"(\w+)=", span)):
            real = any(matches(case, span) for case in cases)
        else:
            real = True
        if not real:
            yield Reason("brief_unknown", {"file": f"{op.op}.md", "text": span, "call": _write_call(op)})


def _write_call(op: PlannedOp) -> str:
    # Of defaults no one knows any more which lists were tuples, as most are.
    return f"{op.op}({', '.join(name_parameters(op.signature))})".translate(str.maketrans("[]", "()"))


def _place_cases(
    settings: Settings, op: str, declared: Iterable[PerformanceCase]
) -> tuple[Reason, tuple[BriefCase, ...]]:
    """Returns where times are from, and the cases with their times, targets, and places below the ceilings."""
    path = settings.reports / store.RUN_FILE
    run = store.read_run(path) if path.exists() else None
    rows = decide(run, settings).rows if run else ()
    times = {row.case: row.comparison for row in rows if row.op == op and row.comparison and row.comparison.kernel_us}
    source = Reason("brief_untimed", {"op": op})
    if run and times:
        source = Reason("brief_run", {"run": run.id, "created": run.created, "device": run.environment.device.name})
    elif stored := _read_newest_baseline(settings, op):
        run, times = None, {case.case: _describe_stored(op, case) for case in stored.cases if case.blocks}
        source = Reason("brief_baseline", {"op": op, "device": stored.device, "created": stored.runs[-1].created[:10]})
    rules = in_force(settings, run.environment, run.created).limits if run else load(settings.thresholds)
    cases = []
    for case in declared:
        comparison = times.get(case.case) or Comparison(op, case.case)
        us, limits = comparison.kernel_us, run.limits if run else Limits()
        cases.append(BriefCase(
            case.case, us, comparison.reference_us, comparison.speedup, rules.for_case(op, case.case).speedup,
            case.bytes_moved, case.flops,
            intensity=case.flops / case.bytes_moved if case.flops is not None and case.bytes_moved else None,
            rates=find_rates(case, us, limits) if us else {},
        ))  # fmt: skip
    return source, tuple(cases)


def _read_newest_baseline(settings: Settings, op: str) -> Baseline | None:
    """The newest accepted baseline of an op, on any device."""
    stored = [store.read_baseline(path) for path in settings.baselines.glob(f"*/{op}.json")]
    return max((tensor for tensor in stored if tensor.runs), key=lambda tensor: tensor.runs[-1].created, default=None)


def _describe_stored(op: str, case: BaselineCase) -> Comparison:
    kernel, reference = zip(*((block.kernel_us, block.reference_us) for block in case.blocks), strict=True)
    speedup = find_speedup([block.shift for block in case.blocks])
    return Comparison(op, case.case, kernel_us=median(kernel), reference_us=median(reference), speedup=speedup)
