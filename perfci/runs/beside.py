"""Planned ops beside the base's: which files differ, and which cases both have."""

import ast
import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from perfci.core.files import read_regular
from perfci.core.model import PlannedBase, PlannedOp, Reason, because
from perfci.core.settings import Settings
from perfci.ops.backends import name_of
from perfci.ops.discover import OpFolder, ops, select
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.ops.spec import name_parameters
from perfci.report.text import shorten
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench
from perfci.runs.describe import Described, OpSource, describe_ops, describe_sources, find_violation
from perfci.runs.plan import Request

Prints = Mapping[str, tuple[Fingerprint, Fingerprint]]
"""Of the files of ops that both have, here and at the base."""


def describe_against(bench: Bench, request: Request, tree: BaseTree | None) -> Described:
    """Discover the ops, and import them and what differs of the base at once. Each op has what the base has of it."""
    if tree is None:
        return describe_ops(bench, request)
    chosen = select(bench.settings, request.ops)
    prints = fingerprint_both(tree, bench.settings, [op.op for op in chosen if not find_violation(op)])
    here, there = ({op.op for op in listed} for listed in (ops(bench.settings), tree.ops))
    gone = there - here if any(op.op not in there for op in chosen) else set[str]()
    gone |= there & {name_of(op.op) for op in chosen if op.op not in there}
    changed = _list_changed(tree, prints, gone)
    head, *others = describe_sources(bench, request, OpSource(bench.settings, chosen), *changed)
    return dataclasses.replace(head, ops=plan_beside(tree, head.ops, prints, others, bench.settings))


def plan_ops(bench: Bench, tree: BaseTree, request: Request, head: Sequence[PlannedOp]) -> tuple[PlannedOp, ...]:
    """Every op with what the base has of it: the same files, or the cases of the base's suites."""
    prints = fingerprint_both(tree, bench.settings, [op.op for op in head if not op.failure])
    gone = find_names(tree, bench.settings, head).values()
    described = describe_sources(bench, request, *_list_changed(tree, prints, gone))
    return plan_beside(tree, head, prints, described, bench.settings)


def _list_changed(tree: BaseTree, prints: Prints, gone: Collection[str]) -> list[OpSource]:
    """The base's ops that have to be imported, if there are any. gone: those that may have another name now."""
    python = tree.base.python
    # With another toolchain, what it makes of the same files is the question.
    changed = {op for op, (ours, theirs) in prints.items() if python or not ours.same_as(theirs)}
    wanted = [op for op in tree.ops if op.op in changed.union(gone)]
    return [OpSource(tree.settings, wanted, python)] if wanted else []


def plan_beside(
    tree: BaseTree, head: Sequence[PlannedOp], prints: Prints, described: Sequence[Described], settings: Settings
) -> tuple[PlannedOp, ...]:
    """Every op with what the base has of it. described: the base's ops that differ, as they were imported.

    settings: of the project under test.
    """
    of_base, planned = {op.op: op for base in described for op in base.ops}, []
    before = find_names(tree, settings, head)
    prints = {**prints, **fingerprint_both(tree, settings, [*before], before)} if before else prints
    for op in head:
        base = planned_base(op, prints.get(op.op), of_base.get(before.get(op.op, op.op)), tree)
        if base:
            lines = list_lines(base.changed, tree.settings.root, settings.root)
            base = dataclasses.replace(base, lines=lines, op=before.get(op.op))
        if base and base.op and name_of(base.op) == name_of(op.op):
            base = dataclasses.replace(base, lent=True, performance=(), renamed={})
        planned.append(dataclasses.replace(op, base=base))
    return tuple(planned)


def fingerprint_both(
    tree: BaseTree, settings: Settings, names: Sequence[str], before: Mapping[str, str] = MappingProxyType({})
) -> Prints:
    """The files of each of these ops that both have, here and at the base. before: names that ops have there."""
    ours, base = (Tree(project.root, project.kernels) for project in (settings, tree.settings))
    theirs, there = {op.op for op in tree.ops}, {op: before.get(op, op) for op in names}
    return {op: (ours.fingerprint(op), base.fingerprint(name)) for op, name in there.items() if name in theirs}


def find_names(tree: BaseTree, settings: Settings, head: Sequence[PlannedOp]) -> Mapping[str, str]:
    """The base's name of each op that it has under another, and of each new backend that of the op's first one."""
    there = {op.op for op in tree.ops}
    lenders = {op.op: name_of(op.op) for op in head if op.op not in there and name_of(op.op) in there}
    return {**lenders, **find_former_names(tree, settings, head)}


def find_former_names(tree: BaseTree, settings: Settings, head: Sequence[PlannedOp]) -> Mapping[str, str]:
    """The base's name of each op that it has under another: of one that is gone, if it has the same reference.

    Or if the change names it, and no other has it.
    """
    here, there = ({op.op: op for op in listed} for listed in (ops(settings), tree.ops))
    gone = {name: _read_reference(op) for name, op in there.items() if name not in here}
    former = {}
    for op in head if gone else ():
        if op.op not in there and op.op in here:
            reference = _read_reference(here[op.op])
            lost = {name: other for name, other in gone.items() if there[name].backend == here[op.op].backend}
            alike = [name for name, other in lost.items() if other and other == reference]
            said = [op.renamed_from] if op.renamed_from in (alike or lost) else alike
            former[op.op] = next(iter(said), None)
    return {op: name for op, name in former.items() if name}


