"""The output of `perfci ranks`: what is right on which rank, what is slower where, and what crosses the links."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import Grid, Paragraph, print_found
from perfci.cli.parsing import CHOSEN, MEASURED, flag, option
from perfci.cli.progress import Progress
from perfci.core import deadline
from perfci.core.errors import UsageError
from perfci.core.model import DuelWhat, Gate, Reason
from perfci.core.settings import are_devices
from perfci.core.wording import say
from perfci.extensions.common.kept import keep_answer
from perfci.extensions.ranks import baselines
from perfci.extensions.ranks.flow import FOLDER, OpRanks, RanksResult, check_ranks
from perfci.extensions.ranks.records import KERNEL
from perfci.extensions.ranks.verdicts import CheckedCase, TimedCase, find_speedup
from perfci.report.data import pick
from perfci.report.view import make_table
from perfci.runs.plan import Request

_COLOURS = {Gate.OK: "green", Gate.WARNS: "yellow", Gate.FAILS: "bold red"}


def ranks(
    ops: options.Ops = [],  # noqa: B006 - typer reads the default, no one changes it
    size: Annotated[list[int], option("--size", "Ranks of a group.", "as each op says", "N", min=2, group=CHOSEN)] = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    against: options.Against = None,
    duel: options.Duel = "changed",
    devices: options.Devices = None,
    seed: options.Seed = None,
    accuracy: Annotated[bool, flag("--accuracy", "Time nothing.", group=MEASURED)] = False,
    accept: Annotated[
        bool, flag("--accept", "Store these times as the baseline of groups of this size.", group=options.OTHERWISE)
    ] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Check ops over several boards, rank by rank and as a whole: a process a rank, in one group."""
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    where = language.load(project)
    request = Request(tuple(ops), case, device, seed=seed, against=against, duel=DuelWhat(duel), devices=devices,
                      deadline=deadline.find(None, os.environ, time.time()).deadline)  # fmt: skip
    with Progress() as progress:
        result = check_ranks(where, request, progress, size, times=not accuracy)
    code = get_exit_code(result)
    if accept:
        for op in result.ops:
            if op.timed or op.failure:
                print(baselines.accept(where, result.device, op.op, op.ranks, op.timed), file=sys.stderr)
    gate = {Exit.OK: Gate.OK, Exit.GATE_FAILED: Gate.FAILS, Exit.WARNINGS: Gate.WARNS}[code]
    answer = to_json(result)
    said = [reason for op in result.ops for reason in list_reasons(op)]
    right = sum(verdict.gate is Gate.OK for op in result.ops for verdict in op.verdicts)
    said = said or [Reason("ranks_right", {"count": right})]
    keep_answer(where, FOLDER, gate, (op.op for op in result.ops), said, answer)
    print_found(answer, show(result), json=output == "json")
    return code


COMMANDS = {"ranks": ranks}


def list_reasons(op: OpRanks) -> list[Reason]:
    """Why an op fails or warns."""
    bad = (reason for case in op.cases if case.verdict.gate is not Gate.OK for reason in case.reasons)
    return [*filter(None, (op.failure, op.undone)), *bad]


def get_exit_code(result: RanksResult) -> Exit:
    """2 if something is wrong, slower or broken, 3 if something is undecided or nothing was checked, else 0."""
    gates = [verdict.gate for op in result.ops for verdict in op.verdicts]
    if Gate.FAILS in gates or any(op.failure for op in result.ops):
        return Exit.GATE_FAILED
    undone = not gates or any(op.undone for op in result.ops)
    return Exit.WARNINGS if undone or Gate.WARNS in gates else Exit.OK


def show(result: RanksResult) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    base = result.base or say("no base")
    yield say("Ranks on {device}, against {base}, seed {seed}", device=result.device.name, base=base, seed=result.seed)
    for op in result.ops:
        yield ""
        yield from _show_op(op)


