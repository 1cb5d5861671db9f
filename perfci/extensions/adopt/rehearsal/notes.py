"""Faults of kernels that no small case shows: read off their text, and off launches of sizes that have no memory."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from perfci.core.model import Reason
from perfci.extensions.adopt.rehearsal.axes import Form
from perfci.extensions.adopt.rehearsal.dry_torch import SketchLaunch

MOST_PROGRAMS = 65535  # of a launch along its second and third axis, by CUDA
MOST_ELEMENTS = 1 << 20  # of a block, by Triton

_HUGE = 1 << 24  # size of an axis that a real tensor may have


def find_faults(form: Form, op: str) -> Iterator[Reason]:
    """Yields what a kernel does wrong for larger tensors than a check has, or while its configurations are timed."""
    small: dict[str, Any] = {axis: form.little.get(axis, 2) for axis in form.axes}
    # Integers of 32 bits overflow where those of 64 bits do not.
    thin = replace(form, inputs={name: text.replace("int64", "int32") for name, text in form.inputs.items()})
    form = thin if thin.try_case(small) else form
    first = form.try_case(small)
    if first is None or form.is_ragged:
        return
    for axis in form.axes:
        # Others stay small, or a tensor could not lie in memory.
        done = form.try_case(small | {axis: _HUGE}, alone=True)
        yield from _compare_launches(op, axis, first.launches, done.launches if done else ())
    kernels = {launch.source: launch for launch in first.launches}
    for launch in kernels.values():
        reader, other = (_Reader(launch.source, launch.units, whole) for whole in (frozenset[str](), launch.thin))
        loaded = {product for product in other.narrow if product not in reader.narrow}
        if reader.narrow:
            yield Reason("look_narrow", {"kernel": reader.name, "products": ", ".join(reader.narrow)})
        if loaded:
            facts = {"arguments": ", ".join(sorted(launch.thin & other.read)), "products": ", ".join(sorted(loaded))}
            yield Reason("look_narrow_loaded", {"kernel": reader.name, **facts})
        read, written = ({launch.twins.get(name, name) for name in side} for side in (reader.read, reader.written))
        if launch.searched and (lost := (read & written) - {launch.twins.get(name, name) for name in launch.restored}):
            yield Reason("look_unrestored", {"kernel": reader.name, "arguments": ", ".join(sorted(lost))})


def _compare_launches(
    op: str, axis: str, before: tuple[SketchLaunch, ...], after: tuple[SketchLaunch, ...]
) -> Iterator[Reason]:
    """Yields the limits that launches reach as one axis grows."""
    if len(before) != len(after):
        return
    for small, large in zip(before, after, strict=True):
        facts: dict[str, Any] = {"op": op, "axis": axis, "kernel": _Reader(small.source).name}
        for number in (1, 2):
            if large.grid[number] > MOST_PROGRAMS:
                first = _HUGE * MOST_PROGRAMS // large.grid[number] + 1
                yield Reason("look_grid", {**facts, "size": first, "number": number, "most": MOST_PROGRAMS})
        grown = {name for name, value in large.constants.items() if value != small.constants.get(name)}
        blocks = {name for name in grown if re.search(rf"\btl\.arange\(0, *{name}\b", small.source)}
        wide = [name for name in blocks if type(large.constants[name]) is int and large.constants[name] > MOST_ELEMENTS]
        if wide:
            yield Reason("look_block", {**facts, "constant": wide[0], "most": MOST_ELEMENTS})
        is_alike = small.grid == large.grid and not grown
        if is_alike and len(before) == 1 and not re.search(r"(?m)^\s+(for|while)\b", small.source):
            yield Reason("look_bound", facts)


class _Reader:
    """What a kernel's text shows: the pointers that it reads and writes, and products of its indices."""

    def __init__(self, source: str, units: frozenset[str] = frozenset(), thin: frozenset[str] = frozenset()) -> None:
        """thin: pointers to integers of 32 bits."""
        self.read, self.written, self._thin = set[str](), set[str](), thin
        self.narrow: list[str] = []  # products that are added to a pointer in 32 bits
        (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        self.name = function.name
        takes = [*function.args.args, *function.args.kwonlyargs]
        self._roots: dict[str, str] = {one.arg: one.arg for one in takes}
        fixed = {one.arg for one in takes if one.annotation and "constexpr" in ast.unparse(one.annotation)}
        self._constants = fixed | units
        self._indices = set[str]()  # names of what is made of numbers of programs, or loaded, in 32 bits
        self._products = dict[str, list[str]]()  # such a name -> the products with a stride in it
        for node in sorted(ast.walk(function), key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                for name, part in zip(names, value.elts if isinstance(value, ast.Tuple) else [value], strict=False):
                    self._assign(ast.unparse(name), part)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add):
                self._add(node)

    def _assign(self, name: str, value: ast.expr) -> None:
        text = ast.unparse(value)
        if root := self._find_root(value):
            self._roots[name] = root
        loads = [node for node in ast.walk(value) if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load"]
        is_whole = any(self._find_root(load.args[0]) in self._thin for load in loads if load.args)
        is_made = not loads and ("tl.program_id(" in text or _list_names(value) & self._indices)
        if "int64" not in text and (is_made or is_whole or (loads and ".to(tl.int32)" in text)):
            self._indices.add(name)
            self._products[name] = [] if loads else self._list_products(value)
        elif "int64" in text:
            self._indices.discard(name)
            self._products.pop(name, None)

    def _call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        places = {"tl.load": (self.read,), "tl.store": (self.written,), "tl.atomic_add": (self.read, self.written)}
        if called in places and node.args and (root := self._find_root(node.args[0])):
            for place in places[called]:
                place.add(root)

    def _add(self, node: ast.BinOp | ast.AugAssign) -> None:
        """Notes a product of a program's number and a stride that is added to a pointer."""
        value = node.right if isinstance(node, ast.BinOp) else node.value
        base = node.left if isinstance(node, ast.BinOp) else node.target
        if not self._find_root(base) or "int64" in ast.unparse(value):
            return
        self.narrow += [product for product in self._list_products(value) if product not in self.narrow]

    def _list_products(self, value: ast.expr) -> list[str]:
        """The products of what depends on a program's number and of a size or stride."""
        products = list[str]()
        for part in ast.walk(value):
            if isinstance(part, ast.Name):
                products += self._products.get(part.id, [])
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    is_stride = isinstance(other, ast.Name) and other.id not in self._indices | self._constants
                    products += [ast.unparse(part)] if is_stride and _list_names(one) & self._indices else []
        return products

    def _find_root(self, value: ast.expr) -> str | None:
        """The parameter that a pointer begins with."""
        while isinstance(value, ast.BinOp):
            value = value.left
        if isinstance(value, ast.Call) and value.args and "ptr" in ast.unparse(value.func):
            return self._find_root(value.args[0])
        return self._roots.get(value.id) if isinstance(value, ast.Name) else None


def _list_names(value: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
