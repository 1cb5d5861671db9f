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


def list_reached(file: Path) -> Iterator[tuple[Path, Sequence[ast.stmt]]]:
    """Yields a file and those that it imports from, with their statements that define what is reached.

    A file comes again for further names that are imported from it.
    """
    waiting, seen, find = list[_Way]([(file, None)]), dict[Path, set[str] | None](), functools.cache(_find_module)
    read = functools.cache(_read)
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


def _read(file: Path) -> tuple[list[ast.stmt], list[ast.AST]]:
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
        modules = [(None, find(file, one.name, 0)) for one in taken]
    elif isinstance(node, ast.ImportFrom):
        # A name may be a module of the package, or what its __init__ has by this name.
        within = f"{node.module}." if node.module else ""
        modules = [(None, find(file, f"{within}{one.name}", node.level)) for one in taken]
        plain = frozenset(one.name for one in taken)
        modules += [(None if "*" in plain else plain, find(file, node.module or "", node.level))] if taken else []
    yield from ((path, wanted) for wanted, path in modules if path and path != file)


def _find_module(file: Path, name: str, level: int) -> Path | None:
    """The file of a module: beside the importing one, above it, or where Python looks.

    None for torch's, for the standard library's, and for a package that an installed one needs.
    """
    names = name.split(".") if name else []
    installed = "site-packages" in file.parts and bool(names) and names[0] not in file.parts
    if names and not level and (installed or names[0] in FOREIGN or names[0] in sys.stdlib_module_names):
        return None
    above = [*file.parents][level - 1 : level] if level else [*file.parents, *map(Path, sys.path)]
    places = [root.joinpath(inner, *names) for root in above for inner in ("", "src")]
    files = [path for place in places for path in (place.with_suffix(".py"), place / "__init__.py")]
    return next(filter(Path.is_file, files), None)
