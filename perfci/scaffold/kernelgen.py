"""`perfci new OP --from-kernelgen DIR`: KernelGen's sketches, read by their syntax and made into an op's four files.

KernelGen writes one folder with files of a stem `<op>_v<N>`: `_triton`, `_baseline`, `_test_<word>_accuracy` and
`_test_<word>_performance`, where the word may be another op's. Kernel and reference keep their text, but for what an op
must not do; inputs, sizes, dtypes and stricter tolerances of the tests become the suites; the rest is listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Reason
from perfci.scaffold import suites
from perfci.scaffold.guesses import accuracy_lines, edges, probe, speed
from perfci.scaffold.kernelgen_files import Callee, kernel_file, reference, reference_file, wrapper
from perfci.scaffold.kernelgen_left import Left, left_of
from perfci.scaffold.new import PARTS, Draft
from perfci.scaffold.reading import Module, closest, dotted, nature, reached, read
from perfci.scaffold.signature import Kind, shapes
from perfci.scaffold.suites import Case, Suites
from perfci.scaffold.walking import MARK, Call, Marker, Tensor, Walk, walk
from perfci.scaffold.wrapped import LOOK

_FILE = re.compile(
    r"(?P<op>[A-Za-z]\w*?)(?:_v(?P<version>\d+))?_"
    r"(?:(?P<plain>triton|baseline)|(?:test_(?:(?P<word>\w+?)_)?)?(?P<test>accuracy|performance))\.py"
)

MOST_ELEMENTS = 1 << 18
"""Largest tensor of an accuracy case: without a GPU more would take Triton's interpreter minutes."""

_REDUCING = frozenset({"sum", "mean", "cumsum", "nansum", "norm", "var", "std", "prod"})
_SHRINKING = frozenset({"sum", "mean", "amax", "amin", "argmax", "argmin", "prod", "norm", "var", "std", "logsumexp"})


@dataclass(frozen=True)
class Sketch:
    """One version of one op in the folder."""

    op: str
    version: int
    files: Mapping[str, Path]
    """part -> file"""
    word: str | None = None
    """in the names of the tests, where it is another op's"""


def convert(op: str, folder: Path, version: int | None) -> Draft:
    """The four files of an op from KernelGen's, with what was carried over and what was not.

    Raises UsageError where the folder has no such files, not this op or version, or not all four of them, and for files
    that Python cannot read.
    """
    sketch, beside = _chosen(op, folder, version)
    modules = {part: read(path) for part, path in sketch.files.items()}
    kernel = wrapper(op, modules["triton"], _taken(modules, "triton"))
    base = reference(op, modules["baseline"], _taken(modules, "baseline"))
    walks = {part: _walked(modules, part, kernel, base) for part in ("accuracy", "performance")}
    made = _Made(op, kernel, base, modules, walks)
    texts, reasons = made.texts()
    return Draft(texts, made.look, (*beside, *reasons), tuple(made.carried))


# --- the folder -------------------------------------------------------------------------------------------------------


def _chosen(op: str, folder: Path, version: int | None) -> tuple[Sketch, list[Reason]]:
    """The op's sketch, and what else lies in the folder."""
    if not folder.is_dir():
        raise UsageError("kernelgen_no_folder", folder=str(folder))
    sketches, strangers = _sketches(folder)
    ops = sorted({each.op for each in sketches})
    if not ops:
        raise UsageError("kernelgen_no_files", folder=str(folder))
    mine = {each.version: each for each in sketches if each.op == op}
    if not mine:
        guess = closest(op, ops)
        kind = "kernelgen_misspelt" if guess else "kernelgen_no_op"
        raise UsageError(kind, op=op, folder=str(folder), guess=guess, known=", ".join(ops))
    chosen = mine.get(max(mine) if version is None else version)
    if chosen is None:
        known = ", ".join(f"{each}" for each in sorted(mine))
        raise UsageError("kernelgen_no_version", op=op, version=version, known=known, folder=str(folder))
    _refuse_half(chosen, mine, folder)
    return chosen, list(_beside(chosen, mine, ops, strangers))


