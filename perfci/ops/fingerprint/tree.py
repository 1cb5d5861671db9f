"""Finds the files that each op of a project needs, from import to import."""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.core.files import open_regular, read_regular
from perfci.core.model import Fact, Reason
from perfci.ops.backends import BACKENDS, find_kernel, is_kernel, name_of
from perfci.ops.fingerprint.finder import Finder, is_compiled
from perfci.ops.fingerprint.source import Import, Source, list_includes, read

_C = (".cu", ".cuh", ".h", ".hh", ".hpp", ".inl", ".c", ".cc", ".cpp", ".cxx")
IMPORT_ROOTS = (".", "src")  # folders of a project from which it is imported, besides those of the op and of all ops


@dataclass(frozen=True)
class Fingerprint:
    """The files that an op needs, as of one revision."""

    digest: str  # of names and contents, SHA-256 in hexadecimal
    files: Mapping[str, str]  # path from the project's root -> SHA-256 of the content
    late_imports: tuple[str, ...] = ()
    """`file:line module` of each module of the project that is imported inside a function, while the op runs"""
    late_in_suites: tuple[str, ...] = ()  # those in what suites need without a kernel, such as the reference
    of_kernel: frozenset[str] = frozenset()  # Python outside of the kernels folder that suites without it do not need
    opaque: Reason | None = None  # why there may be more files than these

    def same_as(self, other: Fingerprint) -> bool:
        """Returns whether both certainly run the same code."""
        return self.opaque is None and other.opaque is None and self.digest == other.digest

    def changed_files(self, other: Fingerprint) -> tuple[str, ...]:
        """Returns the files that differ, or that only one of the two needs, by name."""
        return tuple(sorted({name for name, _ in self.files.items() ^ other.files.items()}))


