"""The commands for making an op faster, by hand or by an agent: `perfci brief`, `try`, `profile` and `mcp`."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import get_command, print_json, print_lines, relative
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError, require
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.agents import brief as briefs
from perfci.extensions.agents.brief import write_markdown, write_profile
from perfci.extensions.agents.logbook import RoundVerdict, read_logbook
from perfci.extensions.agents.profiles import find_path, profile_op
from perfci.extensions.agents.round_tables import tabulate_cases, write_record, write_round
from perfci.extensions.agents.rounds import try_round
from perfci.ops.discover import select
from perfci.ops.spec import matches
from perfci.report.data import pick
from perfci.report.markdown import write_table
from perfci.report.text import plain
from perfci.runs.plan import Request

_CODES = {"kept": Exit.OK, "equal": Exit.WARNINGS, "slower": Exit.WARNINGS, "mixed": Exit.WARNINGS}


@options.takes("ops case device", {"rounds": "ops", "model": ""})
def brief(
    ops: options.Op = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    rounds: Annotated[
        bool, flag("--rounds", "What `perfci try` tried, round by round, with a record of it: of all ops without OP.")
    ] = False,
    model: Annotated[
        str | None, option("--model", "Where the time of a recorded workload goes, op by op.", "none", "NAME")
    ] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Say what an op is, where it stands, what holds it back, what was tried, and what may be changed, as Markdown."""
    where = language.load(project)
    if rounds:
        return _show_rounds(where, ops, output)
    if model is not None:
        answer, lines = require("model_brief", "workloads", "--model")(where, model)
        _print(answer, lines, output)
        return Exit.OK
    with Progress() as progress:
        text = briefs.brief(where, options.take_one(ops), device, progress, case)
    _print(text, write_markdown(text), output)
    return Exit.OK


def try_op(
    why: Annotated[
        str, option("--why", "The reason, stored with it: what was changed, and why it should be faster.", "", "TEXT")
    ],
    ops: options.Op = [],  # noqa: B006
    case: options.Case = None,
    expect: Annotated[str | None, option("--expect", "The gain hoped for, such as +20%.", "none", "GAIN")] = None,
    advice: Annotated[
        str | None, option("--advice", "The advice of the last profile that it follows.", "none", "KIND")
    ] = None,
    against: Annotated[
        str | None, options.compare_with("REV", "that of the last round", "the revision where a new series begins")
    ] = None,
    device: options.DeviceOption = "auto",
    seed: options.Seed = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Judge a change of an op's kernel against the best round so far, and store the round in the op's logbook."""
    where, request = language.load(project), Request((options.take_one(ops),), device=device, seed=seed)
    gain = re.fullmatch(r"\+?(\d{1,4}(?:\.\d+)?)\s*%", expect.strip()) if expect else None
    if expect and not gain:
        raise UsageError("round_gain", text=expect)
    expected = float(gain[1]) / 100 if gain else None
    with Progress() as progress:
        round_ = try_round(
            where, request, why, progress, get_command(), expected=expected, start=against, advice=advice
        )
    fitting = tuple(one for one in round_.cases if matches(one.case, case))  # shown: all were judged
    lines = [
        *write_round(round_),
        *(["", write_table(tabulate_cases(replace(round_, cases=fitting)))] if fitting else []),
    ]
    if round_.cases and not fitting:
        lines += ["", sentence(Reason("no_case_fits", {"ops": round_.op, "pattern": case}))]
    if round_.verdict is not RoundVerdict.KEPT and round_.commit:
        back = shlex.join(["git", "restore", "--source", str(round_.against)[:10], "--", *round_.files])
        lines += ["", say("Back to the best so far:"), f"    {plain(back)}"]
    _print(replace(round_, cases=fitting), lines, output)
    return _CODES.get(round_.verdict, Exit.GATE_FAILED)


def profile(
    ops: options.Op = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    seed: options.Seed = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Say what holds each case of an op up, by hardware counters if they can be read, and what promises most."""
    where = language.load(project)
    with Progress() as progress:
        profile = profile_op(where, Request((options.take_one(ops),), case, device, seed=seed), progress)
    path = say("Profile: {path}", path=relative(find_path(where, profile.op)))
    _print(profile, [*write_profile(profile), "", path], output)
    return Exit.OK


def mcp(
    device: options.DeviceOption = "auto",
    device_time: Annotated[
        float, option("--device-time", "Seconds that rounds and profiles may take in all.", metavar="S", min=0)
    ] = 3600.0,
    project: options.Project = options.HERE,
) -> int:
    """Serve brief, try, profile, static, compare and history to an agent, by MCP over standard input and output."""
    from perfci.extensions.agents.server import serve

    with Progress() as progress:
        serve(language.load(project), device, device_time, progress)
    return Exit.OK


COMMANDS = {"brief": brief, "try": try_op, "profile": profile, "mcp": mcp}


def _print(answer: Any, lines: Iterable[str], output: str) -> None:
    """Print an answer as JSON, or as Markdown."""
    if output == "json":
        print_json(answer)
    else:
        print_lines(*lines)


def _show_rounds(where: Settings, names: Sequence[str], output: str) -> int:
    """Print the records of ops' logbooks."""
    chosen = {op.op: read_logbook(op.folder) for op in select(where, names)}
    rounds = {op: logbook for op, logbook in chosen.items() if logbook.rounds or logbook.problems}
    lines = [] if rounds else [say("No round was tried yet: `perfci try OP --why TEXT` begins one.")]
    for op, logbook in rounds.items():
        lines += [f"> **{plain(sentence(problem))}**" for problem in logbook.problems]
        if logbook.rounds:
            lines.append(write_record(op, logbook.rounds))
    logs = [{"op": op, **pick(logbook, "rounds problems")} for op, logbook in rounds.items()]
    _print({"ops": logs}, lines, output)
    return Exit.WARNINGS if any(logbook.problems for logbook in rounds.values()) else Exit.OK
