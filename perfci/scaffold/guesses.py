"""What a suite says where nothing says what an op's users have: sizes around the edges of blocks, and usual ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.ops.spec import VALUES
from perfci.scaffold import suites
from perfci.scaffold.reading import Nature


def edges(axes: Sequence[str], *, product: bool) -> tuple[Mapping[str, Sequence[int]], ...]:
    """Grids of small sizes around the edges of usual blocks."""
    if product:
        points = ([128, 128, 128], [131, 67, 101], [1, 65, 33])
        return tuple({axis: [point[place % 3]] for place, axis in enumerate(axes)} for point in points)
    ahead, last = ([1, 3], [16, 33]) if len(axes) > 2 else ([0, 1, 13], [1, 1023, 1024, 1025])
    return ({axis: last if axis == axes[-1] else ahead for axis in axes},)


def probe(axes: Sequence[str]) -> str:
    """The parameters of one case of a size that no block divides."""
    sizes = [33, 100, 65, 7, 5, 3]
    return ", ".join(f"{axis}=[{sizes[place % len(sizes)]}]" for place, axis in enumerate(axes))


def speed(axes: Sequence[str], kind: Nature, *, product: bool) -> tuple[suites.Case, ...]:
    """Cases of the performance suite where nothing says what users have."""
    dtypes = ["float16", "bfloat16"] if kind.casts or kind.dot else list(kind.dtypes[-1:])
    if not axes:
        points = [list[int]()]
    elif product:
        points = [[2048] * len(axes), [4096] * len(axes)]
    elif len(axes) == 1:
        points = [[1 << 20], [1 << 24], [1 << 27]]
    elif len(axes) == 2:
        points = [[4096, 1024], [4096, 4096], [32768, 4096]]
    else:
        points = [[*([8] * (len(axes) - 2)), 1024, 64], [*([16] * (len(axes) - 2)), 4096, 64]]
    rows = [dict(zip(axes, map(str, point), strict=True)) for point in points]
    return tuple({**row, "dtype": f"torch.{dtype}"} for row in rows for dtype in dtypes)


def accuracy_lines(kind: Nature, names: str, reduced: str | None, *, product: bool) -> Iterator[str]:
    """What the accuracy suite says beside its cases."""
    yield "# Dense inputs alone; leave this line out once the op takes inputs with gaps too."
    yield 'layouts=("contiguous",),'
    if reduced:
        yield f"reduces=lambda {names}: {reduced},"
    if reduced and not product:
        yield "# All but large values: a sum that passes the largest number depends on the order of its terms."
        yield from suites.fitted("values=(", [f'"{each}"' for each in VALUES if each != "large"], "),", "    ")
    if kind.dot:
        yield "uses_dot=True,"
    if kind.atomic:
        yield "deterministic=False,  # it adds atomically"
