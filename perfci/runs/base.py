"""The base revision: found in git, written out beside the work tree, and compared with each op's files."""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci import store
from perfci.core.codec import decode
from perfci.core.environment import PACKAGES, find_newest
from perfci.core.errors import GitError, PerfciError, StoredFileError, UsageError
from perfci.core.model import Base, DuelWhat, Expected, PlannedBase, PlannedOp, Reason, because, board_key
from perfci.core.settings import FILE as SETTINGS_FILE
from perfci.core.settings import Settings, read_table
from perfci.core.settings import at as settings_at
from perfci.core.wording import say
from perfci.git.base import PROPOSALS, How, resolve
from perfci.git.checkout import materialise
from perfci.ops.discover import OpFolder, ops, select
from perfci.ops.fingerprint.pins import pins_changed
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.runs.bench import Bench, WorkerPlace, make_environment, move_path
from perfci.runs.changed_lines import list_lines
from perfci.runs.describe import Described, OpSource, describe_ops, describe_sources, find_violation
from perfci.runs.plan import NOT_AGAINST, Against, Request
from perfci.store import history
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load
from perfci.worker.process import confined

FOLDER = "base"  # the folder of the base's files in the run's folder

MERGE_REQUEST = ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_MERGE_REQUEST_EVENT_TYPE")

UNREMARKABLE = frozenset({"git_missing", "no_repository", "no_commit_yet", "no_base"})  # nobody needs to hear

PLACES = ("kernels", "baselines", "thresholds")  # settings by which a change is judged: folders of the project
LISTS = "quarantine", "cleared"  # settings that list boards

NEEDED = ("msgspec", "numpy", "scipy", "yaml")  # to run the base's kernels, and torch for real devices. perfci is lent

PROBE_LIMIT_S = 60.0

Prints = Mapping[str, tuple[Fingerprint, Fingerprint]]
"""Of the files of ops that both have, here and at the base."""

_PROBE = """
import contextlib, importlib.util, json, sys
from importlib import metadata
assert sys.version_info >= (3, 11), "perfci runs in Python 3.11 or newer"
missing = [name for name in sys.argv[1].split(",") if importlib.util.find_spec(name) is None]
assert not missing, "it lacks " + ", ".join(missing)
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in sys.argv[2].split(","):
    with contextlib.suppress(metadata.PackageNotFoundError):
        found[name] = metadata.version(name)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class BaseTree:
    """The base revision's project, written out."""

    base: Base
    settings: Settings  # the project's, with every folder in the base's tree

    @property
    def ops(self) -> tuple[OpFolder, ...]:
        """The ops that it has."""
        return ops(self.settings) if self.settings.kernels.is_dir() else ()


@dataclass(frozen=True)
class FoundBase:
    """What a run is compared with, if anything, and whose rules judge it."""

    tree: BaseTree | None
    against: Against
    rules: Settings


def find(bench: Bench, request: Request) -> FoundBase:
    """Returns the base, with a note if there should be one. Raises UsageError if one that was named is missing."""
    settings = bench.settings
    if request.duel is DuelWhat.NONE and request.against is None:
        return take_base(None, request, settings)
    recorded = baseline_commit(settings) if request.against is None else None
    try:
        base = resolve(settings.root, request.against, os.environ, recorded)
        if python := request.base_python:
            # A path must not depend on where a worker runs. A link to an interpreter is an interpreter of its own.
            python = str(Path(python).absolute()) if os.sep in python else shutil.which(python) or python
            base = dataclasses.replace(base, python=python, packages=_probe(bench, python, request.device))
        return take_base(_compare_rules(write_base(bench, base), settings), request, settings)
    except GitError as error:
        why = error.reason
        if any(os.environ.get(name) for name in MERGE_REQUEST) and request.against is None:
            why = because("merge_without_base", why)
        elif request.against is not None or request.base_python:
            raise UsageError(why.kind, **why.facts) from error
    return FoundBase(None, NOT_AGAINST if why.kind in UNREMARKABLE else Against(note=why), settings)