def _sketches(folder: Path) -> tuple[list[Sketch], list[str]]:
    """Every op and version, and files that are none of theirs."""
    found: dict[tuple[str, int], Sketch] = {}
    strangers = []
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match is None or not path.is_file():
            strangers += [path.name] if path.name[0] not in "._" else []
            continue
        key = match["op"], int(match["version"] or 0)
        before = found.get(key, Sketch(*key, {}))
        part = match["plain"] or match["test"]
        word = match["word"] if match["word"] and match["word"] != match["op"] else before.word
        found[key] = replace(before, files={**before.files, part: path}, word=word)
    return list(found.values()), strangers


def _refuse_half(chosen: Sketch, mine: Mapping[int, Sketch], folder: Path) -> None:
    missing = [part for part in PARTS if part not in chosen.files]
    if not missing:
        return
    whole = [str(each.version) for each in mine.values() if len(each.files) == len(PARTS)]
    facts: dict[str, Fact] = {"op": chosen.op, "version": chosen.version, "folder": str(folder)}
    lacking = ", ".join(f"_{part}" for part in missing)
    if whole:
        raise UsageError("kernelgen_half_but", missing=lacking, whole=whole[-1], **facts)
    raise UsageError("kernelgen_half", missing=lacking, **facts)


def _beside(
    chosen: Sketch, mine: Mapping[int, Sketch], ops: Sequence[str], strangers: Sequence[str]
) -> Iterator[Reason]:
    if chosen.word:
        named = ", ".join(chosen.files[part].name for part in ("accuracy", "performance"))
        yield Reason("left_word", {"files": named, "word": chosen.word, "op": chosen.op})
    if others := [f"v{each}" for each in sorted(mine) if each != chosen.version]:
        yield Reason("left_versions", {"op": chosen.op, "version": chosen.version, "others": ", ".join(others)})
    if others := [each for each in ops if each != chosen.op]:
        yield Reason("left_ops", {"ops": ", ".join(others)})
    if strangers:
        yield Reason("left_files", {"files": ", ".join(strangers)})


# --- the tests --------------------------------------------------------------------------------------------------------


def _taken(modules: Mapping[str, Module], part: str) -> list[str]:
    """Names of the kernel's or the reference's file that the tests use, in their order."""
    stem = modules[part].path.stem
    found: list[str] = []
    for test in (modules["accuracy"], modules["performance"]):
        aliases = set()
        for node in ast.walk(test.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == stem:
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                aliases |= {alias.asname or alias.name for alias in node.names if alias.name.split(".")[-1] == stem}
        uses = [node for node in ast.walk(test.tree) if isinstance(node, ast.Attribute)]
        found += [node.attr for node in uses if dotted(node.value) in aliases]
    return list(dict.fromkeys(found))


def _walked(modules: Mapping[str, Module], part: str, kernel: Callee, base: Callee) -> Walk:
    others = {module.path.stem: module for module in modules.values()}
    markers = {
        (kernel.module.path.stem, kernel.name): Marker("kernel", kernel.is_class),
        (base.module.path.stem, base.name): Marker("reference", base.is_class),
    }
    return walk(modules[part], f"test_{part}", others, markers)


@dataclass(frozen=True)
class Seen:
    """One call of the kernel, with its sizes named."""

    texts: Mapping[str, str]
    """argument -> the expression that makes it"""
    shapes: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]
    dtype: str
    line: int

    @property
    def elements(self) -> int:
        """Of the largest tensor."""
        return max((_product(self.sizes, shape) for shape in self.shapes.values()), default=0)

    @property
    def case(self) -> Case:
        """As text."""
        return {**{name: str(size) for name, size in self.sizes.items()}, "dtype": f"torch.{self.dtype}"}


def _product(sizes: Mapping[str, int], shape: Sequence[str]) -> int:
    total = 1
    for name in shape:
        total *= sizes.get(name, 1)
    return total


