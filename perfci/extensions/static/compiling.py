"""Kernels compiled without a device: a worker an op, target and revision. What was compiled before is cached."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path
from types import MappingProxyType

from perfci.core import PACKAGE, VERSION, environment
from perfci.core.codec import decode, encode
from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import PlannedBase, PlannedOp, Reason, Static, StaticOp
from perfci.core.settings import Settings
from perfci.extensions.common.targets import target_named
from perfci.extensions.static.tasks import Compile
from perfci.ops.backends import BACKENDS, Interpreter, explain_missing
from perfci.ops.discover import NPU, OpFolder, find_moved, select
from perfci.ops.fingerprint.reach import list_reached
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.ops.spec import matches
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, WorkerPlace, list_files, make_environment, warm_up
from perfci.runs.beside import find_former_names
from perfci.runs.describe import explain_interpreter, find_violation
from perfci.runs.needed import place_needed
from perfci.runs.plan import Request
from perfci.store.files import write_atomically
from perfci.worker.process import Running, side_by_side, working
from perfci.worker.protocol import Message

_FLEETING = frozenset({"captured_raised", "captured_no_tool"})
FORMAT = 3  # Of cached files. They are made anew if it differs.

MOST_WORKERS = 4


@dataclass(frozen=True, eq=False)  # keys of a table, each another one
class _Wanted:
    """One op of one revision for one target."""

    op: OpFolder
    print: Fingerprint
    target: str
    settings: Settings
    of_base: bool
    toolchain: str
    python: str | None = None  # another interpreter than that of its backend, which compiles it
    other: Interpreter | None = None  # that of its backend, if it has one


def compile_ops(
    bench: Bench, request: Request, tree: BaseTree | None, *, skips: bool = False
) -> tuple[Static, tuple[PlannedOp, ...]]:
    """Compiles every op, and the base's if its files differ, for every target. Raises UsageError for an unknown one.

    skips: ops with the base's files are left out.
    """
    targets = request.targets or bench.settings.targets
    for target in targets:
        target_named(target)
    chosen = select(bench.settings, request.ops)
    head = tuple(op for op in chosen if is_compiled(op, targets))
    ours = _fingerprint(head, bench.settings)
    former = find_former_names(tree, bench.settings, [PlannedOp(op.op) for op in head]) if tree else {}
    now = {name: op for op, name in former.items()}
    base = [op for op in tree.ops if op.op in {*ours, *now} and is_compiled(op, targets)] if tree else []
    theirs = _fingerprint(base, tree.settings) if tree else {}
    python = tree.base.python if tree else None
    # With another toolchain, what it makes of the same files is the question.
    same = {op for op in ours if op in theirs and ours[op].same_as(theirs[op]) and not python}
    broken, others = dict[str, Reason](), dict[str, Interpreter]()
    for op in chosen:
        interpreter = bench.find_interpreter(op.backend, "offline")
        others |= {op.backend: interpreter} if isinstance(interpreter, Interpreter) else {}
        broken |= {op.op: explain_interpreter(bench, op, interpreter)} if isinstance(interpreter, str) else {}
    if any(target_named(target).backend == "npu" for target in targets):
        interpreter = bench.find_interpreter(NPU, "offline")
        others |= {NPU: interpreter} if isinstance(interpreter, Interpreter) else {}
        broken |= (
            {op.op: explain_interpreter(bench, op, interpreter) for op in head} if isinstance(interpreter, str) else {}
        )
    left = same if skips or request.changed else set()
    head = tuple(op for op in head if op.op not in left.union(broken))
    tools = describe_toolchain(chosen, others=others)
    if request.changed and not python:
        head = tuple(op for op in head if op.op not in theirs or _is_touched(op, ours[op.op], theirs[op.op], bench))
        base = [op for op in base if now.get(op.op, op.op) in {one.op for one in head}]
    wanted = [
        _Wanted(op, ours[op.op], target, bench.settings, False, tools, None, others.get(_name_place(op, target)))
        for target in targets for op in head if is_compiled(op, (target,))
    ]  # fmt: skip
    before = describe_toolchain(chosen, tree.base.packages) if tree and python else tools
    if tree:
        changed = [op for op in base if op.op not in same and now.get(op.op, op.op) not in broken]
        there = {} if python else others
        wanted += [
            _Wanted(op, theirs[op.op], target, tree.settings, True, before, python, there.get(_name_place(op, target)))
            for target in targets for op in changed if is_compiled(op, (target,))
        ]  # fmt: skip
    compiled_ops, files = dict[_Wanted, StaticOp](), {one: _find_file(bench, one) for one in wanted}
    for one, path in files.items():
        with contextlib.suppress(OSError, ValueError):  # not there, or of another shape: it is made anew
            compiled_ops |= {one: decode(read_regular(path), StaticOp)} if path else {}
    for one, compiled in _compile(bench, [one for one in wanted if one not in compiled_ops]).items():
        compiled_ops[one], path = compiled, files[one]
        if path and _is_lasting(one, compiled):
            with contextlib.suppress(OSError, StoredFileError):  # a cache that cannot be written only costs time
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, encode(compiled))
    missing = {one: _explain_missing(one, compiled_ops[one]) for one in wanted}
    ours_compiled, theirs_compiled = (
        tuple(
            dataclasses.replace(
                op,
                op=now.get(op.op, op.op),
                cases=tuple(case for case in op.cases if matches(case.case, request.pattern)),
            )
            for op in (compiled_ops[one] for one in wanted if one.of_base is of_base and not missing[one])
        )
        for of_base in (False, True)
    )
    lacking = {one.op.op: why for one, why in missing.items() if not one.of_base}
    have = {op.op for op in theirs_compiled} | same
    cases = {op.op: tuple(case.case for case in op.cases) for op in ours_compiled}
    planned = []
    for op in head:
        base_op = PlannedBase(same=op.op in same, op=former.get(op.op)) if tree else None
        if tree and op.op not in have:
            base_op = PlannedBase(failure=Reason("base_lacks_op", {"op": op.op, "base": tree.base.name}))
        if why := lacking.get(op.op):
            base_op = base_op if op.op in have - same else None  # where it compiles, the change asks for a package
        moved = find_moved(op, bench.settings.root)
        planned.append(PlannedOp(op.op, performance=cases.get(op.op, ()), base=base_op, failure=why, outdated=moved))
    planned += [PlannedOp(op, failure=why) for op, why in broken.items()]
    uncompiled = [op for op in chosen if op.op not in broken and not is_compiled(op, targets)]
    for op in _leave_changed(uncompiled, bench.settings, tree) if request.changed and tree else uncompiled:
        why = Reason("backend_not_static", {"op": op.op, "backend": BACKENDS[op.backend].title})
        planned.append(PlannedOp(op.op, failure=why))
    return Static(tuple(targets), tools, ours_compiled, theirs_compiled, before if python else ""), tuple(planned)


def _leave_changed(folders: Sequence[OpFolder], settings: Settings, tree: BaseTree) -> list[OpFolder]:
    """The ops with files that differ from the base's."""
    theirs = _fingerprint([op for op in tree.ops if op.op in {one.op for one in folders}], tree.settings)
    ours = _fingerprint(folders, settings)
    return [op for op in folders if op.op not in theirs or not ours[op.op].same_as(theirs[op.op])]


