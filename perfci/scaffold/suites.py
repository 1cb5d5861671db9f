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
    edges: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    """grids of the accuracy suite, each over DTYPES"""
    cases: tuple[Case, ...] = ()
    """more cases of the accuracy suite, written out"""
    probe: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """the probe case, as a grid over DTYPES"""
    speed: tuple[Case, ...] = ()
    """cases of the performance suite"""
    accuracy: tuple[str, ...] = ()
    """more lines of the accuracy suite"""
    performance: tuple[str, ...] = ()
    """more lines of the performance suite"""
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`inputs`, `accuracy` or `performance` -> comments above its cases, or in make_inputs"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """axis -> type, if it is not int"""


def make_inputs(suites: Suites) -> str:
    """The function's source."""
    axes = [f"{axis}: {suites.annotations.get(axis, 'int')}" for axis in suites.axes]
    head = fitted(
        "def make_inputs(", [*axes, "dtype: torch.dtype", "device: str", "seed: int"], ") -> dict[str, object]:", ""
    )
    random = any("generator" in make for make in suites.inputs.values())
    body = [
        '"""Inputs of one case by the names of the op\'s arguments; one seed always gives the same values."""',
        *(["generator = torch.Generator(device).manual_seed(seed)"] if random else []),
        *_comments(suites.notes.get("inputs", ())),
        "return {",
        *(f'    "{name}": {make},' for name, make in suites.inputs.items()),
        "}",
    ]
    return "\n".join([*head, *textwrap.indent("\n".join(body), "    ").splitlines()]) + "\n"


def accuracy(suites: Suites) -> str:
    """The accuracy suite's file."""
    grids, seen = grids_of(suites.cases), [dict(case) for case in suites.cases]
    for axes in suites.edges:
        points = _points(axes, suites.dtypes)
        fresh = [point for point in points if point not in seen]
        grids += [_edge(axes)] if fresh == points else grids_of(fresh)
        seen += fresh
    lines = [
        *_comments(suites.notes.get("accuracy", ())),
        "cases=(",
        *(f"    {line}" for grid in grids for line in _wrapped(f"*{grid},", "    ")),
        "),",
        *([f"probe_cases={_edge(suites.probe)},"] if suites.probe else []),
        *suites.accuracy,
    ]
    dtypes = f"DTYPES = [{', '.join(f'torch.{name}' for name in suites.dtypes)}]"
    about = "sizes around the ends of its blocks." if suites.edges else "the sizes of its tests."
    return _suite(suites.op, "accuracy", about, lines, f"{dtypes}\n\n")


def performance(suites: Suites) -> str:
    """The performance suite's file."""
    lines = [
        *_comments(suites.notes.get("performance", ())),
        "cases=(",
        *(f"    {line}" for grid in grids_of(suites.speed) for line in _wrapped(f"*{grid},", "    ")),
        "),",
        *suites.performance,
    ]
    return _suite(suites.op, "performance", "name here whose sizes these are.", lines, "")


def grids_of(cases: Sequence[Case]) -> list[str]:
    """The cases as few calls of perfci.grid, each once and in order: one if they are all combinations of values."""
    unique = list({tuple(case.items()): case for case in cases}.values())
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in unique:
        groups.setdefault(tuple(case), []).append(case)
    return [grid for group in groups.values() for grid in _grids(group)]


def fitted(head: str, items: Sequence[str], tail: str, indent: str) -> list[str]:
    """`head item, item tail` on one line if it fits, else an item a line."""
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) + len(indent) <= WIDTH:
        return [line]
    return [head, *(f"    {item}," for item in items), tail]


def _points(axes: Mapping[str, Sequence[str]], dtypes: Sequence[str]) -> list[dict[str, str]]:
    """The cases of a grid over DTYPES."""
    values = [*axes.values(), [f"torch.{dtype}" for dtype in dtypes]]
    return [dict(zip([*axes, "dtype"], point, strict=True)) for point in itertools.product(*values)]


def _edge(axes: Mapping[str, Sequence[str]]) -> str:
    return _grid(axes).removesuffix(")") + ", dtype=DTYPES)"


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
    """Broken between values if it is too long."""
    if len(line) + len(indent) + 4 <= WIDTH:
        return [line]
    head, inner = line.split("(", 1)
    body = textwrap.wrap(inner.removesuffix("),"), WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    return [f"{head}(", *(f"    {each}" for each in body), "),"]


def _suite(op: str, part: str, about: str, lines: Sequence[str], before: str) -> str:
    imports = suite_imports(op)
    fields = ["kernel=kernel,", "reference=reference,", "make_inputs=make_inputs,", *lines]
    inner = textwrap.indent("\n".join(fields), "    ")
    head = "import math\n\n" if any("math.prod" in line for line in lines) else ""
    return (
        f'"""{part.title()} of {op}: {about}"""\n\n'
        f"{head}import perfci\nimport torch\n{imports['import_baseline']}\n{imports['import_triton']}\n\n"
        f"{before}{part} = perfci.{part.title()}(\n{inner}\n)\n"
        f'if __name__ == "__main__":\n    perfci.main({part})\n'
    )


def _comments(texts: Sequence[str]) -> list[str]:
    lines = (textwrap.wrap(text, WIDTH - 6) for text in texts)
    return [f"# {line}" for each in lines for line in each]
