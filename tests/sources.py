"""perfci's own source files, parsed once a process for all tests that look at them; nobody changes a tree."""

import ast
import functools
from pathlib import Path

import perfci

PACKAGE = Path(perfci.__file__).parent


def files() -> list[Path]:
    """Every module, without the demo project, whose files belong to an op."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "demo_project" not in path.parts]


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every module by its file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files()}
