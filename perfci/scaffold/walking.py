"""Follows a sketch's test through its syntax, to see which inputs it gives to the kernel; runs none of it.

A small interpreter of what such tests do: constants, tuples and lists of them, loops over lists, helper functions,
parametrised tests, and tensors made by torch.randn and the like. A value that it cannot tell is UNKNOWN, and whatever
depends on it; nothing is imported, no attribute is looked up, no operator of foreign objects is called.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.scaffold.reading import Function, Module, dotted

DTYPES = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float32": "float32", "float": "float32",
    "float64": "float64", "double": "float64", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "int": "int32", "long": "int64", "bool": "bool", "uint8": "uint8",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip

RANDOM = ("randn", "rand", "randint", "randn_like", "rand_like")
FACTORIES = (*RANDOM, "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "empty_like", "arange")
COMPARISONS = ("allclose", "assert_close", "assert_allclose", "isclose")

MOST_STEPS = 20_000
MOST_CALLS = 400
MARK = "\N{SECTION SIGN}"
"""Around what is named only when the whole call is known: anonymous sizes, and dtypes."""


@dataclass(frozen=True)
class Dtype:
    """A torch dtype."""

    name: str


@dataclass(frozen=True)
class Tensor:
    """An input as the test makes it."""

    text: str
    """the expression, its sizes as names or as marked numbers, its dtype marked"""
    shape: tuple[str, ...]
    sizes: Mapping[str, int]
    """names in the text -> their values"""
    dtype: str
    line: int


@dataclass(frozen=True)
class Marker:
    """The kernel or the reference, as a function, a class, or an object of it."""

    what: str
    is_class: bool = False


@dataclass(frozen=True)
class Call:
    """One call of the kernel."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    line: int


@dataclass(frozen=True)
class Comparison:
    """One comparison of results, with its tolerances where they can be told."""

    name: str
    line: int
    rtol: float | None
    atol: float | None
    dtype: str | None
    """of the last call before it"""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class _Closure:
    function: Function | ast.Lambda
    module: Module


@dataclass
class _ReturnedError(Exception):
    value: Any


@dataclass
class Walk:
    """What was seen on the way."""

    calls: list[Call] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    understood: set[int] = field(default_factory=set)
    """ids of statements whose values are known, or that call kernel or reference"""
    cut: bool = False
    """the test makes more calls than are followed"""


def walk(test: Module, entry: str, others: Mapping[str, Module], markers: Mapping[tuple[str, str], Marker]) -> Walk:
    """Follow a test file from its function `entry`, or from its top level where it has none.

    `others` are the sketch's other files by the name that they are imported by; `markers` say of what is defined there
    (module, name) what is the kernel and what the reference.
    """
    walker = _Walker(others, markers)
    try:
        scope = walker.globals_of(test)
        if entry in test.functions:
            walker.enter(test.functions[entry], test, scope)
        else:
            walker.block(test.tree.body, scope, test)
    except (_StopError, RecursionError):
        walker.seen.cut = True
    return walker.seen


class _StopError(Exception):
    """Enough."""


_NUMBERS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


