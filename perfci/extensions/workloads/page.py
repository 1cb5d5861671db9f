"""`perfci brief --model`: where a model's time goes, how far each op is from its ceiling, what reaching it brings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perfci.core import units
from perfci.core.model import Count, Limits
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.workloads.picture import draw
from perfci.extensions.workloads.records import Call, Other, Workload, read_workload
from perfci.report.markdown import write, write_table
from perfci.report.text import code, plain
from perfci.report.view import Table, make_table

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
    groups = workload.by_op()
    cases = [
        place_calls(workload, op, case, [call for call in calls if call.case == case])
        for op, calls in groups.items()
        for case in dict.fromkeys(call.case for call in calls)
        if case
    ]
    known = sorted((place for place in cases if place.intensity is not None), key=lambda place: place.intensity or 0.0)
    return ModelBrief(
        workload, tuple(place_calls(workload, op, None, calls) for op, calls in groups.items()),
        tuple(known[: -FIVE - 1 : -1]), tuple(known[:FIVE]),
        tuple(sorted(workload.others, key=lambda other: -other.us)), picture,
    )  # fmt: skip


def place_calls(workload: Workload, op: str, case: str | None, calls: Sequence[Call]) -> Place:
    """Returns where calls stand. Times at the ceiling follow the roofline (Williams et al., CACM 52(4), 2009)."""
    count, us = sum(call.count for call in calls), sum(call.us or 0.0 for call in calls)
    flops = sum(call.count * call.flops for call in calls if call.flops is not None)
    moved = sum(call.count * call.least_bytes for call in calls)
    declared = any(call.flops is not None for call in calls)
    ideals = [call.count * ideal for call in calls if (ideal := find_ideal_us(call, workload.limits))]
    timed = bool(us) and workload.clock == "device"
    reached = sum(ideals) / us if timed and len(ideals) == len(calls) else None
    share = workload.share(us) if us else None
    return Place(
        op, case or "", count // workload.steps, share, us / count if us else None,
        flops / workload.steps if declared else None, moved / workload.steps,
        flops / moved if declared and moved else None,
        _classify(calls, us / count if timed else None, workload.limits), reached,
        None if reached is None or share is None else share * max(0.0, 1 - reached),
    )  # fmt: skip


def find_ideal_us(call: Call, limits: Limits) -> float | None:
    """Returns what a call takes at the ceilings that were measured when it was recorded. None if they were not."""
    memory = call.least_bytes / limits.copy_gbps / 1e3 if limits.copy_gbps else None
    peak = limits.matmul_tflops.get(call.dtype or "")
    compute = call.flops / peak / 1e6 if call.flops and peak else 0.0
    return None if memory is None else max(memory, compute)


def _classify(calls: Sequence[Call], us: float | None, limits: Limits) -> Class:
    """What bounds the calls: the ceiling below which most of their work lies, or their launches."""
    if us is not None and us < START_US:
        return "launch"
    peaks = [limits.matmul_tflops.get(call.dtype or "") for call in calls]
    if limits.copy_gbps is None:
        return "unknown"
    memory = sum(call.count * call.least_bytes for call in calls) / limits.copy_gbps / 1e3
    compute = sum(call.count * (call.flops or 0) / peak / 1e6 for call, peak in zip(calls, peaks, strict=True) if peak)
    return "compute" if compute > memory else "memory"


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
    facts = {"steps": workload.steps, "us": workload.step_us, "created": workload.created[:10]}
    device = workload.device.name if workload.device else "-"
    if workload.clock == "host":
        yield say(
            "{steps:step|steps} on {device}, {us:us} each, recorded on {created}. Times are those of the host: how long"
            " calls kept it.", device=plain(device), **facts,
        )  # fmt: skip
    else:
        yield say("{steps:step|steps} on {device}, {us:us} each, recorded on {created}.", device=plain(device), **facts)
        yield _describe_overlap(workload)
        if workload.held is not None:
            yield sentence(workload.describe_clock())
    ours = workload.share(sum(call.us or 0.0 for call in workload.calls))
    if workload.clock == "host":
        yield say("Ops of the project take {ours:%} of the time.", ours=ours)
    else:
        yield say("Ops of the project take {ours:%} of the time, other launches {others:%}.", ours=ours,
              others=workload.share(sum(other.us for other in workload.others)))  # fmt: skip
    if workload.overhead is not None:
        yield say("Recording changed a step's time by {overhead:+%}.",
                  overhead=workload.overhead)  # fmt: skip


def _describe_overlap(workload: Workload) -> str:
    """What does not overlap: time in which the device waits, and copies and communication beside which nothing runs."""
    moved = sum(other.us for other in workload.others if other.kind in {"copy", "communication"})
    return say(
        "The device waits for the host in {idle:%} of the time, in {gaps:gap|gaps} a step, {longest:us} at the longest."
        " Several kernels at once: {overlap:%}. Copies and communication: {moved:%}.",
        idle=workload.idle, gaps=workload.gaps // workload.steps, longest=workload.longest_gap_us,
        overlap=workload.share(workload.overlap_us), moved=workload.share(moved),
    )  # fmt: skip


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
        (code(other.name[:80]), code(other.by) if other.by else "-", str(other.count // workload.steps),
         units.percent(workload.share(other.us)))
        for other in others
    )  # fmt: skip
    return make_table("kernel | launched by | launches a step: | share:", rows)
