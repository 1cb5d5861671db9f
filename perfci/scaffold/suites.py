"""The text of `make_inputs` and of the two suites, for ops that are made of something that is there already."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfci.scaffold.new import WIDTH, suite_imports

Case = Mapping[str, str]
"""One case's parameters as text: {"rows": "4096", "dtype": "torch.float16"}"""

ALL_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Suites:
    """What the files say of an op's inputs and cases."""

    op: str
    axes: tuple[str, ...]
    """a case's parameters but for dtype, in order"""
    inputs: Mapping[str, str]
    """argument -> the expression that makes it"""
    dtypes: tuple[str, ...] = ALL_DTYPES
    edges: tuple[Mapping[str, Sequence[int]], ...] = ()
    """grids of the accuracy suite, each over DTYPES"""
    cases: tuple[Case, ...] = ()
    """more cases of the accuracy suite, written out"""
    probe: str = ""
    """the parameters of the probe case, as text"""
    speed: tuple[Case, ...] = ()
    """cases of the performance suite"""
    accuracy: tuple[str, ...] = ()
    """more lines of the accuracy suite"""
    performance: tuple[str, ...] = ()
    """more lines of the performance suite"""
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`inputs`, `accuracy` or `performance` -> comments above its cases, or in make_inputs"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """axis -> type, where it is not int"""
    unless_none: tuple[str, ...] = ()
    """statements before the inputs are returned"""

    @property
    def names(self) -> str:
        """The parameters of a function of a case."""
        return ", ".join([*self.axes, "dtype"])


def make_inputs(suites: Suites) -> str:
    """The function's source."""
    axes = [f"{axis}: {suites.annotations.get(axis, 'int')}" for axis in suites.axes]
    head = fitted(
        "def make_inputs(", [*axes, "dtype: torch.dtype", "device: str", "seed: int"], ") -> dict[str, object]:", ""
    )
    random = any("generator" in make for make in [*suites.inputs.values(), *suites.unless_none])
    body = [
        '"""Inputs of one case by the names of the op\'s arguments; one seed always gives the same values."""',
        *(["generator = torch.Generator(device).manual_seed(seed)"] if random else []),
        *_comments(suites.notes.get("inputs", ()), ""),
        *suites.unless_none,
        "return {",
        *(f'    "{name}": {make},' for name, make in suites.inputs.items()),
        "}",
    ]
    return "\n".join([*head, *textwrap.indent("\n".join(body), "    ").splitlines()]) + "\n"


def accuracy(suites: Suites, about: str) -> str:
    """The accuracy suite's file."""
    covered = [case for axes in suites.edges for case in _points(axes, suites.dtypes)]
    written = grids_of([case for case in suites.cases if dict(case) not in covered])
    grids = [*(_edge(axes) for axes in suites.edges), *written]
    lines = [
        *_comments(suites.notes.get("accuracy", ())),
        "cases=(",
        *(f"    {line}" for grid in grids for line in _wrapped(f"*{grid},", "    ")),
        "),",
        *([f"probe_cases=perfci.grid({suites.probe}, dtype=DTYPES),"] if suites.probe else []),
        *suites.accuracy,
    ]
    dtypes = f"DTYPES = [{', '.join(f'torch.{name}' for name in suites.dtypes)}]"
    return _suite(suites.op, "accuracy", about, lines, f"{dtypes}\n\n")


def performance(suites: Suites, about: str) -> str:
    """The performance suite's file."""
    lines = [
        *_comments(suites.notes.get("performance", ())),
        "cases=(",
        *(f"    {line}" for grid in grids_of(suites.speed) for line in _wrapped(f"*{grid},", "    ")),
        "),",
        *suites.performance,
    ]
    return _suite(suites.op, "performance", about, lines, "")


