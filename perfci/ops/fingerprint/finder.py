"""Where Python would find a module among a project's files, without asking Python; and what else lies there."""

import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.ops.backends import BACKENDS, list_keys

FOREIGN = frozenset({"perfci", "torch", "torch_npu", "triton", "numpy", "scipy", "pytest"})
"""Never looked for in folders that are no usual import root."""

PARTS = ("triton", "baseline", "accuracy", "performance")
"""An op's four files are `<op>_<part>.py` in a folder of the op's name. For Triton any of BACKENDS may stand."""

COPIED = "_COPIED"
"""Name in an op's files of kernel and reference: path of a file that it has a copy of -> digest of the file then"""

_NO_DATA = (".py", ".md", ".rst")
_CACHED = re.compile(r"\.pyc(\.\d+)?")  # which no worker reads from a `__pycache__`


@dataclass(frozen=True)
class Listing:
    """A folder's entries, links followed."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    @property
    def has_code(self) -> bool:
        """Whether Python files of the user's lie there."""
        return any(name.endswith(".py") and _is_plain(name) for name in self.files)


class Finder:
    """A tree's folders, each read once; paths are texts, since pathlib would take most of the time."""

    def __init__(self, root: str, kernels: str) -> None:
        self._root = root
        self._kernels = kernels
        self._listings: dict[str, Listing] = {}
        self._elsewhere: dict[str, str | None] = {}
        folders = op_folders(kernels, self.listing)
        self.ops = {key: folder for folder in folders for key in list_keys(Path(folder))}
        """the folder of every backend of an op, by its key"""

    def listing(self, folder: str) -> Listing:
        """Returns what is in a folder, with links out of the project as files. Nothing for what cannot be read."""
        if folder not in self._listings:
            try:
                self._listings[folder] = list_inside((self._root, self._kernels), folder)
            except OSError:
                self._listings[folder] = Listing()
        return self._listings[folder]

    def leads_out(self, path: str) -> bool:
        """Whether a path is a link to a folder outside of the project, which may be all of the machine."""
        return _leads_out((self._root, self._kernels), path)

    def list_shared(self) -> list[str]:
        """Returns what is neither an op's nor Python nor a document in the kernels folder."""
        ops, files, waiting = {*self.ops.values()}, list[str](), [self._kernels]
        while waiting:
            folder = waiting.pop()
            files += [f"{folder}/{name}" for name in self.listing(folder).files]
            for name in self.listing(folder).folders:
                path = f"{folder}/{name}"
                if name.startswith("_"):
                    files += self.below(path)
                elif _is_plain(name) and path not in ops:
                    waiting.append(path)
        return [path for path in files if not path.endswith(_NO_DATA)]

    def below(self, folder: str, above: frozenset[object] = frozenset(), *, hidden: bool = False) -> Iterator[str]:
        """Yields every file but Python's caches; links are followed, but never in a circle.

        hidden: those in hidden folders too, which may be a repository or an environment if the folder is not an op's.
        """
        listing, real = self.listing(folder), _identify(folder)
        if real in above:
            return
        cache = posixpath.basename(folder) == "__pycache__"
        yield from (f"{folder}/{name}" for name in sorted(listing.files) if not (cache and _CACHED.search(name)))
        for name in sorted(listing.folders):
            if hidden or name[0] != ".":
                yield from self.below(f"{folder}/{name}", above | {real}, hidden=hidden)

    def data(self, folder: str) -> Iterator[str]:
        """Yields what Python files may read: the files beside them, and those of folders without Python files."""
        for path in self.below(folder):
            inner = posixpath.dirname(path)
            has_code = inner != folder and any(name.endswith(".py") for name in self.listing(inner).files)
            if not has_code and not path.endswith(_NO_DATA):
                yield path

    def module(self, dotted: str, roots: Sequence[str]) -> tuple[list[str], Sequence[str]]:
        """Returns the files that importing a module runs, packages first, and the folders of its submodules."""
        parts = dotted.split(".")
        if parts[0] == "perfci":  # the tool that looks; the same one for both revisions
            return [], ()
        files, folders = self._walk(parts, roots)
        if not files and not folders and (elsewhere := self._find_root_elsewhere(parts[0])):
            files, folders = self._walk(parts, [elsewhere])
        return files, folders

    def submodules(self, names: Sequence[str], folders: Sequence[str]) -> list[str]:
        """Returns the modules that `from package import names` takes. All of them for `*`."""
        wanted = [name for name in names if name != "*"]
        for listing in map(self.listing, folders if "*" in names else ()):
            wanted += [name.removesuffix(".py") for name in listing.files if name.endswith(".py")]
            wanted += listing.folders
        steps = (self._step(name, folders) for name in wanted)
        return [step[0] for step in steps if step and step[0]]

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
            compiled = (file for file in sorted(listing.files) if file.startswith(f"{name}.") and is_compiled(file))
            if file := next(compiled, None):
                return f"{folder}/{file}", ()
        return (None, portions) if portions else None

    def _find_root_elsewhere(self, name: str) -> str | None:
        """A folder of the project that has the module though it is no usual root: where the project installs from."""
        if name in FOREIGN or name in sys.stdlib_module_names:
            return None
        if name not in self._elsewhere:
            inner = (
                f"{self._root}/{folder}" for folder in sorted(self.listing(self._root).folders) if _is_plain(folder)
            )
            steps = ((folder, self._step(name, [folder])) for folder in inner)
            self._elsewhere[name] = next((folder for folder, step in steps if step and step[0]), None)
        return self._elsewhere[name]


