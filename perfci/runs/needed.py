"""A copy of the files that ops need, which is all that their processes get of a project.

What an op's fingerprint does not count is not there: a page, a logbook, another op's file, what git keeps, sizes and
modes. So nothing of it can change what the op does, and the same files are the same op.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from perfci.core.files import open_regular
from perfci.core.settings import Settings
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.bench import Bench, move_path, place_ops, stamp
from perfci.worker.tasks import OpFiles, Place

FOLDER = "needed"  # folder in the run's folder with a copy for each set of ops


def place_needed(bench: Bench, settings: Settings, ops: Sequence[OpFiles], peers: Sequence[str] = ()) -> Place:
    """Where these ops of a project lie, for a worker that sees no more than they need. peers: or these need too."""
    narrow = copy_needed(bench, settings, (*(op.op for op in ops), *peers))
    moved = [OpFiles(op.op, move_path(op.folder, settings.root, narrow.root)) for op in ops]
    home = bench.home or bench.settings.root
    return place_ops(narrow, moved, None if narrow.root == home else home)


def copy_needed(bench: Bench, settings: Settings, names: tuple[str, ...]) -> Settings:
    """Returns settings that lead to a copy of what these ops need: the same ones if one of them may need other files.

    Such an op is never proven unchanged by its files. Files are copied once a run, without their modes.
    """
    key = settings.root, names
    if key not in bench.needed:
        tree = bench.trees.get(settings.root) or Tree(settings.root, settings.kernels)
        bench.trees[settings.root], lists = tree, [tree.list_files(name) for name in names]
        known = settings.kernels.is_relative_to(settings.root)
        paths = {path for files in lists if files is not None for path in files}
        whole = not names or not known or None in lists
        bench.needed[key] = settings if whole else _copy(bench, settings, sorted(paths))
    return bench.needed[key]


def _copy(bench: Bench, settings: Settings, paths: Sequence[str]) -> Settings:
    root = bench.folder / FOLDER / str(len(bench.needed))
    narrow = dataclasses.replace(settings, root=root, kernels=move_path(settings.kernels, settings.root, root))
    narrow.kernels.mkdir(parents=True)
    top, *history = bench.hidden[0] or (settings.root,)
    homes = [settings.root.resolve()] if settings.root.is_relative_to(bench.folder) else [settings.root.resolve(), top]
    for path in map(Path, paths):
        target = move_path(path, settings.root, root)
        target.parent.mkdir(parents=True, exist_ok=True)
        # What is no file, or cannot be read, counts by that. As this process may read more than an op's, a link that
        # leads out of the repository stays one.
        with contextlib.suppress(OSError):
            real = path.resolve()
            if not any(real.is_relative_to(home) for home in homes) or any(map(real.is_relative_to, history)):
                target.symlink_to(real)
                continue
            with open_regular(real) as source, target.open("xb") as copy:
                shutil.copyfileobj(source, copy)
    bench.stamps[root] = stamp(root)
    return narrow