def grids_of(cases: Sequence[Case]) -> list[str]:
    """The cases as few calls of perfci.grid, each once and in order: one where they are all combinations of values."""
    unique = list({tuple(case.items()): case for case in cases}.values())
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in unique:
        groups.setdefault(tuple(case), []).append(case)
    return [grid for group in groups.values() for grid in _grids(group)]


def fitted(head: str, items: Sequence[str], tail: str, indent: str) -> list[str]:
    """`head item, item tail` on one line where it fits, else an item a line."""
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) + len(indent) <= WIDTH:
        return [line]
    return [head, *(f"    {item}," for item in items), tail]


def times(*names: str) -> str:
    """A product, as text; 1 of nothing."""
    return " * ".join(names) or "1"


def bytes_moved(shapes: Sequence[Sequence[str]], names: str) -> str:
    """A line for tensors of these shapes, each read or written once."""
    products = [times(*shape) for shape in shapes]
    terms = []
    for product in dict.fromkeys(products):
        count = products.count(product)
        terms.append(f"{count} * {product}" if count > 1 else product)
    total = " + ".join(terms)
    return f"bytes_moved=lambda {names}: {f'({total})' if len(terms) > 1 else total} * dtype.itemsize,"


def _points(axes: Mapping[str, Sequence[int]], dtypes: Sequence[str]) -> list[Case]:
    """The cases of a grid over DTYPES."""
    values = [*([str(value) for value in each] for each in axes.values()), [f"torch.{dtype}" for dtype in dtypes]]
    return [dict(zip([*axes, "dtype"], point, strict=True)) for point in itertools.product(*values)]


def _edge(axes: Mapping[str, Sequence[int]]) -> str:
    texts = [f"{axis}=[{', '.join(map(str, each))}]" for axis, each in axes.items()]
    return f"perfci.grid({', '.join([*texts, 'dtype=DTYPES'])})"


def _grids(group: Sequence[Case]) -> list[str]:
    axes = {name: list(dict.fromkeys(case[name] for case in group)) for name in group[0]}
    points = set(itertools.product(*axes.values()))
    if points == {tuple(case.values()) for case in group} and math.prod(map(len, axes.values())) == len(group):
        return [_grid(axes)]
    by_shape: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for case in group:
        shape = tuple((name, value) for name, value in case.items() if name != "dtype")
        by_shape.setdefault(shape, []).append(case.get("dtype", ""))
    return [
        _grid({name: [value] for name, value in shape} | ({"dtype": dtypes} if dtypes[0] else {}))
        for shape, dtypes in by_shape.items()
    ]


def _grid(axes: Mapping[str, Sequence[str]]) -> str:
    texts = [f"{name}=[{', '.join(values)}]" for name, values in axes.items()]
    return f"perfci.grid({', '.join(texts)})"


def _wrapped(line: str, indent: str) -> list[str]:
    """Broken between values where it is too long."""
    if len(line) + len(indent) + 4 <= WIDTH:
        return [line]
    head, inner = line.split("(", 1)
    body = textwrap.wrap(inner.removesuffix("),"), WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    return [f"{head}(", *(f"    {each}" for each in body), "),"]


def _suite(op: str, part: str, about: str, lines: Sequence[str], before: str) -> str:
    imports = suite_imports(op)
    fields = ["kernel=kernel,", "reference=reference,", "make_inputs=make_inputs,", *lines]
    inner = textwrap.indent("\n".join(fields), "    ")
    return (
        f'"""{part.title()} of {op}: {about}"""\n\n'
        f"import perfci\nimport torch\n{imports['import_baseline']}\n{imports['import_triton']}\n\n"
        f"{before}{part} = perfci.{part.title()}(\n{inner}\n)\n"
        f'if __name__ == "__main__":\n    perfci.main({part})\n'
    )


def _comments(texts: Sequence[str], indent: str = "") -> list[str]:
    lines = (textwrap.wrap(text, WIDTH - 6 - len(indent)) for text in texts)
    return [f"# {line}" for each in lines for line in each]
