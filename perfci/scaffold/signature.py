"""A function's parameters: which are tensors, of what shapes, and which values the others need."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from perfci.core.errors import UsageError
from perfci.core.model import Fact
from perfci.scaffold import suites
from perfci.scaffold.reading import Function, Module, assigned, dotted, literal


class Kind(Enum):
    """What a parameter holds."""

    TENSOR = "tensor"
    SCALAR = "scalar"
    TUNING = "tuning"
    """a block's size, a number of warps: nothing that the reference knows"""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Parameter:
    """One of a function's parameters."""

    name: str
    kind: Kind
    default: str | None = None
    """as text; None: it has none"""
    plain_default: bool = True
    """the default is a plain value, or none"""
    annotation: str | None = None
    keyword_only: bool = False
    guessed: bool = False
    """neither annotation, nor default, nor use says what it is"""

    @property
    def given(self) -> bool:
        """Whether make_inputs has to give it."""
        return self.default is None

    def value(self) -> str:
        """What make_inputs gives for a parameter that is no tensor."""
        if self.annotation == "bool":
            return "False"
        if self.annotation == "str":
            return '""'
        if re.fullmatch(r"(dim|axis).*", self.name):
            return "-1"
        if re.search(r"eps", self.name):
            return "1e-6"
        return "0.5" if self.annotation == "float" else "1"


_TENSOR_METHODS = frozenset(
    {"shape", "stride", "size", "numel", "dtype", "device", "is_contiguous", "contiguous", "element_size", "is_cuda",
     "ndim", "dim", "view", "reshape", "flatten", "new_empty", "data_ptr", "unsqueeze", "T", "mT", "transpose"}
)  # fmt: skip
_LIKE = frozenset({"empty_like", "zeros_like", "ones_like", "full_like"})
_VECTORS = re.compile(r"bias|weight|gamma|beta|scale|shift|w|b|g|row|vector")
_PLAIN = {"int", "float", "bool", "str"}


def parameters(function: Function, module: Module, *, method: bool = False) -> tuple[Parameter, ...]:
    """Of a function in its file; of a method without the object itself.

    Raises UsageError for *args, **kwargs and positional-only ones: perfci gives arguments by name.
    """
    spec = function.args
    place: dict[str, Fact] = {"file": module.shown, "line": function.lineno, "function": function.name}
    for rest, stars in ((spec.vararg, "*"), (spec.kwarg, "**")):
        if rest:
            raise UsageError("new_star_arguments", argument=f"{stars}{rest.arg}", **place)
    if spec.posonlyargs:
        raise UsageError("new_positional_only", argument=spec.posonlyargs[-1].arg, **place)
    plain = spec.args[1:] if method else spec.args
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults))
    pairs = [*zip(plain, [*defaults, *spec.defaults], strict=True)]
    found = [_parameter(each, default, function, module) for each, default in pairs]
    only = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    more = [replace(_parameter(each, default, function, module), keyword_only=True) for each, default in only]
    return (*found, *more)


def signature(found: Sequence[Parameter]) -> list[str]:
    """What stands between the brackets of a definition."""
    texts: list[str] = []
    for each in found:
        if each.keyword_only and "*" not in texts:
            texts.append("*")
        annotation = f": {each.annotation}" if each.annotation else ""
        default = "" if each.default is None else f" = {each.default}" if annotation else f"={each.default}"
        texts.append(f"{each.name}{annotation}{default}")
    return texts


def call(found: Sequence[Parameter]) -> list[str]:
    """What stands between the brackets of a call that hands everything on."""
    return [f"{each.name}={each.name}" if each.keyword_only else each.name for each in found]


def definition(op: str, found: Sequence[Parameter], inner: str, arguments: Sequence[str]) -> str:
    """A function of the op's name that calls another."""
    head = suites.fitted(f"def {op}(", signature(found), "):", "")
    body = suites.fitted(f"return {inner}(", arguments, ")", "    ")
    return "\n".join([*head, *(f"    {line}" for line in body)]) + "\n"


def _parameter(argument: ast.arg, default: ast.expr | None, function: Function, module: Module) -> Parameter:
    written = ast.unparse(argument.annotation).strip("'\"") if argument.annotation else ""
    text, plain = _default(default, module)
    kind, guessed = _kind(argument.arg, written, text, function)
    annotation = "torch.Tensor" if kind is Kind.TENSOR and text is None else written if written in _PLAIN else None
    return Parameter(argument.arg, kind, text, plain, annotation, guessed=guessed)


def _default(default: ast.expr | None, module: Module) -> tuple[str | None, bool]:
    """The default's text, and whether it is a plain value, here or at the file's top level."""
    if default is None:
        return None, True
    value = literal(default)
    if value is None and isinstance(default, ast.Name):
        value = literal(assigned(module).get(default.id))  # a constant of the file
    return (value, True) if value is not None else (ast.unparse(default), False)


def _kind(name: str, annotation: str, default: str | None, function: Function) -> tuple[Kind, bool]:
    if name.isupper() or name in {"num_warps", "num_stages", "num_ctas"} or re.match(r"block_", name):
        return Kind.TUNING, False
    if re.search(r"\bTensor\b", annotation) or _used_as_tensor(name, function):
        return Kind.TENSOR, False
    if annotation or default is not None:
        return Kind.SCALAR, False
    return Kind.TENSOR, True