def _explain_missing(one: _Wanted, compiled: StaticOp) -> Reason | None:
    """Returns why an op's backend cannot compile here: it lacks a package. None if it may."""
    from perfci.extensions.offline.backends import find_compiler

    op, compiler, whys = one.op, find_compiler(one.op.backend), [case.identity.unknown for case in compiled.cases]
    for program, package in compiler.PROGRAMS.items() if compiler and whys else ():
        if all(why and why.kind == "captured_raised" and program in str(why.facts.get("message")) for why in whys):
            facts = {"op": op.op, "backend": BACKENDS[op.backend].title, "module": program, "package": package}
            if one.other:
                return Reason("backend_python_lacks", {**facts, "python": one.other.path})
            return Reason("backend_lacks_package", facts)
    return explain_missing(op.op, op.files[0], None, compiled.failure, one.other)


def _is_lasting(one: _Wanted, compiled: StaticOp) -> bool:
    """Whether it will be the same for what the cache's name has: files, packages, variables, but no other program.

    A call that raised may have missed a header or a folder, which someone installs.
    """
    raised = any(case.identity.unknown and case.identity.unknown.kind in _FLEETING for case in compiled.cases)
    return not raised and bool(not compiled.failure or _explain_missing(one, compiled))


def _is_touched(op: OpFolder, ours: Fingerprint, theirs: Fingerprint, bench: Bench) -> bool:
    """Whether a changed file is reached by the op: the `__init__` of a package may import all kernels of a library."""
    root, changed = bench.settings.root, {*ours.changed_files(theirs)}
    reached = {path for file in op.files for path, _ in list_reached(file)}
    others = {name for name in changed if not name.endswith(".py")}
    return bool(
        others or changed & {path.relative_to(root).as_posix() for path in reached if path.is_relative_to(root)}
    )


def is_compiled(op: OpFolder, targets: Sequence[str]) -> bool:
    """Whether kernels of an op's backend can be compiled here for one of the targets, without a device."""
    from perfci.extensions.offline.backends import find_compiler

    if BACKENDS[op.backend].uses_triton:
        return True
    is_cuda = any(target_named(target).backend == "cuda" for target in targets)  # the other backends are NVIDIA's
    return is_cuda and find_compiler(op.backend) is not None


def _name_place(op: OpFolder, target: str) -> str:
    """Under which name the settings have an interpreter that compiles an op for a target."""
    return NPU if target_named(target).backend == "npu" else op.backend