def _seen(call: Call, kernel: Callee) -> Seen | None:
    """None where an argument that the kernel needs could not be told."""
    names = [each.name for each in kernel.found]
    given = dict(zip(names, call.arguments, strict=False)) | dict(call.keywords)
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    plain = {
        name: repr(value) for name, value in given.items() if value is None or isinstance(value, int | float | str)
    }
    needed = {each.name for each in kernel.found if each.given}
    if not tensors or not needed <= tensors.keys() | plain.keys():
        return None
    floats = [each.dtype for each in tensors.values() if "float" in each.dtype]
    dtype = (floats or [next(iter(tensors.values())).dtype])[0]
    sizes = {name: size for value in tensors.values() for name, size in value.sizes.items()}
    if any(sizes[name] != size for value in tensors.values() for name, size in value.sizes.items()):
        return None
    names_of = _named(tensors, sizes)
    marked = {name: _unmarked(value.text, names_of, dtype) for name, value in tensors.items()}
    texts = {name: ast.unparse(ast.parse(text, mode="eval")) for name, text in marked.items()}  # fewer brackets
    dims = {name: tuple(_unmarked(each, names_of, dtype) for each in value.shape) for name, value in tensors.items()}
    ordered = {name: (texts | plain)[name] for name in names if name in texts | plain}
    return Seen(ordered, dims, sizes, dtype, call.line)