def _used_as_tensor(name: str, function: Function) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            if node.attr in _TENSOR_METHODS:
                return True
        elif (
            isinstance(node, ast.Call)
            and dotted(node.func).split(".")[-1] in _LIKE
            and any(isinstance(each, ast.Name) and each.id == name for each in node.args)
        ):
            return True
    return False


# --- shapes -----------------------------------------------------------------------------------------------------------


def shapes(function: Function, tensors: Sequence[str], *, product: bool = False) -> dict[str, tuple[str, ...]]:
    """Each tensor's dimensions by the names of a case's parameters.

    Read from what the function unpacks, `M, K = a.shape`, from what it says is equal, `assert a.shape[1] ==
    b.shape[0]`, and from names: a bias is as long as a row. A matrix `product` of two is (m, k) and (k, n) unless the
    function says otherwise, and anything else (rows, cols).
    """
    known: dict[tuple[str, int], str] = {}
    ranks: dict[str, int] = {}
    for name, axis, symbol, rank in _unpacked(function, tensors):
        known.setdefault((name, axis), symbol)
        ranks[name] = max(ranks.get(name, 0), rank or axis + 1)
    same = dict(_equal(function, tensors))
    for one, other in same.items():
        found = known.get(one) or known.get(other)
        if found:
            known[one] = known[other] = found
    return dict(_filled(tensors, known, ranks, product=product))


def _filled(
    tensors: Sequence[str], known: Mapping[tuple[str, int], str], ranks: Mapping[str, int], *, product: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    usual = {0: ("m", "k"), 1: ("k", "n")} if product else {}
    first: tuple[str, ...] = ()
    for number, name in enumerate(tensors):
        rank = ranks.get(name, 0)
        if not rank and first and (_VECTORS.fullmatch(name) or re.search(r"bias|weight", name)) and not product:
            yield name, first[-1:]
            continue
        fallback = usual.get(number, first or ("rows", "cols"))
        rank = max(rank, len(fallback)) if rank <= 2 and not _fully(name, known, rank) else rank
        shape = tuple(known.get((name, axis)) or _spare(fallback, axis, rank) for axis in range(rank))
        first = first or shape
        yield name, shape


def _fully(name: str, known: Mapping[tuple[str, int], str], rank: int) -> bool:
    return rank > 0 and all((name, axis) in known for axis in range(rank))


def _spare(fallback: Sequence[str], axis: int, rank: int) -> str:
    return fallback[axis] if rank == len(fallback) else f"d{axis}"


def _unpacked(function: Function, tensors: Sequence[str]) -> Iterator[tuple[str, int, str, int | None]]:
    """(tensor, axis, name, rank or None) of every dimension that gets a name."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        tensor = _whole_shape(value, tensors)
        if tensor and isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
            names = [each.id for each in target.elts if isinstance(each, ast.Name)]
            named = [(axis, name) for axis, name in enumerate(names) if name != "_"]
            yield from ((tensor, axis, _symbol(name), len(names)) for axis, name in named)
        left = target.elts if isinstance(target, ast.Tuple) else [target]
        right = value.elts if isinstance(value, ast.Tuple) else [value]
        for one, other in zip(left, right, strict=False):
            place = _one_dimension(other, tensors)
            if place and isinstance(one, ast.Name):
                yield (*place, _symbol(one.id), None)


def _equal(function: Function, tensors: Sequence[str]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            left, right = (_one_dimension(each, tensors) for each in (node.left, node.comparators[0]))
            if left and right:
                yield left, right


def _whole_shape(node: ast.expr, tensors: Sequence[str]) -> str | None:
    """The x of `x.shape` and of `x.size()`."""
    if isinstance(node, ast.Call) and not node.args and dotted(node.func).endswith(".size"):
        name = dotted(node.func).removesuffix(".size")
    else:
        whole = dotted(node)
        name = whole.removesuffix(".shape") if whole.endswith(".shape") else ""
    return name if name in tensors else None


def _one_dimension(node: ast.expr, tensors: Sequence[str]) -> tuple[str, int] | None:
    """(x, 1) of `x.shape[1]` and of `x.size(1)`."""
    if isinstance(node, ast.Subscript) and dotted(node.value).endswith(".shape"):
        name, axis = dotted(node.value).removesuffix(".shape"), node.slice
    elif isinstance(node, ast.Call) and len(node.args) == 1 and dotted(node.func).endswith(".size"):
        name, axis = dotted(node.func).removesuffix(".size"), node.args[0]
    else:
        return None
    number = axis.value if isinstance(axis, ast.Constant) and isinstance(axis.value, int) else -1
    return (name, number) if name in tensors and number >= 0 else None


def _symbol(name: str) -> str:
    """A case's parameter: lower case, and none of those that every case has."""
    lower = name.lower().strip("_") or "size"
    return f"{lower}_size" if lower in {"dtype", "device", "seed"} or not lower.isidentifier() else lower