class _Walker:
    def __init__(self, others: Mapping[str, Module], markers: Mapping[tuple[str, str], Marker]) -> None:
        self.seen = Walk()
        self._others = others
        self._markers = markers
        self._steps = 0
        self._current: ast.stmt | None = None
        self._depth = 0

    def globals_of(self, module: Module) -> dict[str, Any]:
        """A module's names, as far as its top level gives them plain values."""
        scope: dict[str, Any] = {}
        for node in module.tree.body:
            if isinstance(node, Function):
                scope[node.name] = _Closure(node, module)
            elif isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
                self._statement(node, scope, module)
        return scope

    def enter(self, function: Function, module: Module, scope: dict[str, Any]) -> None:
        """Call a test with every value that it is parametrised with; without any, with its defaults."""
        for given in self._parametrised(function, scope, module):
            self._call_function(function, module, dict(scope), [], given)

    # --- statements

    def block(self, body: Sequence[ast.stmt], scope: dict[str, Any], module: Module) -> None:
        for node in body:
            self._statement(node, scope, module)

    def _statement(self, node: ast.stmt, scope: dict[str, Any], module: Module) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS or len(self.seen.calls) >= MOST_CALLS:
            raise _StopError
        around, self._current = self._current, node
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method:
            method(node, scope, module)
        self._current = around

    def _import(self, node: ast.Import, scope: dict[str, Any], module: Module) -> None:
        for alias in node.names:
            if alias.name in self._others:
                scope[alias.asname or alias.name] = self._others[alias.name]

    def _importfrom(self, node: ast.ImportFrom, scope: dict[str, Any], module: Module) -> None:
        origin = (node.module or "").split(".")[-1]
        for alias in node.names:
            if origin in self._others:
                scope[alias.asname or alias.name] = self._attribute_of(self._others[origin], alias.name)
            elif alias.name in self._others:
                scope[alias.asname or alias.name] = self._others[alias.name]

    def _functiondef(self, node: ast.FunctionDef, scope: dict[str, Any], module: Module) -> None:
        scope[node.name] = _Closure(node, module)

    def _assign(self, node: ast.Assign, scope: dict[str, Any], module: Module) -> None:
        before = len(self.seen.calls)
        value = self.value(node.value, scope, module)
        for target in node.targets:
            _bind(target, value, scope)
        if value is not UNKNOWN or len(self.seen.calls) > before:
            self.seen.understood.add(id(node))

    def _annassign(self, node: ast.AnnAssign, scope: dict[str, Any], module: Module) -> None:
        if node.value is not None:
            _bind(node.target, self.value(node.value, scope, module), scope)
            self.seen.understood.add(id(node))

    def _augassign(self, node: ast.AugAssign, scope: dict[str, Any], module: Module) -> None:
        if isinstance(node.target, ast.Name):
            both = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            ast.copy_location(both, node)
            ast.fix_missing_locations(both)
            scope[node.target.id] = self.value(both, scope, module)

    def _for(self, node: ast.For, scope: dict[str, Any], module: Module) -> None:
        values = self.value(node.iter, scope, module)
        if not isinstance(values, list | tuple):
            values = [UNKNOWN]
        for value in values:
            before = len(self.seen.calls)
            _bind(node.target, value, scope)
            self.block(node.body, scope, module)
            if isinstance(node.target, ast.Name) and node.target.id == "_" and len(self.seen.calls) > before:
                break  # the same call again, for its time

    def _if(self, node: ast.If, scope: dict[str, Any], module: Module) -> None:
        test = self.value(node.test, scope, module)
        main = ast.unparse(node.test) in {"__name__ == '__main__'", "'__main__' == __name__"}
        for body, wanted in ((node.body, True), (node.orelse, False)):
            if main or test is UNKNOWN or isinstance(test, Tensor) or bool(test) is wanted:
                self.block(body, scope, module)

    def _while(self, node: ast.While, scope: dict[str, Any], module: Module) -> None:
        self.block(node.body, scope, module)

    def _with(self, node: ast.With, scope: dict[str, Any], module: Module) -> None:
        self.block(node.body, scope, module)

    def _try(self, node: ast.Try, scope: dict[str, Any], module: Module) -> None:
        self.block([*node.body, *node.orelse, *node.finalbody], scope, module)

    def _expr(self, node: ast.Expr, scope: dict[str, Any], module: Module) -> None:
        before = len(self.seen.calls)
        self.value(node.value, scope, module)
        if len(self.seen.calls) > before:
            self.seen.understood.add(id(node))

    def _assert(self, node: ast.Assert, scope: dict[str, Any], module: Module) -> None:
        self.value(node.test, scope, module)

    def _return(self, node: ast.Return, scope: dict[str, Any], module: Module) -> None:
        raise _ReturnedError(self.value(node.value, scope, module) if node.value else None)

    # --- values

    def value(self, node: ast.expr, scope: dict[str, Any], module: Module) -> Any:
        """What an expression is; UNKNOWN where that cannot be told. Calls inside are followed all the same."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return scope.get(node.id, UNKNOWN)
        method = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if method:
            return method(node, scope, module)
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.expr):
                self.value(inner, scope, module)
        return UNKNOWN

    def _value_tuple(self, node: ast.Tuple, scope: dict[str, Any], module: Module) -> Any:
        found: list[Any] = []
        for each in node.elts:
            if isinstance(each, ast.Starred):
                inner = self.value(each.value, scope, module)
                found += inner if isinstance(inner, list | tuple) else [UNKNOWN]
            else:
                found.append(self.value(each, scope, module))
        return tuple(found)

    def _value_list(self, node: ast.List, scope: dict[str, Any], module: Module) -> Any:
        return list(self._value_tuple(ast.Tuple(node.elts, ast.Load()), scope, module))

    def _value_lambda(self, node: ast.Lambda, scope: dict[str, Any], module: Module) -> Any:
        if not node.args.args:
            self.value(node.body, dict(scope), module)  # what is timed
        return UNKNOWN

    def _value_ifexp(self, node: ast.IfExp, scope: dict[str, Any], module: Module) -> Any:
        test = self.value(node.test, scope, module)
        if test is UNKNOWN:
            return UNKNOWN
        return self.value(node.body if test else node.orelse, scope, module)

    def _value_compare(self, node: ast.Compare, scope: dict[str, Any], module: Module) -> Any:
        values = [self.value(each, scope, module) for each in (node.left, *node.comparators)]
        plain = all(isinstance(each, int | float | str | Dtype) for each in values)
        compared = _COMPARED.get(type(node.ops[0]))
        if len(values) != 2 or not plain or compared is None:
            return UNKNOWN
        return _tried(compared, *values)

    def _value_unaryop(self, node: ast.UnaryOp, scope: dict[str, Any], module: Module) -> Any:
        value = self.value(node.operand, scope, module)
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return replace(value, text=f"(-{value.text})") if isinstance(value, Tensor) else UNKNOWN

    def _value_binop(self, node: ast.BinOp, scope: dict[str, Any], module: Module) -> Any:
        left, right = self.value(node.left, scope, module), self.value(node.right, scope, module)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return self._combined(node, left, right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int | float) and isinstance(right, int | float):
            return _tried(operator.pow, left, right) if abs(right) <= 64 else UNKNOWN
        operation = _NUMBERS.get(type(node.op))
        numbers = all(isinstance(each, int | float) and abs(each) < 2**64 for each in (left, right))
        if operation is None or not (numbers or _joinable(node.op, left, right)):
            return UNKNOWN
        if isinstance(node.op, ast.LShift) and right > 64:
            return UNKNOWN
        return _tried(operation, left, right)

    def _combined(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        """A tensor and a tensor or a number."""
        sign = _SIGNS.get(type(node.op))
        tensor = left if isinstance(left, Tensor) else right
        if sign is None:
            return UNKNOWN
        texts, sizes = [], dict(tensor.sizes)
        for value in (left, right):
            if isinstance(value, Tensor):
                texts.append(value.text)
                sizes |= value.sizes
            elif isinstance(value, int | float):
                texts.append(f"({value!r})" if value < 0 else repr(value))
            else:
                return UNKNOWN
        return replace(tensor, text=f"({texts[0]} {sign} {texts[1]})", sizes=sizes)

    def _value_attribute(self, node: ast.Attribute, scope: dict[str, Any], module: Module) -> Any:
        path = dotted(node)
        if path.startswith("torch.") and path.split(".")[-1] in DTYPES and path.count(".") == 1:
            return Dtype(DTYPES[node.attr])
        inner = self.value(node.value, scope, module)
        if isinstance(inner, Module):
            return self._attribute_of(inner, node.attr)
        if isinstance(inner, Tensor) and node.attr == "dtype":
            return Dtype(inner.dtype)
        if isinstance(inner, Tensor) and node.attr in {"T", "mT"}:
            return replace(inner, text=f"{inner.text}.{node.attr}", shape=tuple(reversed(inner.shape)))
        return inner if isinstance(inner, Marker) and node.attr in {"apply", "forward"} else UNKNOWN

    def _value_subscript(self, node: ast.Subscript, scope: dict[str, Any], module: Module) -> Any:
        inner, index = self.value(node.value, scope, module), self.value(node.slice, scope, module)
        if isinstance(inner, list | tuple) and isinstance(index, int) and -len(inner) <= index < len(inner):
            return inner[index]
        return UNKNOWN

    def _value_listcomp(self, node: ast.ListComp, scope: dict[str, Any], module: Module) -> Any:
        found: list[Any] = []
        for inner in self._comprehended(node.generators, dict(scope), module):
            found.append(self.value(node.elt, inner, module))
            if len(found) > MOST_CALLS:
                raise _StopError
        return found

    def _comprehended(
        self, generators: Sequence[ast.comprehension], scope: dict[str, Any], module: Module
    ) -> Iterator[dict[str, Any]]:
        if not generators:
            yield scope
            return
        values = self.value(generators[0].iter, scope, module)
        for value in values if isinstance(values, list | tuple) else ():
            inner = dict(scope)
            _bind(generators[0].target, value, inner)
            tests = [self.value(test, inner, module) for test in generators[0].ifs]
            if all(test is UNKNOWN or test for test in tests):
                yield from self._comprehended(generators[1:], inner, module)

    # --- calls

    def _value_call(self, node: ast.Call, scope: dict[str, Any], module: Module) -> Any:
        arguments = list(self._value_tuple(ast.Tuple(node.args, ast.Load()), scope, module))
        keywords = {each.arg: self.value(each.value, scope, module) for each in node.keywords if each.arg}
        path = dotted(node.func)
        name = path.split(".")[-1] or getattr(node.func, "attr", "")
        if path.startswith("torch.") and name in FACTORIES:
            return self._made(name, node, arguments, keywords)
        if name in COMPARISONS:
            self._compared(name, node, arguments, keywords)
            return UNKNOWN
        function = self.value(node.func, scope, module) if not isinstance(node.func, ast.Attribute) else UNKNOWN
        if isinstance(node.func, ast.Attribute):
            found = self._method(node.func, arguments, keywords, scope, module)
            if found is not None:
                return found
            function = self.value(node.func, scope, module)
        if isinstance(function, Marker):
            return self._marked(function, arguments, keywords, node)
        if isinstance(function, _Closure) and isinstance(function.function, Function):
            inner = scope if function.module is module else self.globals_of(function.module)
            return self._call_function(function.function, function.module, dict(inner), arguments, keywords)
        return _plain_call(path, arguments)

    def _marked(self, marker: Marker, arguments: list[Any], keywords: Mapping[str, Any], node: ast.Call) -> Any:
        if marker.is_class:
            return replace(marker, is_class=False)
        self.seen.understood.add(id(self._current))
        if marker.what == "kernel":
            self.seen.calls.append(Call(tuple(arguments), dict(keywords), node.lineno))
        return UNKNOWN

    def _method(
        self,
        node: ast.Attribute,
        arguments: list[Any],
        keywords: Mapping[str, Any],
        scope: dict[str, Any],
        module: Module,
    ) -> Any:
        """A method of a tensor, or of kernel and reference; None where it is neither."""
        if node.attr == "run" and isinstance(node.value, ast.Name):
            inner = scope.get(node.value.id)
            if isinstance(inner, _Closure) and isinstance(inner.function, Function):
                self.enter(inner.function, inner.module, scope)
                return UNKNOWN
        owner = self.value(node.value, scope, module)
        if isinstance(owner, Marker) and node.attr in {"cuda", "to", "eval", "half", "float", "bfloat16", "npu"}:
            return owner
        return _tensor_method(owner, node.attr, arguments, keywords) if isinstance(owner, Tensor) else None

    def _made(self, name: str, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if name.endswith("_like"):
            like = arguments[0] if arguments else UNKNOWN
            if not isinstance(like, Tensor):
                return UNKNOWN
            dtype = keywords.get("dtype", Dtype(like.dtype))
            return _tensor(name.removesuffix("_like"), [], [*like.shape], like.sizes, dtype, node.lineno)
        lead = {"randint": 2, "full": 0, "arange": 0}.get(name, 0)
        if name == "randint" and not isinstance(arguments[1] if len(arguments) > 1 else UNKNOWN, int):
            arguments, node = (
                [0, *arguments],
                ast.copy_location(ast.Call(node.func, [ast.Constant(0), *node.args], node.keywords), node),
            )
        limits = [repr(each) for each in arguments[:lead]]
        nodes, values = node.args[lead:], arguments[lead:]
        if "size" in keywords:
            nodes = [next(each.value for each in node.keywords if each.arg == "size")]
            values = [keywords["size"]]
        if name == "full":
            fill = arguments[1] if len(arguments) > 1 else keywords.get("fill_value", UNKNOWN)
            nodes, values, limits = nodes[:1], values[:1], [repr(fill)]
        dims = _dimensions(nodes, values)
        if dims is None or any("UNKNOWN" in each for each in limits):
            return UNKNOWN
        usual = "int64" if name in {"randint", "arange"} else "float32"
        texts, sizes = dims
        return _tensor(name, limits, texts, sizes, keywords.get("dtype", Dtype(usual)), node.lineno)

    def _compared(self, name: str, node: ast.Call, arguments: list[Any], keywords: Mapping[str, Any]) -> None:
        self.seen.understood.add(id(self._current))
        usual = {"allclose": (1e-5, 1e-8), "isclose": (1e-5, 1e-8), "assert_allclose": (1e-7, 0.0)}.get(name)
        values = []
        for place, each in enumerate(("rtol", "atol")):
            value = keywords.get(each, arguments[place + 2] if len(arguments) > place + 2 else None)
            value = usual[place] if value is None and usual else value
            values.append(float(value) if isinstance(value, int | float) else None if value is None else float("nan"))
        last = self.seen.calls[-1].arguments if self.seen.calls else ()
        dtype = next((each.dtype for each in last if isinstance(each, Tensor)), None)
        self.seen.comparisons.append(Comparison(name, node.lineno, values[0], values[1], dtype))

    def _call_function(
        self,
        function: Function,
        module: Module,
        scope: dict[str, Any],
        arguments: list[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        if self._depth > 8:
            return UNKNOWN
        spec = function.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        local = dict(scope)
        for name, default in zip(reversed(names), reversed(spec.defaults), strict=False):
            local[name] = self.value(default, scope, module)
        for each, only in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            local[each.arg] = self.value(only, scope, module) if only else UNKNOWN
        given = dict(zip(names, arguments, strict=False)) | dict(keywords)
        local |= dict.fromkeys(names[: len(names) - len(spec.defaults)], UNKNOWN) | given
        self._depth += 1
        try:
            self.block(function.body, local, module)
        except _ReturnedError as returned:
            return returned.value
        finally:
            self._depth -= 1
        return UNKNOWN

    def _attribute_of(self, module: Module, name: str) -> Any:
        marker = self._markers.get((module.path.stem, name))
        if marker is not None:
            return marker
        function = module.functions.get(name)
        if function is not None:
            return _Closure(function, module)
        return self.globals_of(module).get(name, UNKNOWN)

    # --- parametrised tests

    def _parametrised(self, function: Function, scope: dict[str, Any], module: Module) -> Iterator[dict[str, Any]]:
        axes: list[list[dict[str, Any]]] = []
        for mark in function.decorator_list:
            if isinstance(mark, ast.Call) and dotted(mark.func).endswith("parametrize") and len(mark.args) > 1:
                names = self.value(mark.args[0], scope, module)
                axes.append(_points(names, self.value(mark.args[1], scope, module)))
            elif isinstance(mark, ast.Call) and dotted(mark.func).endswith("perf_report"):
                axes.append(self._benchmark(mark, scope, module))
        for point in itertools.product(*axes):
            yield {name: value for part in point for name, value in part.items()}

    def _benchmark(self, mark: ast.Call, scope: dict[str, Any], module: Module) -> list[dict[str, Any]]:
        """The points of a triton.testing.Benchmark."""
        inner = mark.args[0].elts[0] if mark.args and isinstance(mark.args[0], ast.List) else mark.args[0]
        if not isinstance(inner, ast.Call):
            return [{}]
        given = {each.arg: self.value(each.value, scope, module) for each in inner.keywords if each.arg}
        names, values = given.get("x_names", UNKNOWN), given.get("x_vals", UNKNOWN)
        if not isinstance(names, list | tuple) or not isinstance(values, list | tuple):
            return [{}]
        fixed = next((each.value for each in inner.keywords if each.arg == "args"), None)
        more = self._dictionary(fixed, scope, module)
        points = [value if isinstance(value, list | tuple) else [value] * len(names) for value in values]
        return [dict(zip(names, point, strict=False)) | more for point in points]

    def _dictionary(self, node: ast.expr | None, scope: dict[str, Any], module: Module) -> dict[str, Any]:
        if not isinstance(node, ast.Dict):
            return {}
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return {str(key): self.value(value, scope, module) for key, value in zip(keys, node.values, strict=True) if key}


def _points(names: Any, values: Any) -> list[dict[str, Any]]:
    if isinstance(names, str):
        names = [each.strip() for each in names.split(",")]
    if not isinstance(names, list | tuple) or not isinstance(values, list | tuple):
        return [{}]
    rows = [value if len(names) > 1 and isinstance(value, list | tuple) else [value] for value in values]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _bind(target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        scope[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        values = value if isinstance(value, list | tuple) else ()
        for number, each in enumerate(target.elts):
            _bind(each, values[number] if number < len(values) else UNKNOWN, scope)


def _joinable(sign: ast.operator, left: Any, right: Any) -> bool:
    """Two lists or tuples that are put together, and make no giant."""
    lists = type(left) is type(right) and isinstance(left, list | tuple)
    return isinstance(sign, ast.Add) and lists and len(left) + len(right) <= MOST_STEPS


def _tried(operation: Callable[..., Any], *values: Any) -> Any:
    try:
        return operation(*values)
    except (ArithmeticError, TypeError, ValueError, MemoryError):
        return UNKNOWN


def _plain_call(path: str, arguments: list[Any]) -> Any:
    """A call of range, zip and the like, on plain values."""
    if path == "range" and all(isinstance(each, int) for each in arguments) and 0 < len(arguments) <= 3:
        found = _tried(range, *arguments)
        return list(found[:MOST_CALLS]) if isinstance(found, range) else UNKNOWN
    made = _OF_LISTS.get(path)
    if made is None or not arguments or not all(isinstance(each, list | tuple) for each in arguments):
        return UNKNOWN
    return list(itertools.islice(made(*arguments), MOST_CALLS))


_OF_LISTS: dict[str, Callable[..., Any]] = {
    "list": lambda *lists: lists[0],
    "tuple": lambda *lists: lists[0],
    "reversed": lambda *lists: reversed(lists[0]),
    "enumerate": lambda *lists: enumerate(lists[0]),
    "zip": lambda *lists: zip(*lists, strict=False),
    "itertools.product": itertools.product,
    "product": itertools.product,
}


# --- tensors ----------------------------------------------------------------------------------------------------------


def _dimensions(nodes: Sequence[ast.expr], values: Sequence[Any]) -> tuple[list[str], dict[str, int]] | None:
    """Sizes as text, and the names in them; None where one cannot be told."""
    if len(nodes) == 1 and isinstance(nodes[0], ast.Tuple | ast.List):
        nodes, values = nodes[0].elts, values[0]
    texts: list[str] = []
    sizes: dict[str, int] = {}
    flat = list(values)
    if len(flat) == 1 and isinstance(flat[0], list | tuple):
        flat = list(flat[0])
    for number, value in enumerate(flat):
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        node = nodes[number] if len(nodes) == len(flat) else None
        if isinstance(node, ast.Name):
            texts.append(node.id)
            sizes[node.id] = value
        else:
            texts.append(f"{MARK}{value}{MARK}")
    return texts, sizes


def _tensor(
    name: str, limits: Sequence[str], shape: Sequence[str], sizes: Mapping[str, int], dtype: Any, line: int
) -> Any:
    if not isinstance(dtype, Dtype):
        return UNKNOWN
    text = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
    given = [*limits, text] if name == "randint" else [text, *limits]
    given += ["generator=generator"] if name in RANDOM else []
    marked = f"{MARK}torch.{dtype.name}{MARK}"
    made = f"torch.{name}({', '.join([*given, f'dtype={marked}', 'device=device'])})"
    return Tensor(made, tuple(shape), dict(sizes), dtype.name, line)


def _tensor_method(owner: Tensor, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    wanted = next((each for each in (*arguments, *keywords.values()) if isinstance(each, Dtype)), None)
    if name in {"cuda", "npu", "requires_grad_", "detach", "clone"} or (name == "to" and wanted is None):
        return owner
    if name in {"to", "type"} and wanted is not None:
        return _as(owner, wanted.name)
    if name in DTYPES and not arguments:
        return _as(owner, DTYPES[name])
    if name in {"t", "contiguous", "abs", "exp", "sigmoid", "neg"} and not arguments:
        shape = tuple(reversed(owner.shape)) if name == "t" else owner.shape
        return replace(owner, text=f"{owner.text}.{name}()", shape=shape)
    if name in {
        "uniform_",
        "normal_",
        "fill_",
        "clamp",
        "mul",
        "add",
        "div",
        "mul_",
        "add_",
        "div_",
        "transpose",
    } and all(isinstance(each, int | float) for each in arguments):
        more = [*map(repr, arguments), *(["generator=generator"] if name in {"uniform_", "normal_"} else [])]
        return replace(owner, text=f"{owner.text}.{name}({', '.join(more)})")
    return UNKNOWN


def _as(owner: Tensor, dtype: str) -> Tensor:
    """Made in this dtype to begin with; where an integer becomes a float or the reverse, converted."""
    if owner.text.count(MARK + "torch.") == 1 and ("int" in owner.dtype) == ("int" in dtype):
        old, new = (f"{MARK}torch.{each}{MARK}" for each in (owner.dtype, dtype))
        return replace(owner, text=owner.text.replace(old, new), dtype=dtype)
    return replace(owner, text=f"{owner.text}.to({MARK}torch.{dtype}{MARK})", dtype=dtype)
