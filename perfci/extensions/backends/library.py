"""`perfci.backends` and `perfci.get_kernel`: ops by their names, whatever technology they are written in."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfci.core import settings
from perfci.core.errors import ContractError, UsageError
from perfci.ops.backends import MARK, explain_missing, find_backends
from perfci.ops.discover import select_one
from perfci.worker.load import describe_exception, import_from, project_roots

Project = str | os.PathLike[str] | None


def list_backends(op: str, project: Project = None) -> tuple[str, ...]:
    """The backends that an op has a file of, such as ("triton", "cuda"): first the one that has the op's plain name.

    `project` is a folder of the project; without it the working directory. Nothing is imported. Raises UsageError for
    an op that is not there, with the one that is meant or those that there are.
    """
    where = settings.load(Path(project or Path.cwd()))
    chosen = select_one(where, op)
    return find_backends(chosen.name, chosen.folder)


def get_kernel(op: str, backend: str | None = None, project: Project = None) -> Callable[..., Any]:
    """The function of an op in one of its backends. Without one: in the first.

    >>> perfci.get_kernel("softmax", "cuda")(x)  # doctest: +SKIP

    Its file is imported, once, with the modules that ops share. `project` is a folder of the project; without it the
    working directory. Raises UsageError for an op or backend that is not there, with those that are, and for a backend
    without its package, with what to install. Raises ContractError for a file that does not import, or that has no
    function of the op's name.
    """
    where = settings.load(Path(project or Path.cwd()))
    chosen = select_one(where, op if backend is None else f"{op}{MARK}{backend}")
    kernel, shared = chosen.files[0], where.kernels
    with import_from(chosen.folder, shared):
        sys.path.extend(project_roots(where.root))  # as in a worker, where they come last
        try:
            module = importlib.import_module(kernel.stem)
        except Exception as error:
            failed = ContractError("import_failed", suite=kernel.name, **describe_exception(error, chosen.folder))
            if why := explain_missing(chosen.op, kernel, None, failed.reason):
                raise UsageError(why.kind, **why.facts) from error
            raise failed from error
    if Path(str(getattr(module, "__file__", None))).resolve() != kernel.resolve():
        raise UsageError("kernel_hidden", file=str(kernel), module=kernel.stem, other=str(module.__file__))
    function = getattr(module, chosen.name, None)
    if not callable(function):
        raise ContractError("backend_lacks_function", file=kernel.name, op=chosen.name)
    return function  # type: ignore[no-any-return]