def take_base(tree: BaseTree | None, request: Request, settings: Settings) -> FoundBase:
    """A tree as the base of a run."""
    if tree is None:
        return FoundBase(None, NOT_AGAINST, settings)
    known = set(list_known_ops(settings) or ())
    gone = tuple(op.op for op in tree.ops if op.op not in known) if not request.ops and not request.pattern else ()
    return FoundBase(tree, Against(tree.base, request.duel, gone), choose_rules(tree.base, tree, settings))


def write_base(bench: Bench, base: Base, name: str = FOLDER) -> BaseTree:
    """The base's files, written out once a run, in a folder of the bench of this name. Raises GitError."""
    root = materialise(bench.settings.root, base.commit, bench.folder / name)
    return BaseTree(base, move_settings(bench.settings, root))


def move_settings(settings: Settings, root: Path) -> Settings:
    """Returns the settings of another tree, by its own account. Reports and the lock stay in their places."""
    kernels, baselines, thresholds = (move_path(getattr(settings, name), settings.root, root) for name in PLACES)
    quarantine: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    # If the settings there cannot be read no board is quarantined, which is stricter.
    with contextlib.suppress(UsageError):
        # A change must not lead to other ops and rules of the base than the base itself has.
        own = settings_at(root)
        kernels, baselines, thresholds = own.kernels, own.baselines, own.thresholds
        quarantine, cleared = own.quarantine, own.cleared
    return dataclasses.replace(
        settings, root=root, kernels=kernels, baselines=baselines, thresholds=thresholds,
        quarantine=quarantine, cleared=cleared,
    )  # fmt: skip


def choose_rules(base: Base | None, tree: BaseTree | None, settings: Settings) -> Settings:
    """Returns the settings by whose thresholds and baselines a run is judged: those of the base of a merge request."""
    return tree.settings if tree and is_judged_by_base(base) else settings


def is_judged_by_base(base: Base | None) -> bool:
    """Whether a change is judged by other thresholds and baselines than it has itself."""
    return base is not None and base.rules and bool(base.changed_rules)


def describe_against(bench: Bench, request: Request, tree: BaseTree | None) -> Described:
    """Discover the ops, and import them and what differs of the base at once. Each op has what the base has of it."""
    if tree is None:
        return describe_ops(bench, request)
    chosen = select(bench.settings, request.ops)
    prints = fingerprint_both(tree, bench.settings, [op.op for op in chosen if not find_violation(op)])
    head, *others = describe_sources(bench, request, OpSource(bench.settings, chosen), *_list_changed(tree, prints))
    return dataclasses.replace(head, ops=plan_beside(tree, head.ops, prints, others, bench.settings.root))


def plan_ops(bench: Bench, tree: BaseTree, request: Request, head: Sequence[PlannedOp]) -> tuple[PlannedOp, ...]:
    """Every op with what the base has of it: the same files, or the cases of the base's own suites."""
    prints = fingerprint_both(tree, bench.settings, [op.op for op in head if not op.failure])
    described = describe_sources(bench, request, *_list_changed(tree, prints))
    return plan_beside(tree, head, prints, described, bench.settings.root)


def _list_changed(tree: BaseTree, prints: Prints) -> list[OpSource]:
    """The base's ops that have to be imported, if there are any."""
    python = tree.base.python
    # With another toolchain, what it makes of the same files is the question.
    wanted = [op for op in tree.ops if op.op in prints and (python or not prints[op.op][0].same_as(prints[op.op][1]))]
    return [OpSource(tree.settings, wanted, python)] if wanted else []


def plan_beside(
    tree: BaseTree, head: Sequence[PlannedOp], prints: Prints, described: Sequence[Described], root: Path
) -> tuple[PlannedOp, ...]:
    """Every op with what the base has of it. described: the base's ops that differ, as they were imported.

    root: of the project under test.
    """
    found, planned = {op.op: op for base in described for op in base.ops}, []
    for op in head:
        base = _planned_base(op, prints.get(op.op), found.get(op.op), tree)
        lines = list_lines(base.changed, tree.settings.root, root) if base else ()
        planned.append(dataclasses.replace(op, base=base and dataclasses.replace(base, lines=lines)))
    return tuple(planned)


