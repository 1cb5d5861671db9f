"""perfci's source files, parsed once a process for all tests that look at them; no one changes a tree."""

import ast
import functools
import gc
from pathlib import Path

import perfci

PACKAGE = Path(perfci.__file__).parent


def files() -> list[Path]:
    """Every module."""
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every module by its file. The garbage collector need not look through them: it takes twice as long as parsing."""
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files()}
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node of these trees and all below it."""
    return tuple(ast.walk(node))