_USUAL = {1: ("size",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols")}


def _named(tensors: Mapping[str, Tensor], sizes: dict[str, int]) -> dict[int, str]:
    """Names for sizes that the test writes as numbers; equal numbers are one size. They are added to `sizes`."""
    names: dict[int, str] = {}
    for tensor in tensors.values():
        usual = _USUAL.get(len(tensor.shape), tuple(f"d{place}" for place in range(len(tensor.shape))))
        for text, name in zip(tensor.shape, usual, strict=True):
            if MARK not in text:
                continue
            value = int(text.strip(MARK))
            known = next((each for each, size in reversed(sizes.items()) if size == value), None)
            # A square's sides are two sizes; only another tensor's equal one is the same.
            if known is None or (tensor is next(iter(tensors.values())) and known in usual):
                own = name
                while own in sizes:
                    own = f"{own}_"
                sizes[own] = value
                names.setdefault(value, own)
                names[value] = own
            else:
                names[value] = known
    return names


def _unmarked(text: str, names: Mapping[int, str], dtype: str) -> str:
    """Sizes and dtypes by their names; the case's own dtype is `dtype`."""
    text = text.replace(f"{MARK}torch.{dtype}{MARK}", "dtype")
    text = re.sub(f"{MARK}(\\d+){MARK}", lambda match: names.get(int(match[1]), match[1]), text)
    return text.replace(MARK, "")


def _aligned(first: Seen, other: Seen) -> Seen | None:
    """The other call in the first one's names; None where the tensors do not match."""
    if first.shapes.keys() != other.shapes.keys():
        return None
    mapping: dict[str, str] = {}
    for name, shape in first.shapes.items():
        theirs = other.shapes[name]
        if len(shape) != len(theirs):
            return None
        for ours, each in zip(shape, theirs, strict=True):
            if mapping.setdefault(each, ours) != ours:
                return None
    sizes = {ours: other.sizes[each] for each, ours in mapping.items() if each in other.sizes}
    if sizes.keys() != first.sizes.keys():
        return None
    ordered = {name: sizes[name] for name in first.sizes}
    texts = {name: _renamed(text, mapping) for name, text in other.texts.items()}
    return Seen(texts, first.shapes, ordered, other.dtype, other.line)


def _renamed(text: str, mapping: Mapping[str, str]) -> str:
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda match: mapping.get(match[0], match[0]), text)


# --- the four files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cases:
    """What the tests' calls become."""

    first: Seen
    accuracy: list[Seen]
    performance: list[Seen]
    reasons: list[Reason]
    guessed: bool = False
    """neither test could be followed"""


class _Made:
    """The conversion of one sketch."""

    def __init__(
        self, op: str, kernel: Callee, base: Callee, modules: Mapping[str, Module], walks: Mapping[str, Walk]
    ) -> None:
        self._op = op
        self._kernel = kernel
        self._base = base
        self._modules = modules
        self._walks = walks
        self._nature = nature(reached(kernel.module, kernel.name) or list(kernel.module.jitted))
        self._cases = self._gathered()
        self._left = {part: self._left_of(part) for part in walks}
        self.look: tuple[Reason, ...] = tuple(self._looked())
        self.carried = [*self._came(), *(reason for each in self._left.values() for reason in each.carried)]

    def texts(self) -> tuple[dict[str, str], list[Reason]]:
        """The files, and all that is not in them."""
        kernel, first = kernel_file(self._op, self._kernel)
        base, second = reference_file(self._op, self._base, self._kernel.found)
        made = self._suites()
        about = "the sketch's own sizes, and those around the edges of usual blocks."
        texts = {
            "triton": kernel,
            "baseline": base + suites.make_inputs(made),
            "accuracy": suites.accuracy(made, about),
            "performance": suites.performance(made, "the sketch's own sizes."),
        }
        rest = [reason for each in self._left.values() for reason in each.reasons]
        return texts, [*first, *second, *self._cases.reasons, *rest]

    # --- cases

    def _gathered(self) -> _Cases:
        found = {part: self._calls(part) for part in self._walks}
        seen = [*found["accuracy"], *found["performance"]]
        reasons = [self._reason("left_inputs", part) for part, calls in found.items() if not calls]
        reasons += [self._reason("left_cut", part) for part, each in self._walks.items() if each.cut]
        if not seen:
            return _Cases(self._from_signature(), [], [], reasons, guessed=True)
        first = seen[0]
        accuracy, more = self._fitting(first, found["accuracy"], "accuracy")
        performance, others = self._fitting(first, found["performance"], "performance")
        small = [each for each in accuracy if each.elements <= MOST_ELEMENTS]
        large = [each for each in accuracy if each.elements > MOST_ELEMENTS]
        reasons += more + others + [self._case_reason("left_large", "accuracy", each) for each in large]
        return _Cases(first, small, performance, reasons)

    def _calls(self, part: str) -> list[Seen]:
        found = (_seen(call, self._kernel) for call in self._walks[part].calls)
        unique: dict[tuple[object, ...], Seen] = {}
        for each in found:
            if each is not None:
                unique.setdefault((*each.case.items(), *each.texts.items()), each)
        return list(unique.values())

    def _fitting(self, first: Seen, calls: Sequence[Seen], part: str) -> tuple[list[Seen], list[Reason]]:
        kept, reasons = [], []
        for each in calls:
            aligned = _aligned(first, each)
            if aligned is None:
                reasons.append(self._case_reason("left_case", part, each))
                continue
            kept.append(aligned)
            if aligned.texts != first.texts and not any(reason.facts.get("line") == each.line for reason in reasons):
                reasons.append(self._case_reason("left_other_inputs", part, each))
        return kept, reasons

    def _from_signature(self) -> Seen:
        """Shapes from the kernel's own wrapper, where no test could be followed."""
        node = self._kernel.node
        functions = (each for each in ast.walk(node) if isinstance(each, ast.FunctionDef))
        function = next((each for each in functions if each.name in {"forward", "__call__", node.name}), None)
        tensors = [each.name for each in self._kernel.found if each.kind is Kind.TENSOR and each.given]
        dims = shapes(function, tensors, product=self._nature.dot and len(tensors) == 2) if function else {}
        texts = {
            name: f"torch.randn(({', '.join(shape)},), generator=generator, dtype=dtype, device=device)"
            for name, shape in dims.items()
        }
        texts |= {each.name: each.value() for each in self._kernel.found if each.given and each.name not in texts}
        ordered = {each.name: texts[each.name] for each in self._kernel.found if each.name in texts}
        axes = dict.fromkeys((axis for shape in dims.values() for axis in shape), 64)
        return Seen(ordered, dims, axes, "float32", node.lineno)

    # --- suites

    def _suites(self) -> Suites:
        first, cases = self._cases.first, self._cases
        axes = tuple(first.sizes)
        names = ", ".join([*axes, "dtype"])
        dims = list(first.shapes.values())
        last = (dims[0] or ("",))[-1] if dims else ""
        sums = bool(last) and (self._nature.dot or bool(self._used & _REDUCING))
        tolerance = self._left["accuracy"].tolerance
        written = ", ".join(f'"{dtype}": ({rtol!r}, {atol!r})' for dtype, (rtol, atol) in tolerance.items())
        notes = {"inputs": (f"{LOOK}: shapes are guessed, as no test could be followed.",)} if cases.guessed else {}
        reduces = [f"reduces=lambda {names}: {last},"] if sums else []
        product = [f"flops=lambda {names}: 2 * {suites.times(*axes)},"] if self._nature.dot and len(axes) == 3 else []
        return Suites(
            op=self._op,
            axes=axes,
            inputs=first.texts,
            dtypes=self._dtypes,
            edges=() if self._divides else edges(axes, product=self._nature.dot),
            cases=tuple(each.case for each in cases.accuracy if each.dtype in self._dtypes),
            probe="" if self._divides else probe(axes),
            speed=tuple(each.case for each in cases.performance) or speed(axes, self._nature, product=self._nature.dot),
            accuracy=(
                *accuracy_lines(self._nature, names, last if sums else None, product=self._nature.dot),
                *_tolerance_line(written),
            ),
            performance=(suites.bytes_moved([*dims, self._output(dims)], names), *product, *reduces),
            notes=notes,
        )

    @property
    def _dtypes(self) -> tuple[str, ...]:
        """Those that the accuracy test uses; bfloat16 only where no step between load and store rounds to it."""
        used = dict.fromkeys(each.dtype for each in self._cases.accuracy) or dict.fromkeys([self._cases.first.dtype])
        return tuple(each for each in used if each != "bfloat16" or self._bfloat16) or ("float32",)

    @property
    def _bfloat16(self) -> bool:
        return self._nature.casts or self._nature.dot or not self._nature.maths

    @property
    def _divides(self) -> bool:
        """Whether the wrapper refuses sizes that its blocks do not divide."""
        checks = (each for each in ast.walk(self._kernel.node) if isinstance(each, ast.Assert | ast.If))
        return any(isinstance(inner, ast.Mod) for check in checks for inner in ast.walk(check.test))

    @property
    def _used(self) -> set[str]:
        """Names of what the reference calls."""
        calls = (node.func for node in ast.walk(self._base.node) if isinstance(node, ast.Call))
        return {(dotted(each) or getattr(each, "attr", "")).split(".")[-1] for each in calls}

    def _output(self, dims: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        if self._nature.dot and len(dims) == 2:
            return (*dims[0][:-1], *dims[1][-1:])
        longest = max(dims, key=len, default=())
        return longest[:-1] if self._used & _SHRINKING else longest

    # --- what is told

    def _left_of(self, part: str) -> Left:
        dtypes = dict.fromkeys(each.dtype for each in self._cases.accuracy) or [self._cases.first.dtype]
        return left_of(self._op, self._modules[part], self._walks[part], f"test_{part}", dtypes)

    def _came(self) -> Iterator[Reason]:
        for part, callee in (("triton", self._kernel), ("baseline", self._base)):
            facts: dict[str, Fact] = {"file": callee.module.path.name, "line": callee.node.lineno, "name": callee.name}
            yield Reason("carried_function", {**facts, "op": self._op, "to": f"{self._op}_{part}.py"})
        for part, cases in (("accuracy", self._cases.accuracy), ("performance", self._cases.performance)):
            if cases:
                file = self._modules[part].path.name
                lines = ", ".join(map(str, sorted({each.line for each in cases})))
                more: dict[str, Fact] = {"file": file, "lines": lines, "count": len(cases)}
                yield Reason("carried_cases", {**more, "to": f"{self._op}_{part}.py"})

    def _looked(self) -> Iterator[Reason]:
        if self._cases.guessed:
            yield Reason("look_sizes", {})
        if self._divides:
            yield self._kernel.reason("look_divides", self._kernel.node.lineno, op=self._op)
        elif not self._cases.guessed:
            yield Reason("look_edges", {"op": self._op})
        if any(each.dtype == "bfloat16" for each in self._cases.accuracy) and not self._bfloat16:
            yield Reason("look_dtypes", {"dtypes": "bfloat16"})
        yield Reason("look_bytes", {"op": self._op})

    def _reason(self, kind: str, part: str) -> Reason:
        module = self._modules[part]
        node = module.functions.get(f"test_{part}")
        return Reason(kind, {"file": module.path.name, "line": node.lineno if node else 1, "part": part})

    def _case_reason(self, kind: str, part: str, seen: Seen) -> Reason:
        file = self._modules[part].path.name
        case = ",".join(f"{name}={value.removeprefix('torch.')}" for name, value in seen.case.items())
        return Reason(kind, {"file": file, "line": seen.line, "case": case})


def _tolerance_line(written: str) -> list[str]:
    return [f"tolerance={{{written}}},"] if written else []