def _read_reference(op: OpFolder) -> str:
    """What an op means, whatever its name: the code of its reference's file. Empty if that cannot be read."""
    try:
        code = ast.parse(read_regular(op.files[1]).decode().replace(op.name, "op"))
    except (SyntaxError, OSError, ValueError, RecursionError, MemoryError):
        return ""
    for node in ast.walk(code):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(code)


def planned_base(
    head: PlannedOp, prints: tuple[Fingerprint, Fingerprint] | None, base: PlannedOp | None, tree: BaseTree
) -> PlannedBase | None:
    """What the base has of an op. prints: of its files here and there. base: as it was imported, None for the same."""
    if head.failure:
        lost = head.unchecked and base is not None and base.failure is None
        return PlannedBase(failure=head.failure) if lost else None
    if prints is None:
        return PlannedBase(failure=Reason("base_lacks_op", {"op": head.op, "base": tree.base.name}))
    ours, theirs = prints
    if base is None or (ours.same_as(theirs) and not tree.base.python):
        return PlannedBase(same=True, performance=head.performance, cache=head.cache)
    changed, failure, apart = ours.changed_files(theirs), None, None
    if base.failure:
        return PlannedBase(changed=changed, failure=because("base_broken", base.failure, op=head.op))
    if not can_be_called_alike(base.signature, head.signature):
        before, after = ", ".join(base.signature), ", ".join(head.signature)
        failure = Reason("base_signature", {"op": head.op, "before": before, "after": after})
    elif tree.base.python:
        apart = Reason("other_interpreter", {"python": tree.base.python})
    elif late := (*ours.late_imports, *theirs.late_imports):
        apart = Reason("imports_late", {"where": late[0]})
    # In head's process such imports would find head's modules. What the base's kernel imports runs in its own.
    late_there = theirs.late_in_suites
    unjudged = Reason("judged_by_own_late", {"op": head.op, "where": late_there[0]}) if late_there else None
    renamed = match_names(head, base)
    now = {old: new for new, old in renamed.items()}
    cases = tuple(now.get(case, case) for case in base.performance)
    return PlannedBase(
        changed=changed,
        of_kernel=tuple(name for name in changed if _only_kernel(name, ours) and _only_kernel(name, theirs)),
        performance=cases,
        cache=base.cache,
        failure=failure,
        apart=apart,
        signature=base.signature,
        unjudged=unjudged,
        renamed=renamed,
    )


def _only_kernel(name: str, prints: Fingerprint) -> bool:
    return name in prints.of_kernel or name not in prints.files


def match_names(head: PlannedOp, base: PlannedOp) -> Mapping[str, str]:
    """The base's id of each performance case that the change gives another, as far as what it declares can be.

    A case that both have, by its id, is the same case.
    """
    here, there = set(head.performance), set(base.performance)
    pairs = {old: new for new, old in head.renamed.items() if new in here - there and old in there - here}
    return {new: old for old, new in pairs.items()}


def can_be_called_alike(before: Sequence[str], after: Sequence[str]) -> bool:
    """Returns whether a call of the base's kernel can be one of the change's, by their parameters.

    Calls name every argument, so how else it may be given does not matter.

    >>> can_be_called_alike(["x"], ["x: Tensor", "*", "factor=2"]), can_be_called_alike(["x"], ["x", "factor"])
    (True, False)
    """
    parameters = map(name_parameters, (before, after))
    names, now = ({name.partition("=")[0]: "=" not in name for name in signature} for signature in parameters)
    takes_all = any(name.startswith("**") for name in now)
    needed = (name for name, plain in names.items() if plain and not name.startswith("*"))
    needed_now = (name for name, plain in now.items() if plain and not name.startswith("*"))
    return all(name in names for name in needed_now) and (takes_all or all(name in now for name in needed))


MOST_LINES, LINE_WIDTH = 12, 120  # lines of an op that are kept, and characters of one
LARGE_BYTES = 1 << 18  # bytes of a file above which it is not read

_LAST = ("_accuracy.py", "_performance.py", "_baseline.py", ".md")
"""Ends of files that a kernel's time does not depend on."""


def list_lines(names: Iterable[str], before: Path, after: Path) -> tuple[str, ...]:
    """Returns the first lines that differ, as a diff has them: `+++ FILE`, then its lines with - and +.

    names: files below both roots. Those of kernels come first. What is no text, or large, is left out.
    """
    shown: list[str] = []
    for name in sorted(names, key=lambda name: name.endswith(_LAST)):
        old, new = (_read(root, root / name) for root in (before, after))
        if old is None or new is None or len(shown) + 2 > MOST_LINES:
            continue
        lines = [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if _is_told(line)]
        shown += [f"+++ {name}", *(shorten(line.rstrip(), LINE_WIDTH) for line in lines)] if lines else []
    return tuple(shown[:MOST_LINES])


def _is_told(line: str) -> bool:
    return line[:1] in {"-", "+"} and not line.startswith(("--- ", "+++ ")) and bool(line[1:].strip())


def _read(root: Path, path: Path) -> Sequence[str] | None:
    """The lines of a file, none of one that is missing or lies behind a link. None if it cannot be shown."""
    try:
        is_plain = path.is_file() and path.resolve() == root.resolve() / path.relative_to(root)
        data = read_regular(path) if is_plain else b""
        return data.decode().splitlines() if len(data) <= LARGE_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None
