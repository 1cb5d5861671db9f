"""Where Python would find a module among a project's files, without asking Python; and what else lies there."""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

FOREIGN = frozenset({"perfci", "torch", "torch_npu", "triton", "numpy", "scipy", "pytest"})
"""Never looked for in folders that are no usual import root."""

PARTS = ("triton", "baseline", "accuracy", "performance")
"""An op's four files are `<op>_<part>.py` in a folder of the op's name."""

_EDITORS = ("~", ".orig", ".rej")
_DOCUMENTS = (".md", ".rst")
_COMPILED = (".so", ".pyd", ".pyc")


@dataclass(frozen=True)
class Listing:
    """A folder's entries, links followed."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    compiled: tuple[str, ...] = ()
    """extension modules, and modules whose source is not there"""


class Finder:
    """A tree's folders, each read once; paths are texts, since pathlib would take most of the time."""

    def __init__(self, root: str, kernels: str) -> None:
        self._root = root
        self._kernels = kernels
        self._listings: dict[str, Listing] = {}
        self._op_folders: frozenset[str] | None = None
        self._elsewhere: dict[str, str | None] = {}

    def listing(self, folder: str) -> Listing:
        """Empty for what is no folder or cannot be read."""
        found = self._listings.get(folder)
        if found is None:
            found = self._listings[folder] = _list(folder)
        return found

    def ops(self) -> dict[str, str]:
        """The folder of every op."""
        return {posixpath.basename(folder): folder for folder in self._ops()}

    def shared(self) -> list[str]:
        """All under the kernels folder that is neither an op's nor Python nor a document: limits of devices, say."""
        return [path for path in self._beside_ops(self._kernels) if not path.endswith((".py", *_DOCUMENTS))]

    def below(self, folder: str) -> Iterator[str]:
        """Every file, but what is hidden, an editor's or a cache; links are followed, though never in a circle."""
        yield from self._below(folder, set())

    def data(self, folder: str) -> Iterator[str]:
        """What Python files in a folder may read: the files beside them, and those of folders without Python files."""
        for path in self.below(folder):
            inner = posixpath.dirname(path)
            has_code = inner != folder and any(name.endswith(".py") for name in self.listing(inner).files)
            if not has_code and not path.endswith((".py", *_DOCUMENTS)):
                yield path

    def module(self, dotted: str, roots: Sequence[str]) -> tuple[list[str], Sequence[str]]:
        """The files that importing a module runs, packages first, and the folders of its submodules."""
        parts = dotted.split(".")
        if parts[0] == "perfci":  # the tool that looks; the same one for both revisions
            return [], ()
        files, folders = self._walk(parts, roots)
        if not files and not folders and (elsewhere := self._root_elsewhere(parts[0])):
            files, folders = self._walk(parts, [elsewhere])
        return files, folders

    def package(self, folder: str) -> tuple[list[str], Sequence[str]]:
        """The same of the package that a folder is, for `from . import name`."""
        return [f"{folder}/__init__.py"] if "__init__.py" in self.listing(folder).files else [], [folder]

    def submodules(self, names: Sequence[str], folders: Sequence[str]) -> list[str]:
        """Modules that `from package import names` takes. All of them for `*`."""
        wanted = [name for name in names if name != "*"]
        if "*" in names:
            wanted += [name for folder in folders for name in self._modules(folder)]
        steps = (self._step(name, folders) for name in wanted)
        return [step[0] for step in steps if step and step[0]]

    def _modules(self, folder: str) -> Iterator[str]:
        listing = self.listing(folder)
        yield from (name.removesuffix(".py") for name in listing.files if name.endswith(".py"))
        yield from listing.folders

    def _walk(self, parts: Sequence[str], roots: Sequence[str]) -> tuple[list[str], Sequence[str]]:
        files: list[str] = []
        folders = roots
        for part in parts:
            step = self._step(part, folders)
            if step is None:
                return files, ()
            file, folders = step
            files += [file] if file else []
        return files, folders

    def _step(self, name: str, folders: Sequence[str]) -> tuple[str | None, Sequence[str]] | None:
        """A name's file and the folders of what is below it; a package or module hides a namespace (PEP 420)."""
        portions = []
        for folder in folders:
            listing, path = self.listing(folder), f"{folder}/{name}"
            if name in listing.folders:
                if "__init__.py" in self.listing(path).files:
                    return f"{path}/__init__.py", (path,)
                portions.append(path)
            if f"{name}.py" in listing.files:
                return f"{path}.py", ()
            compiled = next((each for each in listing.compiled if each.startswith(f"{name}.")), None)
            if compiled:
                return f"{folder}/{compiled}", ()
        return (None, portions) if portions else None

    def _root_elsewhere(self, name: str) -> str | None:
        """A folder of the project that has the module though it is no usual root: where the project installs from."""
        if name in FOREIGN or name in sys.stdlib_module_names:
            return None
        if name not in self._elsewhere:
            inner = (f"{self._root}/{each}" for each in sorted(self.listing(self._root).folders) if _is_plain(each))
            self._elsewhere[name] = next((folder for folder in inner if self._has_module(folder, name)), None)
        return self._elsewhere[name]

    def _has_module(self, folder: str, name: str) -> bool:
        return f"{name}.py" in self.listing(folder).files or "__init__.py" in self.listing(f"{folder}/{name}").files

    def _ops(self) -> frozenset[str]:
        if self._op_folders is None:
            self._op_folders = frozenset(op_folders(self._kernels, self.listing))
        return self._op_folders

    def _beside_ops(self, parent: str) -> Iterator[str]:
        listing = self.listing(parent)
        yield from (f"{parent}/{name}" for name in listing.files if _counts(name))
        for name in listing.folders:
            folder = f"{parent}/{name}"
            if name.startswith("_"):
                yield from self.below(folder) if _counts(name) else ()
            elif _is_plain(name) and folder not in self._ops():
                yield from self._beside_ops(folder)

    def _below(self, folder: str, above: set[str]) -> Iterator[str]:
        listing, real = self.listing(folder), os.path.realpath(folder)
        if real in above:
            return
        yield from (f"{folder}/{name}" for name in sorted(listing.files) if _counts(name))
        for name in sorted(listing.folders):
            if _counts(name):
                yield from self._below(f"{folder}/{name}", above | {real})


