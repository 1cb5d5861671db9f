"""Which accuracy suites catch which faults: one fault at a time in a copy of the kernels, until a check finds it.

    python benchmarks/mutations.py [--ops OP...] [--device cpu|cuda] [--gpus N] [--jobs N] [--out docs/mutations.md]
    python benchmarks/mutations.py --random N --seed S ...    N faults that no one chose (mutants.py), instead of
                                                              those that somebody did (planted.py)
    python benchmarks/mutations.py --random N --project DIR   of another project, such as one that `perfci new --copy`
                                                              wrote around a library's kernels

On the CPU the suites run in Triton's interpreter, which leaves races on hardware unchecked. They run for the device at
hand, and once more for TWIN, whose few processors and programs lead small cases into the paths of large ones. A fault
is killed if a check fails, raises, or takes far longer than without it. Of those drawn at random,

- unreachable are those of which no check runs the line (on the GPU: no check's kernels have it compiled in),
- equivalent are those left over whose kernels, compiled for an H200, are the same in every case of both suites.

Faults that survive are listed first, and the exit code is 1. Nothing is said of an op that fails without a fault. What
does not fit into the GPU's memory is left out. With KERNELS_AS_DEVICE=nvidia-h200, kernels are launched as for an H200.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import hashlib
import itertools
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants import Mutant, draw, every_mutant, users
from planted import FAULTS, Fault
from tables import Marks, percent, table

if TYPE_CHECKING:
    from perfci.core.model import Reason
    from perfci.device.seam import Accelerator
    from perfci.measure.bench import Describe
    from perfci.measure.verify import Check
    from perfci.ops.spec import Accuracy

MUTATED = "MUTATED_KERNELS"
KERNELS = Path(os.environ.get(MUTATED) or Path(__file__).resolve().parents[1] / "kernels")
AS_DEVICE = "KERNELS_AS_DEVICE"
TWIN = "nvidia-h200/3/7"
WAYS = (os.environ.get(AS_DEVICE, ""),) if MUTATED in os.environ else (os.environ.get(AS_DEVICE, ""), TWIN)
"""Values of KERNELS_AS_DEVICE: the device at hand, and the twin, which kernels of other projects do not ask about."""
COMPILED = ("nvidia-h200", TWIN, "generic")
"""Ways for which kernels are compiled to see whether a mutant is equivalent; the last if the others lack the line."""
SLOWER, SPARE_S = 20.0, {"cpu": 8.0, "cuda": 40.0}
"""A check may take so many times its time without a fault, and so many seconds more, in which a GPU's are compiled."""

PARTS = {"cpu": 1, "cuda": 4}
"""Processes that profile an op one way: each makes every so manyth check. On a GPU most of the time is compiling."""

LARGE = "beyond 2^31"

PATIENCE = 60
"""Times that a check is tried which lacks memory."""

VISIBLE, CACHE = "CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR"

Fault_ = Fault | Mutant
Line = tuple[str, int]
"""file below kernels/, line"""


@dataclass(frozen=True)
class Caught:
    """What became of one fault."""

    checks: int
    """made until one failed"""
    kind: str | None = None
    """of the failure's reason; None if no check failed"""
    first: str | None = None
    """the check that failed"""
    seconds: float = 0.0

    @property
    def anything(self) -> bool:
        return self.kind is not None


@dataclass
class Profile:
    """An op's checks without a fault, one way."""

    way: str
    failing: str | None = None
    names: list[str] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    """0: normal values with the first seed. 1: other values and layouts. 2: more seeds. 3: large arrays"""
    seconds: list[float] = field(default_factory=list)
    lines: list[frozenset[Line]] = field(default_factory=list)
    """that a check runs, or has compiled in"""


@dataclass(frozen=True)
class Turn:
    """Checks of an op that are made one behind the other."""

    op: str
    way: str
    checks: tuple[int, ...]
    limits: tuple[float, ...]
    """seconds of each, to which SPARE_S comes"""


def merged(parts: Sequence[Profile]) -> Profile:
    """Returns the whole profile, its checks in their order, from its parts in theirs."""

    def turns(lists: Iterable[Sequence[Any]]) -> list[Any]:
        return [item for row in itertools.zip_longest(*lists, fillvalue=Profile) for item in row if item is not Profile]

    return Profile(
        parts[0].way,
        next(filter(None, (part.failing for part in parts)), None),
        *(turns(getattr(part, name) for part in parts) for name in ("names", "stages", "seconds", "lines")),
    )


