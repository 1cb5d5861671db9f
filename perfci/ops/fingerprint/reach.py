"""What a file reaches of those that it imports: definitions by their names, not all that a package imports."""

import ast
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfci.core.files import read_regular
from perfci.ops.fingerprint.finder import FOREIGN

_Way = tuple[Path, frozenset[str] | None]
_Finding = Callable[[Path, str, int], Path | None]
_Places = Callable[[Path], Sequence[tuple[Path, frozenset[str]]]]


def list_reached(file: Path) -> Iterator[tuple[Path, Sequence[ast.stmt]]]:
    """Yields a file and those that it imports from, with their statements that define what is reached.

    A file comes again for further names that are imported from it.
    """
    waiting, seen, read = list[_Way]([(file, None)]), dict[Path, set[str] | None](), functools.cache(_read_again)
    names_in, places = functools.cache(_list_folder), functools.cache(lambda root: _list_places(root, names_in))
    find = functools.cache(functools.partial(_find_module, places))
    while waiting:
        path, wanted = waiting.pop(0)  # the nearest first
        before = seen.setdefault(path, set())
        if before is None or (wanted is not None and wanted <= before):
            continue
        names = None if wanted is None else wanted - before
        seen[path] = None if names is None else before | names
        nodes, more = _follow(path, names, read(path), find)
        waiting += more
        yield path, nodes


def _read_again(file: Path) -> tuple[list[ast.stmt], list[ast.AST]]:
    """As `_read`, which took a second for the files of a large library, and is asked for each op of it."""
    try:
        status = file.stat()
    except OSError:
        return [], []
    return _read(file, (status.st_ino, status.st_size, status.st_ctime_ns))


@functools.lru_cache(maxsize=256)
def _read(file: Path, _state: tuple[int, ...]) -> tuple[list[ast.stmt], list[ast.AST]]:
    """The statements of a file, and its imports, inside functions too."""
    try:
        body = ast.parse(read_regular(file.resolve())).body
    except (OSError, SyntaxError, ValueError):
        return [], []
    parts = (part for node in body for part in ast.walk(node))
    return body, [part for part in parts if isinstance(part, ast.Import | ast.ImportFrom)]


def _follow(
    file: Path, wanted: frozenset[str] | None, read: tuple[list[ast.stmt], list[ast.AST]], find: _Finding
) -> tuple[Sequence[ast.stmt], list[_Way]]:
    """The statements of a file that define these names, with all that they use, and where they import from."""
    body, imports = read
    used, nodes = set(wanted or ()), list[ast.stmt]() if wanted else body
    while wanted and (more := [node for node in body if node not in nodes and used & _list_names(node)]):
        nodes += more
        used |= {part.id for node in more for part in ast.walk(node) if isinstance(part, ast.Name)}
    return nodes, [way for part in imports for way in _list_imports(file, part, None if wanted is None else used, find)]


def _list_names(node: ast.stmt) -> set[str]:
    """The names that a statement defines. Below a condition or a `try` those of all branches."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.If | ast.Try | ast.With):
        return {name for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt) for name in _list_names(part)}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    parts = [part for target in targets if target for part in ast.walk(target)]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _list_imports(file: Path, node: ast.AST, used: set[str] | None, find: _Finding) -> Iterator[_Way]:
    """Yields the files that a statement imports from, with the names that are used of each. None: all of it."""
    aliases = [one for one in getattr(node, "names", ()) if isinstance(one, ast.alias)]
    taken = [
        one for one in aliases if used is None or one.name == "*" or (one.asname or one.name).partition(".")[0] in used
    ]
    modules = list[tuple[frozenset[str] | None, Path | None]]()
    if isinstance(node, ast.Import):
        modules = [(None, find(file.parent, one.name, 0)) for one in taken]
    elif isinstance(node, ast.ImportFrom):
        # A name may be a module of the package, or what its __init__ has by this name.
        within = f"{node.module}." if node.module else ""
        modules = [(None, find(file.parent, f"{within}{one.name}", node.level)) for one in taken]
        plain, package = frozenset(one.name for one in taken), find(file.parent, node.module or "", node.level)
        modules += [(None if "*" in plain else plain, package)] if taken else []
    yield from ((path, wanted) for wanted, path in modules if path and path != file)


def _list_folder(folder: Path) -> frozenset[str]:
    """The names in a folder. Empty if it cannot be read."""
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _list_places(folder: Path, names_in: Callable[[Path], frozenset[str]]) -> Sequence[tuple[Path, frozenset[str]]]:
    """The folders that a module may lie in which a file of this folder imports, and the names in them."""
    roots = [folder, *folder.parents, *map(Path, sys.path)]
    return [(place, names_in(place)) for root in roots for place in (root, root / "src")]


def _find_module(places: _Places, folder: Path, name: str, level: int) -> Path | None:
    """The file of a module that a file of this folder imports: beside that, above it, or where Python looks.

    None for torch's, for the standard library's, and for a package that an installed one needs.
    """
    names = name.split(".") if name else []
    installed = "site-packages" in folder.parts and bool(names) and names[0] not in folder.parts
    if names and not level and (installed or names[0] in FOREIGN or names[0] in sys.stdlib_module_names):
        return None
    every = places(folder)
    above = every[2 * level - 2 : 2 * level] if level else every
    top = {names[0], f"{names[0]}.py"} if names else set[str]()  # a folder without it is passed over
    found = [place.joinpath(*names) for place, listed in above if not names or top & listed]
    files = (path for place in found for path in (place.with_suffix(".py"), place / "__init__.py"))
    return next(filter(Path.is_file, files), None)
