"""What an op over several ranks declares, beside `ranks` of its accuracy suite."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.errors import ContractError


@dataclass(frozen=True)
class Traffic:
    """What an op's ranks send each other. `traffic = perfci.Traffic(...)` stands in its performance file.

    `communicate` and `compute` take what `make_inputs` gives, by name, and return a function without arguments. That is
    timed beside kernel and reference, to tell how much of the communication is hidden behind the computation.
    """

    sent: Callable[..., int]
    """`sent(**case, ranks=...)`: bytes that one rank sends to all others together"""
    moved: Callable[..., int] | None = None
    """`moved(**case, ranks=...)`: the least bytes that cross one rank's memory"""
    activations: Callable[..., tuple[int, int, int]] | None = None
    """`activations(**case)`: rows, columns and bytes of an element of what a layer with this op passes on"""
    communicate: Callable[..., Callable[[], Any]] | None = None
    """makes the communication of the reference alone"""
    compute: Callable[..., Callable[[], Any]] | None = None
    """makes the computation of the reference alone, of one rank"""


def list_sizes(ranks: int | Sequence[int]) -> tuple[int, ...]:
    """Sizes of groups that an op is for, ascending. Raises ValueError for anything but whole numbers from 1 on.

    >>> list_sizes(2), list_sizes((4, 2))
    ((2,), (2, 4))
    """
    sizes = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
        raise ValueError(f"ranks is {ranks!r}, but has to be a whole number from 1 on, or several")
    return tuple(sorted({*sizes}))


def bind_rank(make_inputs: Callable[..., Mapping[str, Any]], rank: int, ranks: int) -> Callable[..., Mapping[str, Any]]:
    """Returns make_inputs of one rank. It raises ContractError if make_inputs takes no rank and ranks."""
    try:
        inspect.signature(make_inputs).bind_partial(rank=rank, ranks=ranks)
    except TypeError:
        takes_both = False
    else:
        takes_both = True

    def make(**case: Any) -> Mapping[str, Any]:
        if not takes_both:
            raise ContractError("ranks_untaken")
        return make_inputs(**case, rank=rank, ranks=ranks)

    return make