Planned = Callable[[str, Sequence[Profile], Fault_], list[Turn]]
"""The checks of an op for a fault, from the op's profiles."""


# --- in a separate process ------------------------------------------------------------------------------------------


def copied(project: Path, fault: Fault_ | None) -> Path:
    """All kernels, since ops import common modules and one another; no baselines and thresholds."""
    shutil.copytree(KERNELS, project / "kernels", ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache"))
    (project / "pyproject.toml").write_text("[tool.perfci]\n", encoding="utf-8")
    if fault is not None:
        path = project / "kernels" / fault.path
        path.write_text(fault.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
    return project


@contextlib.contextmanager
def loaded(project: Path, op: str, way: str | None) -> Iterator[Any]:
    """An op's suites from a copy of the kernels. Modules of one copy are not those of the next."""
    from perfci.worker.load import load_op

    kernels = project / "kernels"
    names = {path.stem for path in kernels.rglob("*.py")} | {path.name for path in kernels.iterdir()}

    def forget() -> None:
        for module in [module for module in sys.modules if module.split(".")[0] in names]:
            del sys.modules[module]

    forget()
    kept = os.environ.get(AS_DEVICE)
    if way is not None:
        os.environ[AS_DEVICE] = way
    # What numpy warns of is no finding, and under pytest it would be raised and look like one.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield load_op(op, kernels / op, kernels)
        finally:
            forget()
            os.environ.pop(AS_DEVICE, None)
            if kept is not None:
                os.environ[AS_DEVICE] = kept


def list_checks(suite: Accuracy, device: str) -> list[Check]:
    """The checks of `perfci check`: a suite's, and those of the search.

    On a GPU those of arrays beyond 2^31 elements come last, which `perfci soak` makes.
    """
    from perfci.measure.search import plan_search
    from perfci.measure.verify import Check, checks

    large = [Check(params, LARGE, "contiguous", 1, False) for params in suite.large_cases] if device != "cpu" else []
    return [*checks(suite, 1, None), *plan_search(suite, 1, None, duel=False), *large]


def failure_of(suite: Accuracy, device: Accelerator, check: Check, folder: Path) -> str | None:
    """Returns the kind of what fails, if anything does. Waits for memory that other processes hold.

    folder: of the op in a copy of the kernels. Of all copies beside that one, one at a time makes a large array on each
    GPU.
    """
    from perfci.extensions.lab.soak.subject import open_endurance
    from perfci.measure.search import search
    from perfci.measure.verify import verify
    from perfci.ops.spec import SEARCHED
    from perfci.worker.load import describe_exception

    describe = partial(describe_exception, folder=folder)
    for _ in range(PATIENCE):
        if check.values == LARGE:
            with (folder.parents[2] / f"large{os.environ.get(VISIBLE, '')}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                failure = failure_of_large(suite, device, check, describe)
        else:
            if check.values in SEARCHED and check.fresh:
                result = search(suite, device, check, describe, None)
            else:
                result = verify(suite, device, check, describe)
            failure = result.failure if result else None
            if device.info.kind != "cpu":
                open_endurance(device).trim()  # what this process holds unused is missing elsewhere
        said = f"{failure.kind} {failure.facts}".replace("_", " ").lower() if failure else ""
        if "out of memory" not in said and "soak no room" not in said:
            break
        time.sleep(1.0)
    return failure.kind if failure else None


def failure_of_large(suite: Accuracy, device: Accelerator, check: Check, describe: Describe) -> Reason | None:
    from perfci.core.model import Reason
    from perfci.extensions.lab.soak.huge import check_large
    from perfci.extensions.lab.soak.subject import SoakSubject, open_endurance
    from perfci.extensions.lab.soak.task import as_performance

    timed, endurance = as_performance(suite, [check.params]), open_endurance(device)
    subject = SoakSubject("", timed, check.params, device, endurance, 1, suite.deterministic, lambda *_: None, describe)
    try:
        failure = check_large(subject, suite).reason
    except Exception as error:
        failure = Reason("kernel_raised", {"case": check.case, **describe(error)})
    del subject
    gc.collect()
    endurance.trim()
    return failure


def named(check: Check, way: str = "") -> str:
    return ", ".join(filter(None, (check.case, check.values, check.layout, f"seed {check.seed}", way)))


def first(fault: Fault, folder: Path, device: str = "cpu") -> Caught:
    """Returns what finds a planted fault first; `folder` gets a copy of the kernels.

    In this process, which for "cpu" has to have begun with TRITON_INTERPRET=1. The checks that the fault names are
    tried first.
    """
    from perfci.device import open_device

    project, opened = copied(folder, fault), open_device(device, seed=1)
    with loaded(project, fault.op, None) as op:
        tried = 0
        for check in sorted(list_checks(op.accuracy, device), key=lambda check: not _shows(fault, check)):
            tried += 1
            if kind := failure_of(op.accuracy, opened, check, project / "kernels" / fault.op):
                return Caught(tried, kind, named(check))
    return Caught(tried)


def _shows(fault: Fault, check: Check) -> bool:
    """Whether the fault is expected to show in this check."""
    from perfci.ops.spec import matches

    expected = fault.case is not None or fault.values is not None
    return expected and matches(check.case, fault.case) and fault.values in {None, check.values}


def make_checks(pipe: Any, project: Path, device: str, turns: Sequence[Turn]) -> None:
    """Make checks until one fails: send each one's place before it, and the failure."""
    from perfci.device import open_device

    opened = open_device(device, seed=1)
    for number, turn in enumerate(turns):
        try:
            with loaded(project, turn.op, turn.way) as op:
                every = list_checks(op.accuracy, device)
                for place in turn.checks:
                    pipe.send((number, place, None, None))
                    if kind := failure_of(op.accuracy, opened, every[place], project / "kernels" / turn.op):
                        pipe.send((number, place, kind, named(every[place], turn.way)))
                        return
        except Exception as error:  # the file of the kernel does not load
            pipe.send((number, 0, type(error).__name__, "import"))
            return
    pipe.send(None)


def profile(pipe: Any, project: Path, device: str, op: str, way: str, part: int) -> None:
    """Send part of the op's profile one way."""
    from perfci.device import open_device

    shared, fresh_cache = Path(os.environ[CACHE]), tempfile.mkdtemp(dir=project.parent)
    os.environ[CACHE] = fresh_cache  # lines are seen as a kernel is compiled, not when it comes from the disk
    opened, made, root = open_device(device, seed=1), Profile(way), f"{project / 'kernels'}/"
    watch = run_lines if device == "cpu" else compiled_lines
    with loaded(project, op, way) as suites, watch(root) as seen:
        for check in list_checks(suites.accuracy, device)[part :: PARTS[device]]:
            seen.clear()
            began = time.perf_counter()
            kind = failure_of(suites.accuracy, opened, check, project / "kernels" / op)
            if kind == "soak_no_room":
                seen.clear()  # as if it ran no line
            elif kind:
                made.failing = f"{named(check, way)}: {kind}"
                break
            plain = check.values == "normal" and check.layout == "contiguous"
            made.stages.append(3 if check.values == LARGE else (2 if check.seed else 0) if plain else 1)
            made.names.append(named(check, way))
            made.seconds.append(time.perf_counter() - began)
            made.lines.append(frozenset((file.removeprefix(root), line) for file, line in seen))
    shared.mkdir(exist_ok=True)
    for entry in Path(fresh_cache).iterdir():
        with contextlib.suppress(OSError):  # another process has brought the same
            entry.rename(shared / entry.name)
    pipe.send(made)


@contextlib.contextmanager
def run_lines(root: str) -> Iterator[set[tuple[str, int]]]:
    """Lines of files below the root that Python runs, which in the interpreter are the kernels'."""
    seen = set[tuple[str, int]]()

    def line(frame: Any, *_: Any) -> Any:
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename.startswith(root) else None)
    try:
        yield seen
    finally:
        sys.settrace(None)


@contextlib.contextmanager
def compiled_lines(root: str) -> Iterator[set[tuple[str, int]]]:
    """Lines that are compiled into the kernels launched. Needs an empty cache of kernels on disk."""
    from unittest import mock

    from triton.compiler.code_generator import CodeGenerator

    from perfci.device.launches import watch_launches

    seen, fresh = set[tuple[str, int]](), set[tuple[str, int]]()
    lines: dict[int, tuple[Any, frozenset[tuple[str, int]]]] = {}
    visit = CodeGenerator.visit

    def visiting(self: Any, node: Any) -> Any:
        if hasattr(node, "lineno"):
            fresh.add((self.file_name, self.begin_line + node.lineno))
        return visit(self, node)

    def heard(launch: Any) -> None:
        if id(launch.kernel) not in lines:  # kept, so that no other one gets its id
            lines[id(launch.kernel)] = launch.kernel, frozenset(line for line in fresh if line[0].startswith(root))
        fresh.clear()
        seen.update(lines[id(launch.kernel)][1])

    with mock.patch.object(CodeGenerator, "visit", visiting), watch_launches(heard):
        yield seen


# --- whether compiled kernels are the same ----------------------------------------------------------------------------


@dataclass
class Compiled:
    """What the calls of an op launch, one way: the kernels' hashes, and the lines compiled into them."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    lines: dict[str, frozenset[Line]] = field(default_factory=dict)


def find_equivalent(op: str, mutants: Sequence[Mutant]) -> list[bool]:
    """Returns for each mutant whether the op's kernels compiled for an H200 are the same with it and without.

    In a separate process, which is useless for anything else. What cannot be told is no equivalence.
    """
    from perfci.extensions.common.targets import target_named
    from perfci.extensions.offline.process import install_target

    with tempfile.TemporaryDirectory(prefix="perfci-mutants-") as name:
        os.environ[CACHE] = f"{name}/cache"
        install_target(target_named("sm_90"))
        plain: dict[str, Compiled] = {}
        answers = []
        for number, mutant in enumerate(mutants):
            same, reached = True, False
            for way in COMPILED:
                if not same or (reached and way == COMPILED[-1]):
                    break
                if way not in plain:
                    plain[way] = compile_op(copied(Path(name) / f"plain{len(plain)}", None), op, way, None)
                wanted, left = [], {key for key, lines in plain[way].lines.items() if reaches(mutant, lines)}
                for place, keys in enumerate(plain[way].calls):  # as few calls as have all of these kernels
                    if left & {*keys}:
                        wanted.append(place)
                        left -= {*keys}
                if wanted:
                    reached = True
                    project = copied(Path(name) / f"{number}-{COMPILED.index(way)}", mutant)
                    same = compile_op(project, op, way, plain[way], wanted) is not None
                    shutil.rmtree(project)
            answers.append(same and reached)
            print(f"{op}: compiled {number + 1} of {len(mutants)}", file=sys.stderr, flush=True)
        return answers


def compile_op(
    project: Path, op: str, way: str, plain: Compiled | None, wanted: Sequence[int] | None = None
) -> Compiled | None:
    """Returns what the op's calls launch, of both suites. None once a call launches something else than `plain`'s."""
    from perfci.device.tensors import TorchArrays
    from perfci.extensions.offline import compiling as offline
    from perfci.measure.inputs import bound_inputs

    arrays, root, made = TorchArrays(offline.DEVICE), f"{project / 'kernels'}/", Compiled()
    with loaded(project, op, way) as suites, compiled_lines(root) as seen:
        accuracy, performance = suites.accuracy, suites.performance
        checks = list_checks(accuracy, "cuda")
        calls = {(check.case, check.layout): (accuracy, check.params, check.layout) for check in checks}
        every = [*calls.values(), *((performance, params, "contiguous") for params in performance.cases)]
        for place, (suite, params, layout) in enumerate(every):
            if wanted is not None and place not in wanted:
                continue
            made_inputs = offline.compile_call(
                lambda: arrays.place(bound_inputs(suite, params, offline.DEVICE, 0), layout)  # noqa: B023
            )
            keys: tuple[str, ...] = ("no inputs",)
            if made_inputs.value is not None:
                seen.clear()
                called = offline.compile_call(partial(suite.kernel, **made_inputs.value))
                keys = tuple(hash_kernel(launch.kernel) for launch in called.capture.launched)
                if called.failure or called.raised:
                    keys += (str(called.failure or called.raised),)
                lines = frozenset((file.removeprefix(root), line) for file, line in seen)
                made.lines.update({key: lines for key in keys if key not in made.lines})
            made.calls.append(keys)
            if plain is not None and keys != plain.calls[place]:
                return None
    return made


def hash_kernel(kernel: Any) -> str:
    parts = kernel.asm.get("cubin") or kernel.asm.get("ptx") or ""
    return hashlib.sha256(parts.encode() if isinstance(parts, str) else parts).hexdigest()


def reaches(mutant: Mutant, lines: frozenset[Line]) -> bool:
    low, high = mutant.span
    return any((mutant.path, line) in lines for line in range(low, high + 1))


# --- many processes ---------------------------------------------------------------------------------------------------


def on_gpu(gpu: str, function: Callable[..., None], *args: Any) -> None:
    os.environ[VISIBLE] = gpu
    function(*args)


class Runner:
    """Runs faults in separate processes, which may hang or die, each on one of the GPUs."""

    def __init__(self, device: str, jobs: int, gpus: int, folder: Path) -> None:
        self._device, self._folder = device, folder
        self._pool = ThreadPoolExecutor(jobs)
        shown = os.environ.get(VISIBLE) or ",".join(map(str, range(gpus)))
        self._gpus = itertools.cycle(shown.split(",")[:gpus])
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ[CACHE] = str(folder / "cache")
        if device == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        # Processes are forked from one that has imported what takes seconds and has not touched the device.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(
            ["torch", "triton", "perfci.measure.verify", "perfci.worker.load", "perfci.device.cpu"]
        )

    def run(
        self, faults: Sequence[Fault_], needed: Callable[[Fault_], Sequence[str]], planned: Planned
    ) -> tuple[dict[Fault_, Caught], dict[str, str]]:
        """Returns what became of each fault that a check reaches, and of ops that fail without any fault which check.

        A fault is run once the ops that it needs are profiled, and left out if one of them fails without it.
        """
        project, ops_of = copied(self._folder / "plain", None), {fault: [*needed(fault)] for fault in faults}
        asked = {
            self._pool.submit(self._ask, profile, (project, self._device, op, way, part), 3600.0): (op, way, part)
            for op in sorted({op for ops in ops_of.values() for op in ops})
            for way in WAYS
            for part in range(PARTS[self._device])
        }
        parts: dict[tuple[str, str], dict[int, Profile]] = {}
        profiles: dict[str, list[Profile]] = {}
        running: dict[Fault_, Future[Caught]] = {}
        failing: dict[str, str] = {}
        for done in as_completed(asked):
            op, way, part = asked[done]
            by_part = parts.setdefault((op, way), {})
            by_part[part] = done.result() or Profile(way, failing="the process died")
            if len(by_part) < PARTS[self._device]:
                continue
            made = merged([by_part[part] for part in sorted(by_part)])
            profiles[op] = sorted([*profiles.get(op, ()), made], key=lambda profile: profile.way)
            if made.failing:
                failing[op] = f"{op}, {made.failing}"
            print(f"{op} {way}: {len(made.names)} checks, {sum(made.seconds):.0f} s", file=sys.stderr, flush=True)
            for fault, ops in ops_of.items():
                ready = op in ops and all(len(profiles.get(name, ())) == len(WAYS) for name in ops)
                if not ready or failing.keys() & {*ops}:
                    continue
                if turns := [turn for name in ops for turn in planned(name, profiles[name], fault)]:
                    running[fault] = self._pool.submit(self._run, fault, turns)
        return {fault: future.result() for fault, future in running.items()}, failing

    def _run(self, fault: Fault_, turns: Sequence[Turn]) -> Caught:
        began, tried = time.perf_counter(), 0
        project = copied(Path(tempfile.mkdtemp(dir=self._folder)), fault)
        here, child = self._started(make_checks, (project, self._device, turns))
        place, kind, limit = "start", None, 120.0
        try:
            while True:
                if not here.poll(limit):
                    kind = "hangs"
                    break
                if (heard := here.recv()) is None:
                    break
                number, check, kind, name = heard
                if kind:
                    place = name
                    break
                tried += 1
                turn = turns[number]
                place = f"check {check}, {turn.way}"
                limit = turn.limits[turn.checks.index(check)] + SPARE_S[self._device]
        except EOFError:
            kind = "process_died"
        finally:
            if child.is_alive():
                child.kill()
            child.join()
            shutil.rmtree(project, ignore_errors=True)
        caught = Caught(tried, kind, place if kind else None, time.perf_counter() - began)
        print(f"{fault.path}: {_how(caught)}, {caught.seconds:.1f} s", file=sys.stderr, flush=True)
        if isinstance(fault, Mutant) and not caught.anything:
            print(fault.diff((KERNELS / fault.path).read_text(encoding="utf-8")), file=sys.stderr, flush=True)
        return caught

    def _ask(self, function: Callable[..., None], args: Sequence[Any], limit: float) -> Any:
        here, child = self._started(function, args)
        try:
            return here.recv() if here.poll(limit) else None
        except EOFError:
            return None
        finally:
            child.kill()
            child.join()

    def _started(self, function: Callable[..., None], args: Sequence[Any]) -> tuple[Any, Any]:
        """Returns the end of a pipe on which a new process sends, and the process."""
        here, there = self._processes.Pipe(duplex=False)
        child = self._processes.Process(target=on_gpu, args=(next(self._gpus), function, there, *args))
        child.start()
        there.close()
        return here, child


def plan(op: str, profiles: Sequence[Profile], wanted: Callable[[Profile, int], bool]) -> list[Turn]:
    """Returns the checks that are wanted, those first that take little and find much: each way's cases once, probes."""
    turns = []
    for stage in range(4):
        for profile in profiles:
            places = [i for i, at_stage in enumerate(profile.stages) if at_stage == stage and wanted(profile, i)]
            places.sort(key=profile.seconds.__getitem__)
            if places:
                limits = tuple(SLOWER * profile.seconds[i] for i in places)
                turns.append(Turn(op, profile.way, tuple(places), limits))
    return turns


# --- tables -----------------------------------------------------------------------------------------------------------


def planted_tables(rows: Sequence[tuple[Fault, Caught]], device: str, *, listed: bool = True) -> str:
    """listed: with a row for each fault, as it is printed. A page has the kinds alone."""
    missed = sum(not result.anything for _, result in rows)
    where = "in Triton's interpreter" if device == "cpu" else f"compiled, device {device}"
    head = f"{len(rows) - missed} of {len(rows)} faults caught, {where}, up to the first check that finds each."
    kinds = Counter(fault.kind for fault, _ in rows)
    caught = Counter(fault.kind for fault, result in rows if result.kind)
    by_kind = table(("kind", "planted", "caught"), [(kind, many, caught[kind]) for kind, many in sorted(kinds.items())])
    if not listed:
        return f"{head}\n\n{by_kind}"
    by_fault = table(
        ("op", "fault", "checks", "how", "first"),
        [
            (f"`{fault.op}`", fault.name, result.checks, _how(result), f"`{result.first}`" if result.first else "-")
            for fault, result in sorted(rows, key=lambda row: row[1].anything)
        ],
    )
    return f"{head}\n\n{by_kind}\n\n{by_fault}"


def _how(caught: Caught) -> str:
    return caught.kind or "**not caught**"


RAISED = frozenset({"kernel_raised", "out_of_memory", "process_died"})
FATES = ("equivalent", "unreachable", "killed", "survived")


def random_tables(rows: Sequence[tuple[Mutant, Caught | None, str]], seed: int, device: str) -> str:
    """rows: mutant, what became of it unless no check reaches it, its fate."""
    files = sorted({mutant.path for mutant, _, _ in rows})
    lines = []
    for file in [*files, None]:
        rows_of = [row for row in rows if file in {None, row[0].path}]
        many = Counter(fate for _, _, fate in rows_of)
        raised = sum(bool(result and result.kind in RAISED) for _, result, _ in rows_of)
        counted = many["killed"] + many["survived"]
        share = percent(many["killed"] / counted) if counted else "-"
        name = f"`{file}`" if file else "**all**"
        lines.append((name, len(rows_of), *(many[fate] for fate in FATES[:3]), raised, many["survived"], share))
    where = "in Triton's interpreter" if device == "cpu" else f"compiled, device {device}"
    times = [result.seconds for _, result, _ in rows if result]
    took = f"a median of {statistics.median(times):.1f} s and a mean of {statistics.mean(times):.1f} s a mutant"
    text = [f"Seed {seed}, {where}, {took}.", table(
        ("file", "drawn", "equivalent", "unreachable", "killed", "that raised", "survived", "killed of both"),
        lines,
    )]  # fmt: skip
    for mutant, result, fate in rows:
        if fate == "survived" and result:
            diff = mutant.diff((KERNELS / mutant.path).read_text(encoding="utf-8"))
            text.append(f"`{mutant.function}`, {mutant.rule}, {result.checks} checks:\n\n```diff\n{diff}\n```")
    return "\n\n".join(text)


# --- all of it --------------------------------------------------------------------------------------------------------


def shown_on(device: str) -> list[Fault]:
    """Faults that are faults there: on the CPU kernels are interpreted."""
    other = "compiled" if device == "cpu" else "interpreted"
    return [fault for fault in FAULTS if fault.only != other]


def plan_planted(op: str, profiles: Sequence[Profile], fault: Fault_) -> list[Turn]:
    named = lambda profile, i: isinstance(fault, Fault) and fault.case is not None and fault.case in profile.names[i]  # noqa: E731
    return [*plan(op, profiles, named), *plan(op, profiles, lambda *_: True)]


def plan_random(op: str, profiles: Sequence[Profile], fault: Fault_) -> list[Turn]:
    return plan(op, profiles, lambda profile, i: isinstance(fault, Mutant) and reaches(fault, profile.lines[i]))


def judge_random(
    drawn: Sequence[Mutant], caught: Mapping[Fault_, Caught], ops: Callable[[Fault_], Sequence[str]], jobs: int
) -> list[tuple[Mutant, Caught | None, str]]:
    """Returns what became of each mutant, and its fate. Those left over are compiled to see which are equivalent."""
    left: dict[str, list[Mutant]] = {}
    for mutant in drawn:
        if mutant in caught and not caught[mutant].anything:
            for op in ops(mutant):
                left.setdefault(op, []).append(mutant)
    differing = set[Mutant]()
    os.environ.pop("TRITON_INTERPRET", None)
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(jobs, maxtasksperchild=1) as pool:
        for (_, those), same in zip(
            left.items(), pool.starmap(find_equivalent, left.items(), chunksize=1), strict=True
        ):
            differing |= {mutant for mutant, alike in zip(those, same, strict=True) if not alike}
    fates = []
    for mutant in drawn:
        result = caught.get(mutant)
        if result is None:
            fate = "unreachable"
        elif result.anything:
            fate = "killed"
        else:
            fate = "survived" if mutant in differing else "equivalent"
        fates.append((mutant, result, fate))
    return fates


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", metavar="OP", help="only faults of these ops' kernels")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--random", type=int, metavar="N", help="draw so many faults")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--project", type=Path, metavar="DIR", help="another project, to draw faults in")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine that share them")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks")
    options = parser.parse_args(arguments)
    if options.project and MUTATED not in os.environ:  # the processes that are started read it too
        os.environ[MUTATED] = str((options.project / "kernels").resolve())
        os.execv(sys.executable, [sys.executable, *sys.argv])
    ops_of = users(KERNELS)
    ops = options.ops or sorted({op for those in ops_of.values() for op in those})
    with tempfile.TemporaryDirectory(prefix="perfci-mutations-") as name:
        runner = Runner(options.device, options.jobs, options.gpus, Path(name))
        if options.random:
            used = lambda fault: sorted({*ops_of[fault.path]} & {*ops})  # noqa: E731
            every = [mutant for mutant in every_mutant(KERNELS) if used(mutant)]
            drawn = draw(every, KERNELS, options.random, options.seed)
            caught, failing = runner.run(drawn, used, plan_random)
        else:
            planted = [fault for fault in shown_on(options.device) if fault.op in ops]
            caught, failing = runner.run(planted, lambda fault: [fault.op], plan_planted)
        if failing:
            print(
                "These fail without a fault, so nothing is said of their ops:",
                *failing.values(),
                sep="\n",
                file=sys.stderr,
            )
        if options.random:
            drawn = [mutant for mutant in drawn if not failing.keys() & {*used(mutant)}]
            rows = judge_random(drawn, caught, used, options.jobs)
            text = page = random_tables(rows, options.seed, options.device)
            missed = any(row[2] == "survived" for row in rows)
        else:
            outcomes = [(fault, caught[fault]) for fault in planted if fault in caught]
            text, page = (planted_tables(outcomes, options.device, listed=listed) for listed in (True, False))
            missed = not all(result.anything for result in caught.values())
    if options.out:
        marks = Marks("benchmarks/mutations.py --random" if options.random else "benchmarks/mutations.py")
        marks.written(options.out, page)
    print(text)
    return 1 if missed or failing else 0


if __name__ == "__main__":
    sys.exit(main())
