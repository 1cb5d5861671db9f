"""perfci's own source files, parsed once a process for all tests that look at them; nobody changes a tree."""

import ast
import functools
from pathlib import Path

import perfci

PACKAGE = Path(perfci.__file__).parent


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every module by its file; the demo project's files are an op's, and no part of the house."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if "demo_project" not in path.parts]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
