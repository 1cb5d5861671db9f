"""`perfci brief --model`: where a model's time goes, how far each op is from its ceiling, what reaching it brings."""

import importlib.util
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perfci.core import units
from perfci.core.model import Count, Fact, Limits
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.workloads.records import Call, Other, Workload, read_workload
from perfci.report.markdown import write, write_table
from perfci.report.text import code, plain
from perfci.report.view import Table, make_table
from perfci.store.files import write_atomically

Class = Literal["memory", "compute", "launch", "unknown"]
START_US = 3.0  # a call that takes less is bound by its launches: an H200 needs 1.5 us for a kernel that does nothing
FIVE, SHOWN = 5, 12  # rows of the lists of extremes, and of the list of other launches


@dataclass(frozen=True)
class Place:
    """Where calls of an op, or with one case, stand. Shares are of the model's time."""

    op: str
    case: str  # empty for all of an op
    calls: Count  # a step
    share: float | None  # None if no one timed the calls
    us: float | None  # of one call
    flops: float | None = None  # of a step, as declared
    bytes: float = 0.0
    intensity: float | None = None  # operations a byte
    bound: Class = "unknown"
    of_ceiling: float | None = None  # what the calls would take at their ceiling / what they take
    gain: float | None = None  # by how much a step gets shorter if they reach it (Amdahl), share of the step


@dataclass(frozen=True)
class ModelBrief:
    """What `perfci brief --model` says."""

    workload: Workload
    ops: tuple[Place, ...]  # the op that takes most time first
    compute: tuple[Place, ...]  # the cases with most operations a byte
    memory: tuple[Place, ...]  # those with fewest
    others: tuple[Other, ...]  # launches by no op, those that take most time first
    picture: str | None = None  # file of the time line of a step


def brief_model(settings: Settings, name: str) -> tuple[ModelBrief, Sequence[str]]:
    """Returns what is known of a stored workload, and its page in Markdown. Raises UsageError if there is none."""
    workload = read_workload(settings.kernels, name)
    answer = place_all(workload, draw(workload, settings.reports / "workloads" / f"{name}.png"))
    return answer, list(write_page(answer))


def place_all(workload: Workload, picture: str | None = None) -> ModelBrief:
    """Returns where each op and each case of a workload stands. Pure."""
    groups = dict[tuple[str, str | None], list[Call]]()
    for call in workload.calls:
        groups.setdefault((call.op, call.case), []).append(call)
    cases = [place_calls(workload, op, case, calls) for (op, case), calls in groups.items() if case]
    placed = sorted((place for place in cases if place.intensity is not None), key=lambda place: place.intensity or 0.0)
    return ModelBrief(
        workload, tuple(place_calls(workload, op, None, calls) for op, calls in workload.by_op().items()),
        tuple(placed[: -FIVE - 1 : -1]), tuple(placed[:FIVE]),
        tuple(sorted(workload.others, key=lambda other: -other.us)), picture,
    )  # fmt: skip


def place_calls(workload: Workload, op: str, case: str | None, calls: Sequence[Call]) -> Place:
    """Returns where calls stand. Times at the ceiling follow the roofline (Williams et al., CACM 52(4), 2009)."""
    count, us = sum(call.count for call in calls), sum(call.us or 0.0 for call in calls)
    flops = [call.count * call.flops for call in calls if call.flops is not None]
    moved = sum(call.count * call.least_bytes for call in calls)
    ideals = [find_ideals(call, workload.limits) for call in calls] if workload.limits.copy_gbps else []
    share, timed = workload.share(us) if us else None, bool(us) and workload.clock == "device"
    reached = sum(map(max, ideals)) / us if timed and ideals else None
    bound: Class = "unknown"
    if timed and us / count < START_US:
        bound = "launch"
    elif ideals:
        memory, compute = map(sum, zip(*ideals, strict=True))
        bound = "compute" if compute > memory else "memory"
    return Place(
        op, case or "", count // workload.steps, share, us / count if us else None,
        sum(flops) / workload.steps if flops else None, moved / workload.steps,
        sum(flops) / moved if flops and moved else None, bound, reached,
        None if reached is None or share is None else share * max(0.0, 1 - reached),
    )  # fmt: skip


def find_ideals(call: Call, limits: Limits) -> tuple[float, float]:
    """Returns what all its calls take by the bytes and by the operations at the ceilings that were measured."""
    peak = limits.matmul_tflops.get(call.dtype or "")
    compute = (call.flops or 0) / peak / 1e6 if peak else 0.0
    return call.count * call.least_bytes / (limits.copy_gbps or math.inf) / 1e3, call.count * compute


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(brief: ModelBrief) -> Iterator[str]:
    """Yields the page, part by part."""
    workload = brief.workload
    yield f"# {write(plain(workload.name))}\n"
    yield from (f"{write(line)}\n" for line in _describe(workload))
    yield from (f"> **{write(sentence(note))}**\n" for note in workload.notes)
    yield from _write_places(say("Where the time goes"), brief.ops)
    yield from _write_places(say("Most operations a byte"), brief.compute)
    yield from _write_places(say("Fewest operations a byte"), brief.memory)
    if brief.others:
        yield f"\n## {say('Launches by no op of the project')}\n"
        yield write_table(_tabulate_others(workload, brief.others[:SHOWN]))
        if left := brief.others[SHOWN:]:
            share = workload.share(sum(other.us for other in left))
            yield "\n" + write(say("Further ones: {count}, {share:%} of the time.", count=len(left), share=share))
    if brief.picture:
        yield "\n" + write(say("Time line of a step: {path}", path=code(brief.picture)))