def _show_op(op: OpRanks) -> Iterator[RenderableType]:
    title = say("{op} on {ranks} ranks", op=op.op, ranks=op.ranks)
    yield Paragraph(f"{title} ({op.ready.backend})" if op.ready else title, style="bold")
    if op.skipped:
        yield Paragraph(op.skipped, 2, "dim")
        return
    for reason, colour in ((op.failure, "bold red"), (op.undone, "yellow")):
        if reason:
            yield Paragraph(reason, 2, colour)
    if op.checked:
        headings = "case | verdict | l2 of all: | reference: | by rank:"
        yield Grid(make_table(headings, (_list_errors(case) for case in op.checked)), indent=2)
    if op.timed:
        headings = "case | verdict | us: | by rank: | speedup: | hidden: | of the limit: | sent:"
        yield Grid(make_table(headings, (_list_times(case) for case in op.timed)), indent=2)
    if any(case.volumes for case in op.timed):
        headings = "a rank sends for a layer | tensor parallel: | sequence parallel: | pipeline parallel:"
        yield Grid(make_table(headings, (_list_volumes(case, op) for case in op.timed if case.volumes)), indent=2)
    for case in op.cases:
        style = "" if case.verdict.gate is Gate.OK else _COLOURS[case.verdict.gate]
        yield from (Paragraph(reason, 2, style) for reason in case.reasons)
    yield from _show_notes(op)


def _show_notes(op: OpRanks) -> Iterator[RenderableType]:
    if clocks := op.clocks:
        offsets = ", ".join(f"{offset:.3f} ± {spread:.3f}" for offset, spread in
                            zip(clocks.offset_us, clocks.spread_us, strict=True))  # fmt: skip
        yield Paragraph(say("clocks of the ranks, us ahead of the first: {offsets}", offsets=offsets), 2, "dim")
    skews = [case.skew_us for case in op.timed if case.skew_us is not None]
    if skews:
        yield Paragraph(say("ranks begin a launch within {skew:us} of each other", skew=max(skews)), 2, "dim")
    if op.links and op.links.link_gbs:
        text = say("links copy {rate} GB/s each way while all ranks send", rate=round(op.links.link_gbs))
        yield Paragraph(text, 2, "dim")
    if op.timed and any(case.times_us for case in op.timed):
        yield Paragraph(say("times are what each rank's process says: calls between ranks are not replayed"), 2, "dim")


def _list_volumes(case: TimedCase, op: OpRanks) -> tuple[str, ...]:
    """Megabytes, and the time that measured links take for them."""
    rate = op.links.link_gbs if op.links else None
    sent = (f"{volume.bytes / 1e6:.1f} MB" for volume in case.volumes)
    times = (f", {volume.bytes / rate / 1e3:.0f} us" if rate else "" for volume in case.volumes)
    return (case.case, *map("".join, zip(sent, times, strict=True)))


def _list_errors(case: CheckedCase) -> tuple[str, ...]:
    by_rank = " ".join(_write(error) for error in case.l2)
    return (case.case, str(case.verdict), _write(case.whole), _write(case.usual), by_rank or "-")


def _write(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}" if error else "0"


def _list_times(case: TimedCase) -> tuple[str, ...]:
    times, roofline, speedup = case.times_us or {}, case.roofline, find_speedup(case)
    limits = {"compute": say("computation"), "memory": say("memory"), "links": say("links")}
    counted = f" / {case.counted_bytes / 1e6:.1f}" if case.counted_bytes else ""
    return (
        case.case,
        str(case.verdict),
        f"{times[KERNEL]:.1f}" if KERNEL in times else "-",
        " ".join(f"{us:.1f}" for us in case.ranks_us) or "-",
        f"{speedup:.3f}" if speedup else "-",
        f"{case.hidden:.0%}" if case.hidden is not None else "-",
        f"{roofline.share:.0%} {limits[roofline.limit]}" if roofline else "-",
        f"{case.sent_bytes / 1e6:.1f}{counted} MB" if case.sent_bytes is not None else "-",
    )


def to_json(result: RanksResult) -> Mapping[str, Any]:
    """The same for programs."""

    def write_op(op: OpRanks) -> Mapping[str, Any]:
        checked = [pick(case, "case verdict reasons l2 whole usual") for case in op.checked]
        names = "case verdict reasons times_us ranks_us skew_us hidden roofline volumes sent_bytes counted_bytes"
        timed = [
            pick(case, names, speedup=find_speedup(case), series=[pick(one, "rank ruling base_us kernel_us look")
                                                                 for one in case.series])
            for case in op.timed
        ]  # fmt: skip
        more = "op ranks ready clocks links boards failure skipped undone"
        return pick(op, more, checked=checked, timed=timed)

    return pick(result, "device seed base note", ops=[write_op(op) for op in result.ops])