def _fingerprint(folders: Sequence[OpFolder], settings: Settings) -> Mapping[str, Fingerprint]:
    tree = Tree(settings.root, settings.kernels)
    return {op.op: tree.fingerprint(op.op) for op in folders}


def describe_toolchain(
    ops: Sequence[OpFolder],
    packages: Mapping[str, str] | None = None,
    others: Mapping[str, Interpreter] = MappingProxyType({}),
) -> str:
    """The toolchain that compiles ops: names and versions, of these packages or of those that are installed.

    others: interpreters in which those of some backends are.
    """
    from perfci.extensions.offline.backends import find_compiler

    compilers = {backend: find_compiler(backend) for backend in dict.fromkeys(op.backend for op in ops)}
    names = (
        *environment.COMPILERS,
        *(name for compiler in compilers.values() if compiler for name in compiler.PACKAGES),
    )
    toolchain = environment.installed_versions(names)
    for backend, other in others.items():
        compiler = compilers.get(backend)
        packages_there = environment.COMPILERS[1:] if backend == NPU else compiler.PACKAGES if compiler else ()
        packages_there = (*packages_there, *(environment.COMPILERS if compilers.keys() <= others.keys() else ()))
        toolchain |= {name: other.versions[name] for name in packages_there if name in other.versions}
    if packages is not None:
        toolchain = {name: packages[name] for name in names if name in packages}
    return ", ".join(f"{name} {version}" for name, version in toolchain.items()) or "nothing installed"


def _compile(bench: Bench, missing: Sequence[_Wanted]) -> Mapping[_Wanted, StaticOp]:
    """A worker for each, several at a time: one that ran another op's code might answer anything, and would be kept."""
    broken = {one: reason for one in missing if (reason := find_violation(one.op))}
    answers = {one: StaticOp(one.op.op, one.target, failure=reason) for one, reason in broken.items()}
    waiting = [one for one in missing if one not in broken]
    if waiting:
        warm_up(bench, "offline")

    def compile_ops() -> Iterator[Sequence[Running]]:
        while waiting:
            yield from _compile_op(bench, waiting.pop(0), answers)

    side_by_side([compile_ops() for _ in range(min(len(waiting), os.cpu_count() or 1, MOST_WORKERS))])
    return answers


def _compile_op(bench: Bench, one: _Wanted, answers: dict[_Wanted, StaticOp]) -> Iterator[Sequence[Running]]:
    def hear(message: Message) -> None:
        if isinstance(message, StaticOp):
            answers[one] = message
        bench.listener(message)

    place = place_needed(bench, one.settings, list_files([one.op]))
    name = f"static-{one.op.op}-{one.target}{'-base' if one.of_base else ''}"
    backend = _name_place(one.op, one.target) if one.other else ""
    around = make_environment(bench, WorkerPlace(name, "offline", place.root, one.python, backend=backend))
    failure = yield from working(Compile(place=place, target=one.target), around, hear)
    if failure or one not in answers:
        answers[one] = StaticOp(one.op.op, one.target, failure=failure or Reason("worker_silent"))


def list_moving(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the recorded variables that may change timing or code, without those that move no number."""
    return {name: value for name, value in environment.telling(variables).items() if name not in environment.UNTOLD}


@functools.cache
def list_installed() -> str:
    """Names and versions of all installed packages: kernels may be any package's."""
    # A wheel's folder has both in its name. To read the metadata of all takes half a second.
    folders = {path for entry in sys.path for path in Path(entry).glob("*.*-info")}
    eggs = {path: PathDistribution(path).version for path in folders if path.suffix == ".egg-info"}
    return ", ".join(sorted({f"{path.name} {eggs.get(path, '')}".rstrip() for path in folders}))


def _find_file(bench: Bench, one: _Wanted) -> Path | None:
    """Returns the file of what was compiled before, named by all that decides its content. None if that is unknown."""
    if one.print.opaque:
        return None
    # What captures and compiles may change between two releases without a new version.
    folders = (PACKAGE / name for name in ("device", "extensions/common", "extensions/offline", "extensions/npu"))
    code = (file.read_bytes() for folder in folders for file in sorted(folder.rglob("*.py")))
    code_digest = hashlib.sha256(b"".join(code)).hexdigest()
    # Variables such as TRITON_DEFAULT_FP_FUSION decide the code too. Another interpreter may be a script that sets one.
    variables = [f"{name}={value}" for name, value in list_moving(os.environ).items()]
    parts = (
        one.print.digest,
        one.target,
        one.toolchain,
        VERSION,
        code_digest,
        str(FORMAT),
        one.python or (f"{one.other.path} {sorted(one.other.versions.items())}" if one.other else list_installed()),
        *variables,
    )
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return bench.settings.caches / "static" / f"{one.op.op}-{one.target}-{key}.json"