def op_folders(kernels: str, listing: Callable[[str], Listing]) -> Iterator[str]:
    """The folder of every op below the kernels folder, each folder before those inside it.

    An op is a folder with one of its own four files. So is one with Python files of other names, whose op is broken,
    unless ops with files of their own lie below: then it is a group, and so is a folder without Python files. Names
    that begin with `_` or `.` are passed over; links are followed, though never in a circle.
    """
    return _op_folders(kernels, listing, frozenset(), inside=False)


def _op_folders(
    parent: str, listing: Callable[[str], Listing], above: frozenset[str], *, inside: bool
) -> Iterator[str]:
    """`inside`: of an op, where tools may lie that are none."""
    real = os.path.realpath(parent)
    if real in above:
        return
    for name in sorted(filter(_is_plain, listing(parent).folders)):
        folder = f"{parent}/{name}"
        owned = _has_own(folder, listing)
        inner = list(_op_folders(folder, listing, above | {real}, inside=inside or owned))
        broken = not owned and not inside and _has_code(folder, listing)
        is_group = any(_has_own(each, listing) for each in inner)
        yield from [folder] if owned or (broken and not is_group) else []
        yield from inner if owned or is_group or not broken else []


def _has_own(folder: str, listing: Callable[[str], Listing]) -> bool:
    name = posixpath.basename(folder)
    return any(f"{name}_{part}.py" in listing(folder).files for part in PARTS)


def _has_code(folder: str, listing: Callable[[str], Listing]) -> bool:
    return any(name.endswith(".py") and _is_plain(name) for name in listing(folder).files)


def is_compiled(path: str) -> bool:
    """Whether a file is a module without its source."""
    return path.endswith(_COMPILED)


def list_folder(folder: str) -> Listing:
    """A folder's entries; raises OSError if it cannot be read."""
    with os.scandir(folder) as entries:
        kinds = {entry.name: entry.is_dir() for entry in entries}
    files = frozenset(name for name, is_folder in kinds.items() if not is_folder)
    return Listing(files, frozenset(kinds) - files, tuple(sorted(name for name in files if is_compiled(name))))


def _list(folder: str) -> Listing:
    try:
        return list_folder(folder)
    except OSError:
        return Listing()


def _is_plain(name: str) -> bool:
    return name[0] not in "_."


def _counts(name: str) -> bool:
    """Neither hidden, nor a cache, nor what an editor or a merge left."""
    return name[0] not in ".#" and name != "__pycache__" and not name.endswith(_EDITORS)