def _describe(workload: Workload) -> Iterator[str]:
    if not workload.total_us:
        yield say("{count:call|calls} of no known time.", count=sum(call.count for call in workload.calls))
        return
    facts: dict[str, Fact] = {"steps": workload.steps, "us": workload.step_us}
    if workload.device:
        facts |= {"device": plain(workload.device.name), "created": workload.created[:10]}
        yield say("{steps:step|steps} on {device}, {us:us} each, recorded on {created}.", **facts)
    else:
        yield say("{steps:step|steps} of {us:us} each, by {source}.", source=workload.source, **facts)
    ours = workload.share(sum(call.us or 0.0 for call in workload.calls))
    if workload.clock == "host":
        yield say(
            "Times are those of the host: how long calls kept it. Ops of the project take {ours:%} of the time.",
            ours=ours,
        )
    else:
        others, moved = (
            workload.share(sum(other.us for other in workload.others if other.kind in kinds or not kinds))
            for kinds in ((), ("copy", "communication"))
        )
        yield say("Ops of the project take {ours:%} of the time, other launches {others:%}.", ours=ours, others=others)
        yield say(
            "The device does nothing in {idle:%} of the time, in {gaps:gap|gaps} a step: {usual:us} is usual,"
            " {longest:us} the longest. Several kernels at once: {overlap:%}. Copies and communication: {moved:%}.",
            idle=workload.idle, gaps=workload.gaps // workload.steps, longest=workload.longest_gap_us,
            usual=workload.gap_us, overlap=workload.share(workload.overlap_us), moved=moved,
        )  # fmt: skip
        if workload.held is not None:
            yield sentence(workload.describe_clock())
    if workload.overhead is not None:
        yield say("Recording changed a step's time by {overhead:+%}.", overhead=workload.overhead)


def _write_places(title: str, places: Sequence[Place]) -> Iterator[str]:
    if places:
        yield f"\n## {title}\n"
        yield write_table(_tabulate_places(places))


def _tabulate_places(places: Sequence[Place]) -> Table:
    bounds = {"memory": say("memory"), "compute": say("arithmetic units"), "launch": say("launch"), "unknown": "-"}
    rows = (
        (
            code(place.op), code(place.case) if place.case else "-", str(place.calls), units.percent(place.share),
            units.time(place.us), _shorten(place.flops), units.size(place.bytes),
            "-" if place.intensity is None else units.significant(place.intensity), bounds[place.bound],
            units.percent(place.of_ceiling), units.percent(place.gain),
        )
        for place in places
    )  # fmt: skip
    return make_table(
        "op | case | calls a step: | share: | a call: | FLOP a step: | bytes a step: | FLOP a byte: | bound by | "
        "of the ceiling: | a step gets shorter by:", rows,
    )  # fmt: skip


def _shorten(flops: float | None) -> str:
    return "-" if flops is None else f"{flops:.2e}"


def _tabulate_others(workload: Workload, others: Sequence[Other]) -> Table:
    rows = (
        (code(shorten_name(other.name)), code(other.by) if other.by else "-", str(other.count // workload.steps),
         units.percent(workload.share(other.us)))
        for other in others
    )  # fmt: skip
    return make_table("kernel | launched by | launches a step: | share:", rows)


def shorten_name(name: str) -> str:
    """Returns a kernel's name without its namespaces, of which PyTorch's say less than what is behind them.

    >>> shorten_name("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous")
    'multi_tensor_apply_kernel<(anonymous'
    """
    return re.sub(r"^void |\(anonymous namespace\)::|\b\w+::", "", name)[:80]


ROWS = 9  # ops that have a row
ROW_INCHES = 0.24
THINNEST = 800.0  # parts of the picture's width that a launch takes at least


def draw(workload: Workload, path: Path) -> str | None:
    """Draw the time line into a file. Returns its path, None if nothing was recorded or no pictures can be drawn."""
    if not workload.timeline or importlib.util.find_spec("perfci.extensions.pictures") is None:
        return None
    from perfci.extensions.pictures import style

    with style.apply_style():
        write_atomically(path, style.save_png(_make_figure(workload)))
    return str(path)


def _make_figure(workload: Workload) -> Any:
    from perfci.extensions.pictures import style
    from perfci.extensions.pictures.style import caption

    ops = [op for op in workload.by_op() if any(part.name == op for part in workload.timeline)][:ROWS]
    others = any(part.name not in ops for part in workload.timeline)
    rows = [*ops, *([None] * others)]
    last = max(part.start_us + part.us for part in workload.timeline)
    scale, unit = style.choose_unit(last)
    high = ROW_INCHES * len(rows)
    figure, _ = style.make_figure(caption("{name}: a step", name=style.fit(workload.name, 60)), high + 0.5)
    whole = figure.get_figheight()
    axes = figure.add_axes((1.6 / style.WIDTH, 0.42 / whole, 1 - 1.75 / style.WIDTH, high / whole))
    for place, op in enumerate(rows):
        parts = [part for part in workload.timeline if (part.name == op if op else part.name not in ops)]
        colour = style.SERIES[place % len(style.SERIES)] if op else style.QUIET
        spans = [(part.start_us / scale, max(part.us, last / THINNEST) / scale) for part in parts]
        axes.broken_barh(spans, (place - 0.38, 0.76), color=colour, lw=0)
    names = [style.fit(op, 24) if op else caption("other launches") for op in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, last / scale)
    axes.set_xlabel(unit)
    axes.grid(axis="y", visible=False)
    return figure
