"""What was found out about functions that become an op, and the four files around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from perfci.core.model import Reason
from perfci.scaffold import suites
from perfci.scaffold.new import Draft
from perfci.scaffold.suites import Suites

SHARED = "_sketched"
"""Module beside the ops that calls sketches on devices that they were not written for."""


@dataclass(frozen=True)
class SketchFunction:
    """A function in somebody's own file: the kernel, or the reference."""

    module: str
    """it is imported by this name"""
    call: str
    """the function, as an expression of `source`"""
    arguments: tuple[str, ...]
    """what it is called with"""
    device: str | None = None
    """cuda or npu, if it asks for such a device"""
    hides: bool = False
    """the function hides a Triton kernel that it launches by its own name"""


@dataclass(frozen=True)
class Sketch:
    """All that a rehearsal found out."""

    parameters: tuple[str, ...]
    """of the op's function, with types and defaults"""
    kernel: SketchFunction
    reference: SketchFunction
    suites: Suites
    carried: tuple[Reason, ...] = ()
    left: tuple[Reason, ...] = ()
    look: tuple[Reason, ...] = ()


def draft(op: str, sketch: Sketch, sources: Mapping[str, str]) -> Draft:
    """The op's files. `sources` are the functions' own files, name -> text, which are kept as they are."""
    texts = {
        "triton": _side(op, sketch, sketch.kernel, "the kernel"),
        "baseline": _side(op, sketch, sketch.reference, "what the op means")
        + "\n\n"
        + suites.make_inputs(sketch.suites),
        "accuracy": suites.accuracy(sketch.suites),
        "performance": suites.performance(sketch.suites),
    }
    shared = {}
    if sketch.kernel.device or sketch.reference.device:
        shared[f"{SHARED}.py"] = resources.files("perfci.device").joinpath("sketched.py").read_text(encoding="utf-8")
    return Draft(texts, sketch.look, sketch.left, sketch.carried, own=sources, shared=shared)


def _side(op: str, sketch: Sketch, side: SketchFunction, about: str) -> str:
    """`<op>_triton.py`, or `<op>_baseline.py` without make_inputs."""
    name = side.call.removeprefix("source.").removesuffix("()")
    own = side.call.startswith("source.")
    lines = [f'"""{op}: {about}, {name}{f" of {side.module} as it is" if own else ""}."""', "", "import torch"]
    imported = f"import {side.module} as source" if own else f"import {side.module}"
    lines += ["", f"import {SHARED}"] if side.device else []
    call = side.call
    if side.hides:
        lines += ["", f"with {SHARED}.kernels() as hidden:", f"    {imported}"]
    elif side.module != "torch":
        lines += [*([] if side.device else [""]), imported]
    if side.device:
        more = ", hidden" if side.hides else ""
        lines += ["", f'_call = {SHARED}.wrapped({side.call}, "{side.device}"{more})']
        call = "_call"
    elif call.endswith(")"):
        lines += ["", f"_call = {call}"]
        call = "_call"
    head = suites.fitted(f"def {op}(", sketch.parameters, "):", "")
    body = suites.fitted(f"return {call}(", side.arguments, ")", "    ")
    lines += ["", "", *head, *(f"    {line}" for line in body)]
    return "\n".join(lines) + "\n"