def compare_files(tree: BaseTree | None, settings: Settings, planned: Sequence[PlannedOp]) -> tuple[PlannedOp, ...]:
    """Planned ops with what files show of the base: whether it has the op, and which files differ. Imports nothing."""
    if tree is None:
        return tuple(dataclasses.replace(op, base=None) for op in planned)
    prints, found = fingerprint_both(tree, settings, [op.op for op in planned if not op.failure]), []
    for op in planned:
        pair = prints.get(op.op)
        known = _planned_base(op, pair, None, tree)
        if pair and not pair[0].same_as(pair[1]):
            changed = pair[0].changed_files(pair[1])
            lines = list_lines(changed, tree.settings.root, settings.root)
            known = dataclasses.replace(op.base or PlannedBase(), same=False, changed=changed, lines=lines)
        found.append(dataclasses.replace(op, base=known))
    return tuple(found)


def fingerprint_both(tree: BaseTree, settings: Settings, names: Sequence[str]) -> Prints:
    """The files of each of these ops that both have, here and at the base."""
    ours, base = (Tree(each.root, each.kernels) for each in (settings, tree.settings))
    theirs = {op.op for op in tree.ops}
    return {op: (ours.fingerprint(op), base.fingerprint(op)) for op in names if op in theirs}


def hash_rules(rules: Settings) -> str:
    """SHA-256 of the thresholds and baselines by which a run is judged, with their names. Histories judge nothing."""
    found = hashlib.sha256()
    for folder in (rules.thresholds, rules.baselines):
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and history.ENDING not in path.name):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{folder.name}/{path.relative_to(folder).as_posix()}\0{content}\n".encode(errors="replace"))
    for name in LISTS:
        for board in sorted(map(board_key, getattr(rules, name))):
            found.update(f"{name}\0{board}\n".encode(errors="replace"))
    return found.hexdigest()


def verify_rules_unchanged(bench: Bench, *projects: Settings) -> None:
    """Note the thresholds and baselines of projects before a kernel runs. Raises UsageError if they differ later."""
    for each in projects:
        found = hash_rules(each)
        if bench.sealed.setdefault(each.root, found) != found:
            raise UsageError("rules_edited", folder=str(each.root))


def baseline_commit(settings: Settings) -> str | None:
    """The commit of the newest run that a stored baseline comes from."""
    runs = []
    for folder in (each for each in sorted(settings.baselines.glob("*")) if each.is_dir()):
        # A damaged baseline has its error when something is compared with it.
        with contextlib.suppress(PerfciError):
            baselines = store.read_baselines(settings.baselines, folder.name).values()
            runs += [run for baseline in baselines for run in baseline.runs if run.environment.commit]
    return find_newest(runs).environment.commit if runs else None


def _planned_base(
    head: PlannedOp, prints: tuple[Fingerprint, Fingerprint] | None, base: PlannedOp | None, tree: BaseTree
) -> PlannedBase | None:
    if head.failure:
        return None
    if prints is None:
        return PlannedBase(failure=Reason("base_lacks_op", {"op": head.op, "base": tree.base.name}))
    if base is None:
        return PlannedBase(same=True, performance=head.performance, cache=head.cache)
    ours, theirs = prints
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
    suites = [where for where in theirs.late_imports if not where.partition(":")[0].endswith("_triton.py")]
    unjudged = Reason("judged_by_own_late", {"op": head.op, "where": suites[0]}) if suites else None
    # The base's performance cases by the names that the change gives them.
    now = {old: new for new, old in head.renamed.items()}
    cases = tuple(now.get(case, case) for case in base.performance)
    return PlannedBase(
        changed=changed,
        performance=cases,
        cache=base.cache,
        failure=failure,
        apart=apart,
        signature=base.signature,
        unjudged=unjudged,
    )