class Tree:
    """One state of a project's files. Each is read once, so they must not change while it is in use.

    Modules are looked for as Python would. Packages installed from elsewhere belong to the toolchain. Files that are no
    Python count too: the op's, those in the kernels folder outside of ops, beside imported modules, or named in full;
    and headers that C++ of these includes.
    """

    def __init__(self, root: Path, kernels: Path) -> None:
        self._root = posixpath.abspath(root)
        self._kernels = posixpath.abspath(kernels)
        self._finder = Finder(self._root, self._kernels)
        self._shared = self._finder.list_shared()
        self._digests: dict[str, str] = {}
        self._sources: dict[str, Source] = {}

    def fingerprint(self, op: str) -> Fingerprint:
        """Returns an op's fingerprint; an opaque one without files if the tree has no such op."""
        folder = self._finder.ops.get(op)
        if folder is None:
            missing = Reason("op_not_in_tree", {"op": op, "folder": self._name(self._kernels)})
            return Fingerprint(_digest({}), {}, opaque=missing)
        paths, code = self._find_needed(op, folder)
        files = {self._name(path): self._content(path) for path in paths}
        late, kernels = _list_late(code), {path for path in code if is_kernel(posixpath.basename(path), op)}
        suite_files = (f"{folder}/{name_of(op)}_{suite}.py" for suite in ("accuracy", "performance"))
        suites = self._closure(folder, paths.intersection(suite_files), kernels)
        needed = {*suites, *(path for needs in suites.values() for path in needs.data)}
        whole = not any(needs.opaque for needs in suites.values())
        of_kernel = {path for path in code.keys() - needed if whole and not path.startswith(f"{self._kernels}/")}
        opaque = next((code[path].opaque for path in sorted(code) if code[path].opaque), None)
        in_suites = _list_late(suites)
        return Fingerprint(_digest(files), files, late, in_suites, frozenset(map(self._name, of_kernel)), opaque)

    def list_files(self, op: str) -> frozenset[str] | None:
        """Returns the paths of the files that an op's fingerprint counts. None if there may be more."""
        folder = self._finder.ops.get(op)
        paths, code = self._find_needed(op, folder) if folder else (frozenset(), {})
        return None if not folder or any(needs.opaque for needs in code.values()) else paths

    def _find_needed(self, op: str, folder: str) -> tuple[frozenset[str], dict[str, _Needs]]:
        """Returns the paths of all files that an op needs, and what each Python file among them needs."""
        # A page about the op, the logbook of its rounds, other backends: they count only if its code names them.
        name, kernel = name_of(op), str(find_kernel(op, Path(folder)))
        others = {f"{folder}/{name}_{backend}.py" for backend in BACKENDS} - {kernel}
        op_files = {*self._finder.below(folder, hidden=True)} - others
        op_files -= {f"{folder}/{name}.md", f"{folder}/optimization.jsonl"}
        code = self._closure(folder, op_files)
        paths = op_files | code.keys() | {path for needs in code.values() for path in needs.data} | {*self._shared}
        paths |= self._find_headers(paths, code)
        for path in filter(self._finder.leads_out, paths):
            code[path] = _Needs(opaque=Reason("folder_elsewhere", {"file": self._name(path)}))
        return frozenset(paths), code

    def _find_headers(self, paths: Iterable[str], code: dict[str, _Needs]) -> set[str]:
        """Returns the project's files that C++ in these may include. What a macro names is noted in `code`."""
        headers, waiting = set[str](), [path for path in paths if path.endswith((".py", *_C))]
        while waiting:
            path = waiting.pop()
            for name, line in self._list_includes(path):
                if not name:
                    facts: dict[str, Fact] = {"file": self._name(path), "line": line, "what": "#include"}
                    code[path] = _Needs(opaque=Reason("native_unknown", facts))
                # A path is from the file's folder or from any that the compiler is given.
                tail = "/" + posixpath.normpath(f"/{name}").lstrip("/")
                named = {header for header in self._headers if name and header.endswith(tail)}
                waiting += named - headers
                headers |= named
        return headers

    @functools.cached_property
    def _headers(self) -> frozenset[str]:
        """The files of the project that C++ may include, since options of its compiler choose where it looks."""
        return frozenset(path for path in self._finder.below(self._root) if "/site-packages/" not in path)

    def _list_includes(self, path: str) -> tuple[tuple[str, int], ...]:
        if path in self._sources:
            return self._sources[path].includes
        try:
            return list_includes(read_regular(Path(path).resolve())) if _is_regular(path) else ()
        except OSError:
            return ()

    def list_code(self, op: str, file: Path) -> tuple[str, ...]:
        """Returns the Python files that one of an op's files needs, itself included, by name."""
        code = self._closure(self._finder.ops[op], [posixpath.abspath(file)])
        return tuple(sorted(map(self._name, code)))

    def _closure(self, folder: str, files: Iterable[str], without: Collection[str] = ()) -> dict[str, _Needs]:
        """Returns what each Python file of the op needs, and each that it imports, but those that are left out."""
        roots = []
        while folder.startswith(f"{self._kernels}/"):
            roots.append(folder)
            folder = posixpath.dirname(folder)
        roots += [self._kernels, *(posixpath.normpath(f"{self._root}/{import_root}") for import_root in IMPORT_ROOTS)]
        closure: dict[str, _Needs] = {}
        todo = [path for path in files if path.endswith(".py") or is_compiled(path)]
        while todo:
            path = todo.pop()
            if path not in closure and path not in without:
                closure[path] = self._needs(path, tuple(roots))
                todo += closure[path].code
        return closure

    def _needs(self, path: str, roots: tuple[str, ...]) -> _Needs:
        if is_compiled(path):
            return _Needs(opaque=Reason("module_compiled", {"file": self._name(path)}))
        if path not in self._sources:
            try:
                self._sources[path] = read(read_regular(Path(path).resolve()) if _is_regular(path) else b"")
            except OSError as error:
                unreadable = Reason("source_unreadable", {"file": None, "why": error.strerror or str(error)})
                self._sources[path] = Source(opaque=unreadable)
        source, folder = self._sources[path], posixpath.dirname(path)
        imports = [(entry, self._import_files(entry, folder, roots)) for entry in source.imports]
        beside = () if folder in roots else self._finder.data(folder)
        opaque = source.opaque
        return _Needs(
            code={file for _, files in imports for file in files},
            data={*beside, *self._named_files(source, folder)},
            late={f"{self._name(path)}:{entry.line} {entry}" for entry, files in imports if files and entry.late},
            opaque=Reason(opaque.kind, {**opaque.facts, "file": self._name(path)}) if opaque else None,
        )

    def _import_files(self, statement: Import, folder: str, roots: tuple[str, ...]) -> list[str]:
        """Returns the project's files that an import may run."""
        for _ in range(statement.level - 1):
            folder = posixpath.dirname(folder)
        if statement.level:
            roots = (folder,)
        if statement.module:
            files, folders = self._finder.module(statement.module, roots)
        else:  # from . import name
            inside = "__init__.py" in self._finder.listing(folder).files
            files, folders = [f"{folder}/__init__.py"] if inside else [], [folder]
        paths = [*files, *self._finder.submodules(statement.names, folders)]
        return [path for path in paths if self._is_inside(path)]

    def _named_files(self, source: Source, folder: str) -> Iterator[str]:
        """Yields the files that the code names in full, from its folder or from one above it."""
        while self._is_inside(f"{folder}/"):
            for text in source.names | source.paths:
                path = posixpath.normpath(f"{folder}/{text}")
                listing = self._finder.listing(posixpath.dirname(path))
                if posixpath.basename(path) in listing.files and self._is_inside(path):
                    yield path
                if text in source.paths and posixpath.basename(path) in listing.folders and self._is_inside(path):
                    yield from self._finder.data(path)
            folder = posixpath.dirname(folder)

    def _content(self, path: str) -> str:
        """Returns a file's digest, or what stands for it: a pipe would never end, a link may lead nowhere."""
        if path not in self._digests:
            try:
                if _is_regular(path):
                    with open_regular(Path(path).resolve()) as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                else:
                    digest = f"no file, mode {Path(path).stat().st_mode:o}"
            except FileNotFoundError:
                link = Path(path).is_symlink()  # else it has gone since it was found
                digest = f"link to {os.fsencode(Path(path).readlink())!r}" if link else "gone"
            except OSError as error:
                digest = f"unreadable: {error.strerror}"
            self._digests[path] = digest
        return self._digests[path]

    def _is_inside(self, path: str) -> bool:
        return path.startswith((f"{self._root}/", f"{self._kernels}/"))

    def _name(self, path: str) -> str:
        """Returns the path from the root, as text that can be stored whatever its bytes are."""
        inside = path.startswith(f"{self._root}/")
        name = path.removeprefix(f"{self._root}/") if inside else posixpath.relpath(path, self._root)
        return os.fsencode(name).decode(errors="backslashreplace")


@dataclass(frozen=True)
class _Needs:
    """The needs of one file by itself."""

    code: Iterable[str] = ()
    data: Iterable[str] = ()
    late: Iterable[str] = ()
    opaque: Reason | None = None


def _digest(files: Mapping[str, str]) -> str:
    lines = (f"{name}\0{content}\n" for name, content in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _list_late(code: Mapping[str, _Needs]) -> tuple[str, ...]:
    return tuple(sorted(name for needs in code.values() for name in needs.late))


def _is_regular(path: str) -> bool:
    return stat.S_ISREG(Path(path).stat().st_mode)
