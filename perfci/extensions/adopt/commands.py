"""`perfci new`: an op's files, empty or around functions that exist."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_json, print_lines, print_parts, relative
from perfci.cli.parsing import argument, flag, option
from perfci.core import commands
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Gate, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.adopt.files import draft_from_function, draft_from_library, name_op
from perfci.extensions.adopt.place import Draft, call_file, place_op, write_draft
from perfci.extensions.adopt.sketch import TEMPLATES
from perfci.ops import discover
from perfci.scaffold.new import fill_templates


@options.takes(
    "ops", {"source": "ops reference tests copy backward", "library": "reference tests copy backward", "fake": "ops"}
)
def new_op(
    ops: Annotated[
        list[str], argument("OP", "Name of the op, perhaps in folders: flash, attention/flash.", "FUNCTION's name")
    ] = [],  # noqa: B006
    source: Annotated[
        str | None,
        option(
            "--from",
            "A function that launches Triton kernels: FILE:FUNCTION, FILE or PACKAGE.MODULE:FUNCTION.",
            "a kernel to fill in",
            "FUNCTION",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        option(
            "--reference",
            "What --from is compared with: torch.nn.functional.softmax, FILE:FUNCTION, or a FILE of functions.",
            "torch's operator of the function's name",
            "PATH",
        ),
    ] = None,
    library: Annotated[
        Path | None,
        option("--from-library", "An op for each file of a folder with a function of its name.", "none", "DIR"),
    ] = None,
    tests: Annotated[
        list[Path],
        option(
            "--tests",
            "Tests, or a recorded workload, whose sizes become cases; repeat.",
            "those beside the file",
            "PATH",
        ),
    ] = [],  # noqa: B006
    copy: Annotated[bool, flag("--copy", "Check a copy of the file, for one that Python cannot import.")] = False,
    backward: Annotated[bool, flag("--backward", "The function's backward pass: an op that gives gradients.")] = False,
    fake: Annotated[bool, flag("--fake", "An op for the fake device, to try perfci out without torch.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Write a new op's four files and its page: ready to run, or around your function and its tests."""
    where = language.load(project)
    folders = {op.op: op.folder for op in discover.ops(where)} if where.kernels.is_dir() else {}
    if library is not None:
        more = {"reference": reference, "copy": copy, "backward": backward}
        return _add_library(library, where, folders, tests, more, json=output == "json")
    if source is not None:
        ops = ops or [name_op(source) + "_backward" * backward]
    place = place_op(options.take_one(ops), where.kernels, folders, anew=source is not None)
    if source is not None:
        call = call_file(place) if call_file(place).is_file() else None
        draft = draft_from_function(place.op, source, reference, where, tests, copy=copy, backward=backward, call=call)
    else:
        draft = Draft(fill_templates(place.op, TEMPLATES / ("fake_op" if fake else "op")))
    written = write_draft(place, draft)
    # A file that was copied may break the contract.
    folder = discover.OpFolder(place.op, place.folder)
    look = (*draft.look, *discover.check_contract(folder))
    code = Exit.OK if draft.is_ready else Exit.WARNINGS
    if output == "json":
        files, copied = [str(path) for path in written], {copy.original: copy.name for copy in draft.copies}
        told = {"op": place.op, "ready": draft.is_ready, "files": files, "copied": copied}
        print_json([{**told, "carried": draft.carried, "look": look}])
        return code
    for one in draft.copies:
        path = relative(place.folder / one.name)
        print_lines(
            say(
                "{path} is a copy of {original}, as --copy asks: checks judge the copy.",
                path=path,
                original=one.original,
            )
        )
    print_lines(_name_state(place.op, draft), *(f"  {relative(path)}" for path in written))
    for title, reasons in (
        (say("Carried over:"), draft.carried),
        (say("To look at:"), look),
    ):
        if reasons:
            print_lines("", title, *(f"  - {sentence(reason)}" for reason in reasons))
    check = commands.write("check", place.op, *["--device", "fake"] * fake)
    if call_file(place).is_file():
        again = ["--from", str(source), *(["--reference", reference] if reference else [])]
        again += [*itertools.chain(*(["--tests", str(test)] for test in tests)), *["--copy"] * copy]
        command = commands.write("new", ops[0], *again, *["--backward"] * backward)
        file = relative(call_file(place))
        print_lines("", say("Next: correct the call in {file}, then `{command}`", file=file, command=command))
        print_lines(say("If the call is right: `{command}`", command=check))
    else:
        print_lines("", say("Next: `{command}`", command=check))
    return code


def _name_state(op: str, draft: Draft) -> str:
    if any(reason.kind == "look_fails" for reason in draft.look):
        return say("{op} is written, and its check fails:", op=op)
    return say("{op} is ready:", op=op) if draft.is_ready else say("{op} is written, and not ready:", op=op)


def _add_library(
    folder: Path, where: Settings, folders: Mapping[str, Path], tests: Sequence[Path], more: Mapping[str, Any], *,
    json: bool,
) -> int:  # fmt: skip
    """Write an op for each file of a library, and show what is left to do in one table."""
    if not folder.is_dir():
        raise UsageError("from_missing", found=str(folder))
    made, told = dict(folders), list[Mapping[str, Any]]()
    causes = dict[str, tuple[str, list[str]]]()  # kind of a reason -> its sentence for the first op, and all ops
    ready = list[str]()

    def add(op: str, problem: Draft | Reason) -> None:
        try:
            if isinstance(problem, Reason):
                raise UsageError(problem.kind, **problem.facts)
            place = place_op(op, where.kernels, made)
            files = [str(path) for path in write_draft(place, problem)]
            told.append({"op": op, "ready": problem.is_ready, "files": files, "look": problem.look})
            made[op] = place.folder
            reasons = problem.look
            ready.extend([] if reasons else [op])
        except PerfciError as error:
            told.append({"op": op, "files": [], "failure": error.reason})
            reasons = (error.reason,)
        for reason in reasons:
            causes.setdefault(reason.kind, (sentence(reason), []))[1].append(op)

    draft_from_library(folder, where, add, tests, **more)
    count = len(made) - len(folders)
    sure = sum(bool(one.get("ready")) for one in told)
    code = Exit.PERFCI_FAILED if not count else Exit.OK if sure == count else Exit.WARNINGS
    if json:
        print_json(told)
        return code
    print_lines(say("Ops written: {made} of {files}. Ready: {ready}.", made=count, files=len(told), ready=sure), "")
    if ready:
        print_parts([Paragraph(say("Nothing is left to do for {ops}.", ops=", ".join(ready)), 2)])
    for text, ops in sorted(causes.values(), key=lambda cause: -len(cause[1])):
        print_parts([Paragraph(text, 2, STYLES[Gate.WARNS])])
        if ops[1:]:
            print_parts(
                [Paragraph(say("The same holds for {count}: {ops}", count=len(ops) - 1, ops=", ".join(ops[1:])), 6)]
            )
    if count:
        print_lines("", say("Next: `{command}`", command=commands.write("check")))
    return code


COMMANDS = {"new": new_op}
