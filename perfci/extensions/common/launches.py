"""A launch's arguments by the names that its kernel has for them."""

from collections.abc import Mapping, Sequence
from inspect import Signature
from typing import Any

from perfci.device.launches import pad_grid


def bind_launch(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """A launch's arguments by parameter, defaults included, and its grid. Options of the launch are left out."""
    accepted = {name: value for name, value in kwargs.items() if name in signature.parameters}
    bound = signature.bind(*args, **accepted)
    bound.apply_defaults()
    return bound.arguments, pad_grid(grid(bound.arguments) if callable(grid) else grid)