def can_be_called_alike(before: Sequence[str], after: Sequence[str]) -> bool:
    """Returns whether a call of the base's kernel can be one of the change's, by their parameters.

    >>> can_be_called_alike(["x"], ["x", "factor=2"]), can_be_called_alike(["x"], ["x", "factor"])
    (True, False)
    """
    names, now = ({each.partition("=")[0]: "=" not in each for each in signature} for signature in (before, after))
    takes_all = any(each.startswith("**") for each in after)
    needed = (name for name, plain in names.items() if plain and not name.startswith("*"))
    needed_now = (name for name, plain in now.items() if plain and not name.startswith("*"))
    return all(name in names for name in needed_now) and (takes_all or all(name in now for name in needed))


def _compare_rules(tree: BaseTree, settings: Settings) -> BaseTree:
    """The base with what the change does to the rules by which it is judged."""
    if tree.base.how == How.BASELINE:  # baselines are always younger than the commit that they record
        return tree
    rules = (
        *_list_differing(settings.thresholds, tree.settings.thresholds, settings.root),
        *_list_differing(settings.baselines, tree.settings.baselines, settings.root),
    )
    table: dict[str, Any] | None = None
    with contextlib.suppress(UsageError):
        table = read_table(tree.settings.root)
    if read_table(settings.root) != table:
        rules = (*rules, SETTINGS_FILE)
    expected: tuple[Expected, ...] = ()
    if rules:
        # A note names the change's own expected entries, even if it is judged by its own rules.
        before = change = load(settings.thresholds, list_known_ops(settings), settings.root)
        try:
            before = load(tree.settings.thresholds)
        except StoredFileError:
            if tree.base.rules:
                raise
        expected = mark_added(change, before)
    branch = os.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "")
    below = move_path(settings.baselines, settings.root, Path())
    base = dataclasses.replace(
        tree.base,
        changed_rules=rules,
        changed_baselines=tuple(path for path in rules if Path(path).is_relative_to(below)),
        proposed_on=branch if branch.startswith(PROPOSALS) else None,
        changed_pins=pins_changed(settings.root, tree.settings.root),
        expected=expected,
    )
    return dataclasses.replace(tree, base=base)


def mark_added(change: Thresholds, base: Thresholds) -> tuple[Expected, ...]:
    """All expected entries of a change, those marked that its base lacks."""
    entries = [entry for op in sorted(change.ops) for entry in change.ops[op].expected]
    return tuple(dataclasses.replace(entry, added=entry not in base.expected(entry.op)) for entry in entries)


def list_known_ops(settings: Settings) -> list[str] | None:
    """Names of the project's ops. None if it has no folder of them."""
    return [op.op for op in ops(settings)] if settings.kernels.is_dir() else None


def _list_differing(ours: Path, theirs: Path, root: Path) -> list[str]:
    """Returns the files that only one of two folders has, or that differ, by their names below the project's root."""
    below = move_path(ours, root, Path())
    now, before = (
        {str(below / path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (ours, theirs)
    )
    return sorted(path for path in {*now, *before} if now.get(path) != before.get(path))


def _probe(bench: Bench, python: str, device: str) -> Mapping[str, str]:
    """Returns the versions in another interpreter. Raises UsageError if it cannot run the base."""
    needed = NEEDED if device == "fake" else (*NEEDED, "torch")
    around = make_environment(bench, WorkerPlace("probe", "offline", python=python))
    command = confined([python, "-c", _PROBE, ",".join(needed), ",".join(PACKAGES)], around.writable)
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=PROBE_LIMIT_S, env=dict(around.environment)
        )
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        if not done.returncode:
            return decode(done.stdout.strip().splitlines()[-1], dict[str, str])
        why = lines[-1].rstrip(".") if lines else say("it ended with status {status}", status=done.returncode)
    except OSError as error:
        why = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        why = f"no answer within {PROBE_LIMIT_S:g} s"
    except (IndexError, ValueError):
        why = say("it is no Python")
    raise UsageError("base_python_broken", python=python, why=why)
