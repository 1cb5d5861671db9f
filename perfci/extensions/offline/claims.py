"""Kernels that several processes compile together, into one cache. The first that comes to one claims it."""

import functools
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.device.source import digest


@dataclass
class _Claims:
    """Those of this process."""

    folder: Path | None = None  # that the processes share. None: this one compiles alone
    leaves: bool = False  # kernels that another process has claimed


_claims = _Claims()


class LeftError(RuntimeError):
    """A kernel is left to another process, so there is none to launch."""


def share(folder: Path) -> None:
    """Claim in a folder what this process compiles from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    _claims.folder = folder


def leave() -> None:
    """From now on compile no kernel that another process has claimed."""
    _claims.leaves = True


def is_left(kernel: str) -> bool:
    """Claim a kernel, by what its compiler knows it by. Returns whether it is another's, and left to that."""
    if _claims.folder is None:
        return False
    try:
        (_claims.folder / digest(kernel)).touch(exist_ok=False)
    except FileExistsError:
        return _claims.leaves
    return False


def watch(place: str) -> None:
    """Have a function that looks for a kept kernel, by its second argument, raise LeftError for one that is left.

    place: `module:function` or `module:class.method`. Raises ImportError or AttributeError if there is none.
    """
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    look_up = getattr(owner, name)

    def look(first: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = look_up(first, key, *args, **kwargs)
        if kernel is None and is_left(str(key)):
            raise LeftError("another process compiles it")
        return kernel

    setattr(owner, name, look)