def op_folders(
    kernels: str, listing: Callable[[str], Listing], above: frozenset[object] = frozenset(), *, inside: bool = False
) -> Iterator[str]:
    """Yields the folder of every op below the kernels folder, each folder before those inside it.

    An op is a folder with one of its own files, or with other Python files and no op below: its op is broken then.
    Names that begin with `_` or `.` are passed over. inside: of an op, where tools may lie that are none.
    """
    real = _identify(kernels)
    if real in above:
        return
    for name in sorted(filter(_is_plain, listing(kernels).folders)):
        folder = f"{kernels}/{name}"
        owned = _has_own(folder, listing)
        inner = list(op_folders(folder, listing, above | {real}, inside=inside or owned))
        broken = not owned and not inside and listing(folder).has_code
        is_group = any(_has_own(folder, listing) for folder in inner)
        yield from [folder] if owned or (broken and not is_group) else []
        yield from inner if owned or is_group or not broken else []


def _identify(folder: str) -> object:
    """What a folder is, whichever links lead to it."""
    try:
        return os.stat(folder)[1:3]  # noqa: PTH116 - its number and its device
    except OSError:
        return folder


def _has_own(folder: str, listing: Callable[[str], Listing]) -> bool:
    name = posixpath.basename(folder)
    return any(f"{name}_{part}.py" in listing(folder).files for part in (*PARTS, *BACKENDS))


def is_compiled(path: str) -> bool:
    """Returns whether a file is a module without its source."""
    return path.endswith((".so", ".pyd", ".pyc"))


def list_inside(homes: Sequence[str], folder: str) -> Listing:
    """Returns a folder's entries, links out of all of these folders as files. Raises OSError if it cannot be read."""
    with os.scandir(folder) as entries:
        kinds = {entry.name: entry.is_dir() for entry in entries}
    files = frozenset(
        name for name, is_folder in kinds.items() if not is_folder or _leads_out(homes, f"{folder}/{name}")
    )
    return Listing(files, frozenset(kinds) - files)


def _leads_out(homes: Sequence[str], path: str) -> bool:
    if not os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114 - asked of each folder
        return False
    real = os.path.realpath(path)
    return not any(f"{real}/".startswith(f"{os.path.realpath(home)}/") for home in homes)


def _is_plain(name: str) -> bool:
    return name[0] not in "_."
