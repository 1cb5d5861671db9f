"""The base revision's files in a worker: beside head's in one process, or in place of head's in its process.

A root is a project's folder as of one revision, less what is installed in an environment inside it, and perfci.
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from perfci.core import PACKAGE
from perfci.core.model import Reason
from perfci.worker.load import INSTALLED, LoadedOp, import_roots, load_op

_OURS = str(PACKAGE.resolve())


def load_apart(op: str, folder: Path, shared: Path, root: Path, head_root: Path) -> LoadedOp:
    """Import an op as of the base revision below `root`, with head's modules out of the way meanwhile.

    Raises InseparableError if the base imports a file of head, and ContractError as `load_op` does.
    """
    ours = forget(head_root)
    before = list(sys.path)
    try:
        _map_path(root, head_root)
        loaded = load_op(op, folder, shared)
        if stray := stray_import(head_root):
            from perfci.measure.bench import InseparableError

            raise InseparableError(Reason("imports_other_code", {"module": stray[0], "file": stray[1]}))
        return loaded
    finally:
        sys.path[:] = before
        forget(root)
        forget(head_root)
        sys.modules.update(ours)


def settle(root: Path, head_root: Path) -> None:
    """Make this process the base's for as long as it lives: whatever leads to head's files leads to the base's."""
    _map_path(root, head_root)
    sys.meta_path.insert(0, _Redirect(root, head_root))


def stray_import(root: Path) -> tuple[str, str] | None:
    """A module that was imported from a root, and its file. None if there is none."""
    return next(((name, str(_places(module)[0])) for name, module in _below(root).items()), None)


class _Redirect:
    """Finds modules as all other finders do, and loads those of head from the base's files."""

    def __init__(self, root: Path, head_root: Path) -> None:
        self._root = root
        self._head_root = head_root

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The base's module in place of head's. None for any other."""
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        match = next((spec for spec in specs if spec is not None), None)
        if match is None or match.origin is None or not match.has_location or not is_of(match.origin, self._head_root):
            return None
        origin = _map_place(match.origin, self._root, self._head_root)
        inner = match.submodule_search_locations
        folders = None if inner is None else [_map_place(place, self._root, self._head_root) for place in inner]
        if not Path(origin).is_file():
            raise ModuleNotFoundError(f"No module named {name!r} among the files that the op needs", name=name)
        return importlib.util.spec_from_file_location(name, origin, submodule_search_locations=folders)


def forget(root: Path) -> dict[str, ModuleType]:
    """Take a project's modules out of sys.modules."""
    below = _below(root)
    for name in below:
        del sys.modules[name]
    return below


def forget_others(folder: Path, shared: Path) -> None:
    """Take out modules that an op imported next would find elsewhere. What ops share stays: it may load only once."""
    roots = import_roots(folder, shared)
    for name, module in _below(shared).items():
        top = name.partition(".")[0]
        home = next((root for root in roots if Path(root, f"{top}.py").is_file() or Path(root, top).is_dir()), None)
        # What its name, or its package's, means in that folder.
        meant = [os.path.join(_real(home), file) for file in (top, f"{top}.py")] if home else []  # noqa: PTH118
        if not all(any(_is_inside(_real(place), path) for path in meant) for place in _places(module)):
            del sys.modules[name]


def _below(root: Path) -> dict[str, ModuleType]:
    """Modules with files in a project."""
    modules = sys.modules.copy()  # what the op started may go on importing
    return {name: module for name, module in modules.items() if any(is_of(place, root) for place in _places(module))}


def _places(module: ModuleType) -> list[str]:
    """A module's file, or the folders of a namespace package, which has none."""
    file = getattr(module, "__file__", None)
    return [file] if file else [str(place) for place in getattr(module, "__path__", None) or []]


@functools.cache  # asked of every module, some thousands with torch, for every op
def is_of(place: str, root: Path) -> bool:
    """Whether a file or folder belongs to a project: it is neither installed in an environment inside it, nor ours."""
    real, home = _real(place), _real(str(root))
    inside = _is_inside(real, home) and not _is_inside(real, _OURS)
    return inside and INSTALLED.isdisjoint(real[len(home) :].split(os.sep))  # noqa: PTH206


# Both take texts: a Path for each of some thousands of modules would take as long as a small op.


@functools.cache
def _real(place: str) -> str:
    """The place with every link followed, folder by folder, so that those above many files are looked at once."""
    folder, name = os.path.split(place)
    if not folder.startswith(os.sep) or name in {"", ".", ".."} or os.path.islink(place):  # noqa: PTH114
        return os.path.realpath(place)
    return os.path.join(_real(folder), name)  # noqa: PTH118


def _is_inside(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _map_path(root: Path, head_root: Path) -> None:
    """Replace every folder of head's project in sys.path by the base's."""
    sys.path[:] = [_map_place(entry, root, head_root) for entry in sys.path]


def _map_place(place: str, root: Path, head_root: Path) -> str:
    return str(root / _real(place)[len(_real(str(head_root))) :].lstrip(os.sep)) if is_of(place, head_root) else place
