"""The base revision: found in git, and written out beside the work tree."""

import contextlib
import dataclasses
import functools
import os
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.environment import PACKAGES, find_newest, in_ci
from perfci.core.errors import GitError, PerfciError, UsageError
from perfci.core.model import Base, DuelWhat, because
from perfci.core.settings import Settings
from perfci.git.base import resolve
from perfci.git.checkout import materialise
from perfci.ops.discover import OpFolder, ops
from perfci.runs.bench import Bench, locate, stamp
from perfci.runs.plan import NOT_AGAINST, Against, Request
from perfci.runs.rules import choose_rules, compare_rules, list_known_ops, move_settings

FOLDER = "base"  # the folder of the base's files in the run's folder

MERGE_REQUEST = ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_MERGE_REQUEST_EVENT_TYPE")

UNREMARKABLE = frozenset({"git_missing", "no_repository", "no_commit_yet", "no_base"})
"""Why there is no base, if no reader needs to hear of it."""


@dataclass(frozen=True)
class BaseTree:
    """The base revision's project, written out."""

    base: Base
    settings: Settings  # the project's, with every folder in the base's tree

    @functools.cached_property
    def ops(self) -> tuple[OpFolder, ...]:
        """The ops that it has."""
        return ops(self.settings) if self.settings.kernels.is_dir() else ()


@dataclass(frozen=True)
class FoundBase:
    """The base of a run, if it has one, and the rules that judge it."""

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
            python = locate(python, Path.cwd())
            if isinstance(there := bench.probe(python, request.device), str):
                raise UsageError("base_python_broken", python=python, why=there)
            versions = {name: there.versions[name] for name in ("python", *PACKAGES) if name in there.versions}
            base = dataclasses.replace(base, python=python, packages=versions)
        tree = write_base(bench, base)
        tree = dataclasses.replace(tree, base=compare_rules(tree.base, tree.settings, settings))
        return take_base(tree, request, settings)
    except GitError as error:
        why = error.reason
        if any(os.environ.get(name) for name in MERGE_REQUEST) and request.against is None:
            why = because("merge_without_base", why)
        elif request.against is not None or request.base_python:
            raise UsageError(why.kind, **why.facts) from error
    # Only in a pipeline does it matter which branch is the default one: a change is granted what that has.
    silent = why.kind in UNREMARKABLE or (why.kind == "no_default_branch" and not in_ci(os.environ))
    return FoundBase(None, NOT_AGAINST if silent else Against(note=why), settings)


def take_base(tree: BaseTree | None, request: Request, settings: Settings) -> FoundBase:
    """A tree as the base of a run."""
    if tree is None:
        return FoundBase(None, NOT_AGAINST, settings)
    here = set(list_known_ops(settings) or ())
    gone = tuple(op.op for op in tree.ops if op.op not in here) if not request.ops and not request.pattern else ()
    return FoundBase(tree, Against(tree.base, request.duel, gone), choose_rules(tree.base, tree.settings, settings))


def write_base(bench: Bench, base: Base, name: str = FOLDER) -> BaseTree:
    """The base's files, written out once a run, in a folder of the bench of this name. Raises GitError."""
    root = materialise(bench.settings.root, base.commit, bench.folder / name)
    bench.stamps[root] = stamp(root)
    return BaseTree(base, move_settings(bench.settings, root))


def baseline_commit(settings: Settings) -> str | None:
    """The commit of the newest run that a stored baseline comes from."""
    runs = []
    for folder in (path for path in sorted(settings.baselines.glob("*")) if path.is_dir()):
        # A damaged baseline has its error when something is compared with it.
        with contextlib.suppress(PerfciError):
            baselines = store.read_baselines(settings.baselines, folder.name).values()
            runs += [run for baseline in baselines for run in baseline.runs if run.environment.commit]
    return find_newest(runs).environment.commit if runs else None
