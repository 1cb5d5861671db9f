"""Texts that two revisions share exactly when a value or a function is the same, without torch."""

import ast
import dataclasses
import functools
import hashlib
import inspect
import re
import site
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

DIGITS = 16  # hexadecimal digits of a digest

_OURS = Path(__file__).resolve().parents[1]
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DEPTH = 8


def digest(data: bytes | str) -> str:
    """The first digits of a SHA-256."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:DIGITS]


def artefact(kernel: Any) -> str:
    """Digest of a compiled kernel's device code: cubin, hsaco or what else its backend ends with."""
    binaries = [code for code in kernel.asm.values() if isinstance(code, bytes)]
    return digest(binaries[-1] if binaries else kernel.hash)


def inputs_digest(make_inputs: Callable[..., Any]) -> str:
    """Digest of a function and of what it leads to. Comments do not count, installed packages by their names alone."""
    return digest(function_text(make_inputs))


def function_text(function: Callable[..., Any]) -> str:
    """Everything that `inputs_digest` is taken from."""
    return "\n".join(_function(function, {}))


def stable(value: Any, special: Callable[[Any], str | None] = lambda _: None, depth: int = _DEPTH) -> str:
    """A value as a text without addresses. `special` words kinds of values of its own, and gives None for others."""
    if (text := special(value)) is not None:
        return text
    inner = functools.partial(stable, special=special, depth=depth - 1)
    if depth <= 0:
        return type(value).__qualname__
    if isinstance(value, tuple | list):
        name = type(value).__name__
        return f"{'' if name in {'tuple', 'list'} else name}[{', '.join(map(inner, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{inner(key)}: {inner(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, AbstractSet):
        return "{" + ", ".join(sorted(map(inner, value))) + "}"
    return _describe_single(value, inner)


def _describe_single(value: Any, inner: Callable[[Any], str]) -> str:
    if isinstance(value, FunctionType):
        return f"{value.__qualname__}:{digest(function_text(value))}"
    if isinstance(value, type | ModuleType):
        return value.__name__
    content = value.tobytes() if hasattr(value, "tobytes") and hasattr(value, "dtype") else None
    if isinstance(content, bytes):  # not of what answers to every name, as a stand-in for a package that is missing
        return f"{value.dtype}{value.shape}:{digest(content)}"
    # Not its text, which has all elements of a tensor in it.
    if dataclasses.is_dataclass(value):
        parts = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    elif not _ADDRESS.search(text := repr(value)):
        return text
    elif isinstance(value, functools.partial):
        parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
    else:
        parts = dict(getattr(value, "__dict__", {}))
    return f"{type(value).__qualname__}{inner(parts)}"


@functools.cache  # as a suite is described several times
def source_text(function: FunctionType, code: CodeType) -> str:
    """A function's source as a syntax tree. Its byte code if there is no source, as of some lambdas.

    code: what it runs now. A function whose code is replaced has another source.
    """
    try:
        return tree_text(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, TypeError, SyntaxError):
        return "\n".join(_code(code))


def tree_text(tree: ast.AST) -> str:
    """A syntax tree without positions and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.dump(tree, annotate_fields=False)


def is_own(path: str) -> bool:
    """Whether a source file belongs to the project: neither to Python, nor to an installed package, nor to perfci."""
    return path.endswith(".py") and not is_installed(path) and not Path(path).resolve().is_relative_to(_OURS)


def is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    place = Path(path)
    return not _PACKAGES.isdisjoint(place.parts) or any(place.is_relative_to(folder) for folder in _find_installed())


_PACKAGES = frozenset({"site-packages", "dist-packages"})  # also those that a .pth file or PYTHONPATH adds


def names_used(code: CodeType) -> Iterator[str]:
    """Every name that a function's code looks up by name, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_used(constant)


def plain_function(value: Any) -> FunctionType | None:
    """The Python function inside decorators, Triton's among them, methods and partials. None if there is none."""
    for _ in range(_DEPTH):
        if isinstance(value, FunctionType):
            return inspect.unwrap(value)
        wrapped = ("__wrapped__", "fn", "__func__", "func")
        names = (name for name in wrapped if inspect.getattr_static(value, name, None) is not None)
        value = getattr(value, next(names, ""), None)
    return None


def _function(function: Any, seen: dict[int, Any]) -> Iterator[str]:
    """The texts of a function and of what it leads to, each once. `seen` keeps what it holds alive."""
    plain = plain_function(function)
    if plain is not function:
        yield stable(getattr(function, "args", None)) + stable(getattr(function, "keywords", None))
    if plain is None:
        yield stable(function)
        yield from _follow(type(function), seen)
    elif id(plain) not in seen:
        seen[id(plain)] = plain
        yield source_text(plain, plain.__code__)
        yield from map(stable, (plain.__defaults__, plain.__kwdefaults__))
        reached = dict(inspect.getclosurevars(plain).nonlocals) if plain.__closure__ else {}
        names = set(names_used(plain.__code__)) & plain.__globals__.keys()
        for name, value in sorted((reached | {name: plain.__globals__[name] for name in names}).items()):
            yield name
            yield from _follow(value, seen)


def _follow(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """The value of a global name."""
    function = None if isinstance(value, type) else plain_function(value)
    if function is not None:
        if is_own(function.__code__.co_filename):
            yield from _function(value, seen)
        else:
            yield f"{function.__module__}.{function.__qualname__}"
    elif isinstance(value, ModuleType):
        yield from _module(value, seen)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
        yield from _module(sys.modules.get(value.__module__), seen)
    else:
        yield stable(value)


def _module(module: ModuleType | None, seen: dict[int, Any]) -> Iterator[str]:
    """A whole file of the project, and the project's modules that it imports."""
    path = getattr(module, "__file__", None)
    if module is None or path is None or not is_own(path) or id(module) in seen:
        return
    if not Path(path).is_file():  # torch.ops and its like only claim to have one
        yield module.__name__
        return
    seen[id(module)] = module
    yield tree_text(ast.parse(Path(path).read_bytes()))
    for value in vars(module).values():
        if isinstance(value, ModuleType):
            yield from _module(value, seen)
        elif isinstance(value, FunctionType | type) and value.__module__ != module.__name__:
            yield from _module(sys.modules.get(value.__module__), seen)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _code(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), repr(code.co_names), repr(code.co_varnames))
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else [repr(constant)]


@functools.cache
def _find_installed() -> frozenset[Path]:
    paths = sysconfig.get_paths()
    installed = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(path) for path in (*installed, *site.getsitepackages(), site.getusersitepackages()))
