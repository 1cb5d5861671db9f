"""What a function's text tells about its arguments: which are tensors, with how many axes, and which hold integers."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_DEPTH = 4  # calls that are followed into other functions

_TENSOR = frozenset(
    {"T", "contiguous", "copy_", "data_ptr", "device", "dim", "dtype", "element_size", "float", "half", "is_contiguous",
     "is_cuda", "item", "itemsize", "long", "mT", "ndim", "new_empty", "new_zeros", "numel", "permute", "requires_grad",
     "reshape", "shape", "size", "stride", "sum", "to", "transpose", "unsqueeze", "view"}
)  # fmt: skip
"""Attributes that only tensors have."""

_WHOLE = re.compile(
    r"(^|_)(ind(ex|ices)|idxs?|labels?|targets?|ids?|pos(itions)?|cu_\w+|lengths?|loc|seq_?lens?|slots?|offsets?)(_|$)",
    re.IGNORECASE,
)
"""Names of tensors of integers."""

_SCALARS: Sequence[tuple[str, Sequence[Any]]] = (
    (r"(^|_)eps(ilon)?($|_)", (1e-6,)),
    (r"(^|_)((sm_|softmax_)?scal(e|ing)|alpha|beta\d?|gamma|temperature|lambda\w*|slope|coef|label_smoothing|momentum|"
     r"soft_?cap(ping)?|lse_square_scale|threshold|p|dropout\w*|lr|learning_rate|\w*decay)$", (0.5,)),
    (r"^(dim|axis)$", (-1,)),
    (r"(^|_)(offset|shift)$", (0.0, 0, 1)),
    (r"^(is_|use_|has_|return_|causal|in_?place|training|output_|interleaved|transpose|trans_)", (False, True)),
    (r"^(n|num|k|top_?k|max|min)$|(^|_)(n|num|max|min|chunk|group|block|head|size|len)_|_(size|len|num|dim|heads)$|"
     r"^(groups|window|chunk|(block|group|chunk|tile)s(ize)?|BLOCK\w*|\w*seqlen|stride|padding|dilation)$",
     (64, 16, 4, 2, 1)),
    (r"^reduction$", ("mean", "sum", "none")),
    (r"^normalized_shape$", ((64,),)),
    (r"^(mode|activation|casting_mode|act)\w*$", ("none", "silu", "llama")),
)  # fmt: skip
"""Form of a name -> values that an argument of this name may have."""

_OF_NUMBERS: Mapping[str, bool] = dict.fromkeys(("range", "int", "cdiv", "next_power_of_2"), True) | dict.fromkeys(
    ("float", "bool", "str"), False
)
"""Functions that take no tensors -> whether they take whole numbers"""
_DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.int32)
_OF_KIND: Mapping[str, Sequence[Any]] = {"int": (64, 16, 4, 2, 1), "float": (0.5,), "bool": (False, True), "str": ("",)}
_SIDE = re.compile(r"(?:\d+ ?\* ?)?[A-Za-z_]\w*(?: ?[*+/-]+ ?\w+)*|\d+")
_SHAPE = re.compile(r"[\[(]\s*((?:[\w.*+/ -]+,\s*)+[\w.*+/ -]*)[\])]|\[(\w+)\]|shape:? ?\((\w+)\)")
_BESIDE = re.compile(r"(?m)^ +(\w+)\b[^#\n]*[:,=][^#\n]*# *([\[(].*)$")
"""A shape in a comment beside a parameter"""


@dataclass
class Use:
    """What is known about one argument."""

    is_tensor: bool | None = None  # None: unknown
    rank: int | None = None  # its number of axes, if the text says so
    least: int = 0  # of its axes
    is_whole: bool = False  # a tensor of integers
    is_float: bool = False  # the text converts it to float32
    is_packed: bool = False  # a tensor of bytes, of which a kernel takes bits
    is_flag: bool = False  # a tensor of truths
    is_size: bool = False  # a tensor is made with it
    is_target: bool = False  # what a loss is to give: integers, one for each row, or else numbers like the input's
    may_lack: bool = False  # it may be None
    fixed: dict[int, int] = field(default_factory=dict)  # axis -> the only size that it may have
    dtype: str = ""  # the only one that it may have, if the text says so
    compared: tuple[Any, ...] = ()  # words and numbers that it is compared with
    like: str = ""  # equal for tensors of one shape

    def take_shape(self, sides: Sequence[str]) -> None:
        """Notes the shape that a text gives."""
        self.is_tensor, self.rank = True, len(sides)
        self.fixed |= {place: int(side) for place, side in enumerate(sides) if side.isdigit()}

    def list_ranks(self) -> list[int]:
        """Numbers of axes, the likeliest first."""
        usual = [rank for rank in (2, 1, 3, 4) if rank >= self.least]
        return [self.rank, *(rank for rank in usual if rank != self.rank)] if self.rank else usual or [self.least]


def read_uses(function: Any, takes: inspect.Signature, reference: Any = None) -> dict[str, Use]:
    """Returns what annotations, the texts of function and reference, and their docstrings tell about each argument."""
    uses = {name: Use() for name in takes.parameters}
    text, doc = getattr(function, "text", (function, getattr(function, "__doc__", None)))
    doc = "\n".join((doc or "", getattr(reference, "__doc__", None) or ""))
    for one in (text, reference):
        with contextlib.suppress(RecursionError):
            _follow(one, {name: name for name in uses}, uses, _DEPTH)
        for use in uses.values() if one is text else ():
            use.is_whole &= not use.is_float  # what a kernel makes places of has fractions
    for name, parameter in takes.parameters.items():
        kind = str(getattr(parameter.annotation, "__name__", parameter.annotation))
        use, words = uses[name], kind.replace("torch.", "")
        if "dtype" in words or re.search(r"(^|_)dtype$", name):
            use.is_tensor = False
        elif "Tensor" in words:
            use.is_tensor, use.is_whole = True, use.is_whole or "Long" in words or "Int" in words
        elif words.split(" ")[0].removeprefix("Optional[").rstrip("]") in _OF_KIND or isinstance(
            parameter.default, bool | int | float | str
        ):
            use.is_tensor = False
        use.may_lack = use.may_lack or "Optional" in kind or "None" in kind
        use.is_target = not use.is_whole and name.lower() in {"target", "targets"}
        use.is_whole |= bool(_WHOLE.search(name)) and not name.isupper()
        use.is_flag = bool(re.match(r"is_|has_", name)) and bool(use.is_tensor)
    for name, sides in _read_described(text, doc).items():
        if name in uses and uses[name].is_tensor is not False:
            uses[name].take_shape(sides)
    ranks = {use.like: use.rank for use in uses.values() if use.rank}
    for use in uses.values():
        use.rank = use.rank or (ranks.get(use.like) if use.like else None)
    return uses


def _read_described(function: Any, doc: str | None) -> dict[str, tuple[str, ...]]:
    """Shapes of a function's parameters, by its docstring and by comments beside them."""
    with contextlib.suppress(OSError, TypeError):
        beside = _BESIDE.findall(inspect.getsource(inspect.unwrap(function)).partition('"""')[0])
        doc = "\n".join([doc or "", *(f"{name}: {shape}" for name, shape in beside)])
    return _read_shapes(doc or "")


def list_values(name: str, parameter: inspect.Parameter | None, usual: Any = inspect.Parameter.empty) -> list[Any]:
    """Values of a number, flag or word of this name. `usual`: what the reference takes if it is not given."""
    kind = getattr(parameter.annotation, "__name__", str(parameter.annotation)) if parameter else ""
    named = next((values for form, values in _SCALARS if re.search(form, name)), ())
    typed = _OF_KIND.get(kind.removeprefix("typing.").removeprefix("Optional[").rstrip("]"), ())
    if typed:
        named = [value for value in named if type(value) is type(typed[0])] or typed
    if "dtype" in kind or re.search(r"(^|_)dtype$", name):
        return [*_DTYPES]
    first = [usual] if isinstance(usual, bool | int | float | str) else []
    return [*dict.fromkeys([*first, *(named or (0.5, 1))])]


def is_scalar_name(name: str) -> bool:
    """Whether an argument of this name is usually a number, a flag or a word."""
    return any(re.search(form, name) for form, _ in _SCALARS)


# --- text -------------------------------------------------------------------------------------------------------------


def _parse(function: Any) -> ast.FunctionDef | None:
    function = inspect.unwrap(getattr(function, "fn", function))
    function = getattr(function, "fn", function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def _follow(function: Any, names: dict[str, str], uses: dict[str, Use], depth: int) -> None:
    """Notes uses of a function's locals. `names`: local -> the argument that it is."""
    function = inspect.unwrap(function) if callable(function) else function
    tree = _parse(function)
    code = getattr(function, "__func__", function)
    if tree is None or not depth or not isinstance(code, types.FunctionType):
        return
    scope = {**code.__globals__, **inspect.getclosurevars(code).nonlocals} if code.__closure__ else code.__globals__
    views, names = dict[str, str](), dict(names)  # local -> the argument of which it is a view
    for statement in tree.body:
        _read_statement(statement, scope, names, views, uses, depth)
        # What is bound again is no longer the argument, though it may be a view of it.
        stored = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
        views |= {name: names.pop(name) for name in stored & names.keys()}


def _read_statement(
    statement: ast.stmt, scope: Mapping[str, Any], names: Mapping[str, str], views: dict[str, str],
    uses: dict[str, Use], depth: int,
) -> None:  # fmt: skip
    if isinstance(statement, ast.Assert):
        _read_assert(statement.test, names, uses)
    elif isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Raise):
        refused = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
        for part in refused:  # x.shape != y.shape: what holds is the reverse
            if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.NotEq):
                _read_assert(ast.Compare(part.left, [ast.Eq()], part.comparators), names, uses)
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names and attribute in _TENSOR:
                uses[names[name]].is_tensor = True
            case (
                ast.Call(func=ast.Attribute(value=value, attr="float"))
                | ast.Call(func=ast.Attribute(value=value, attr="to"), args=[ast.Attribute(attr="float32"), *_])
            ) if _origin(value) in names:
                uses[names[_origin(value)]].is_float = True
            case ast.Compare(left=ast.Name(id=name), comparators=[other]) if name in names:
                parts = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else [other]
                values = [part.value for part in parts if isinstance(part, ast.Constant)]
                use = uses[names[name]]
                use.compared += tuple(one for one in values if isinstance(one, str) or (type(one) is int and one > 1))
            case ast.Assign(targets=[ast.Tuple(elts=sides) | ast.List(elts=sides)], value=value):
                # B, T, K, V = *k.shape, v.shape[-1]
                parts = value.elts if isinstance(value, ast.Tuple) else [ast.Starred(value)]
                spread = [part.value for part in parts if isinstance(part, ast.Starred)]
                is_plain = len(spread) == 1 and not any(isinstance(side, ast.Starred) for side in sides)
                if is_plain and (name := _of_shape(spread[0])) in names:
                    use = uses[names[name]]
                    use.is_tensor, use.rank = True, use.rank or len(sides) - len(parts) + 1
            case ast.Subscript(value=value, slice=index) if _of_shape(value) in names:
                _note_index(uses[names[_of_shape(value)]], index)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=places)) if name in names:  # x[i, :n]
                count = sum(not isinstance(one, ast.Constant) or type(one.value) is int for one in places)
                uses[names[name]].is_tensor, uses[names[name]].least = True, max(uses[names[name]].least, count)
            case (
                ast.Assign(targets=[ast.Name(id="grid")], value=ast.Tuple(elts=sides))
                | ast.Call(func=ast.Subscript(slice=ast.Tuple(elts=sides)))
            ):
                _note_numbers([one.id for one in sides if isinstance(one, ast.Name)], names, uses, is_size=True)
                if isinstance(node, ast.Call):
                    _follow_call(node, scope, {**views, **names}, uses, depth)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size" | "stride"), args=[index]):
                if name in names:
                    _note_index(uses[names[name]], index)
            case ast.Assign(targets=[ast.Name(id=view)], value=value) if view not in names and _origin(value) in names:
                views[view] = names[_origin(value)]
            case ast.Call():
                _follow_call(node, scope, {**views, **names}, uses, depth)


def _origin(node: ast.AST) -> str:
    """The name of which this is a view, such as x of x.reshape(-1, 4).contiguous(), or whose form it has."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _VIEWS:
                node = inner
            case (
                ast.Call(func=ast.Attribute(attr="empty_like" | "zeros_like"), args=[inner], keywords=[])
                | ast.IfExp(body=inner)
            ):
                node = inner
            case ast.Name(id=name):
                return name
            case _:
                return ""


def _of_shape(node: ast.AST) -> str:
    """The name of which this is the shape. Empty if it is something else."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[]):
            return name
    return ""


def _note_index(use: Use, index: ast.AST) -> None:
    with contextlib.suppress(ValueError, TypeError, SyntaxError):
        value = ast.literal_eval(index)
        if type(value) is int:
            use.is_tensor, use.least = True, max(use.least, value + 1 if value >= 0 else -value)


def _note_numbers(chosen: Iterable[str], names: Mapping[str, str], uses: Mapping[str, Use], *, is_size: bool) -> None:
    for use in (uses[names[name]] for name in chosen if name in names):
        if use.is_tensor is None:
            use.is_tensor, use.is_size = False, is_size


def _read_assert(test: ast.AST, names: Mapping[str, str], uses: Mapping[str, Use]) -> None:
    parts: Sequence[ast.AST] = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    if isinstance(test, ast.Compare) and len(test.ops) > 1 and all(isinstance(one, ast.Eq) for one in test.ops):
        last = test.comparators[-1]  # x.shape[0] == y.shape[0] == 1
        parts = [ast.Compare(side, [ast.Eq()], [last]) for side in (test.left, *test.comparators[:-1])]
    for node in parts:
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=int(rank))]):
                match left:
                    case (
                        ast.Attribute(value=ast.Name(id=name), attr="ndim")
                        | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="dim" | "ndimension"))
                        | ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=ast.Name(id=name), attr="shape")])
                    ) if name in names:
                        uses[names[name]].is_tensor, uses[names[name]].rank = True, rank
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="numel")) if name in names:
                        uses[names[name]].rank, uses[names[name]].fixed = 1, {0: rank}
                    case ast.Subscript(value=value, slice=ast.Constant(value=int(axis))) if _of_shape(value) in names:
                        uses[names[_of_shape(value)]].fixed[axis] = rank
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id=name), attr="dtype"), ops=[ast.Eq()],
                comparators=[ast.Attribute(value=ast.Name(id="torch"), attr=dtype)],
            ) if name in names:  # fmt: skip
                uses[names[name]].is_tensor, uses[names[name]].dtype = True, dtype
            # x.shape == (rows, cols), and x.shape == y.shape
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[other]) if _of_shape(left) in names:
                use, like = uses[names[_of_shape(left)]], uses.get(names.get(_of_shape(other), ""))
                use.is_tensor = True
                if like:
                    use.like = like.like = use.like or like.like or _of_shape(left)
                elif isinstance(other, ast.Tuple):
                    use.rank = use.rank or len(other.elts)


def _follow_call(
    node: ast.Call, scope: Mapping[str, Any], names: Mapping[str, str], uses: dict[str, Use], depth: int
) -> None:
    launch = isinstance(node.func, ast.Subscript)
    # A function may be told the argument itself, and a kernel a view of it: both read the same elements.
    read = _origin if launch else lambda part: part.id if isinstance(part, ast.Name) else ""
    given = {place: read(arg) for place, arg in enumerate(node.args) if read(arg) in names}
    keywords = {key.arg: read(key.value) for key in node.keywords if key.arg and read(key.value) in names}
    if not given and not keywords:
        return
    if _last(node.func) == "save_for_backward":
        for name in given.values():
            uses[names[name]].is_tensor = True
        return
    if not launch and _last(node.func) in _OF_NUMBERS:
        _note_numbers(given.values(), names, uses, is_size=_OF_NUMBERS[_last(node.func)])
        return
    called = _resolve(node.func.value if isinstance(node.func, ast.Subscript) else node.func, scope)
    while launch and hasattr(called, "fn") and not hasattr(called, "arg_names"):
        called = called.fn
    if called is None:
        return
    if launch:
        order = list(getattr(called, "arg_names", ()))
        kernel = _read_kernel(getattr(called, "fn", called))
        while hasattr(called, "fn"):
            called = called.fn
        shapes = _read_described(called, getattr(called, "__doc__", None))
        bound = {order[place]: name for place, name in given.items() if place < len(order)} | keywords
        for parameter, name in bound.items():
            use = uses[names[name]]
            if parameter in kernel.pointers:
                use.is_tensor, use.is_whole = True, use.is_whole or parameter in kernel.whole
                use.is_packed |= parameter in kernel.packed
                use.like = use.like or kernel.alike.get(parameter, "")
                if parameter in shapes and use.rank is None:
                    use.take_shape(shapes[parameter])
            elif kernel.is_sure and kernel.pointers and use.is_tensor is None:
                use.is_tensor = False
        return
    first = 0
    if isinstance(called, types.MethodType) and called.__name__ == "apply":
        called, first = getattr(called.__self__, "forward", None), 1
    if getattr(called, "__module__", "").startswith("torch"):
        made = getattr(called, "__name__", "")
        if made in {"empty", "zeros", "ones", "full", "arange"}:
            for place, name in given.items():
                uses[names[name]].is_tensor, uses[names[name]].is_size = False, made != "full" or not place
        elif 0 in given and made not in {"tensor", "Size"}:
            uses[names[given[0]]].is_tensor = True
        return
    try:
        order = list(inspect.signature(called).parameters)[first:]
    except (TypeError, ValueError):
        return
    inner = {order[place]: names[name] for place, name in given.items() if place < len(order)}
    _follow(called, inner | {key: names[name] for key, name in keywords.items()}, uses, depth - 1)


def _resolve(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return scope.get(name)
        case ast.Attribute(value=value, attr=attribute):
            owner = _resolve(value, scope)
            return getattr(owner, attribute, None) if isinstance(owner, types.ModuleType | type) else None
    return None


@dataclass(frozen=True)
class _Kernel:
    """What a kernel does with its parameters, by name."""

    pointers: frozenset[str] = frozenset()  # it loads from them, or stores to them
    whole: frozenset[str] = frozenset()  # it loads places from them
    packed: frozenset[str] = frozenset()  # it takes bits of them, or of what it loads from them
    places: frozenset[str] = frozenset()  # they are part of a place
    alike: Mapping[str, str] = field(default_factory=dict)  # of pointers: equal for those with the same places
    is_sure: bool = False  # all of its text was read


@functools.lru_cache(maxsize=256)
def _read_kernel(kernel: Callable[..., Any], depth: int = _DEPTH) -> _Kernel:
    """Returns what a kernel, and the functions of Triton that it calls, do with its parameters."""
    tree = _parse(kernel) if depth else None
    if tree is None:
        return _Kernel()
    takes = {arg.arg for arg in tree.args.args}
    scope = getattr(inspect.unwrap(kernel), "__globals__", {})
    origin, values, moved = {name: name for name in takes}, list[tuple[str, str]](), list[tuple[str, set[str]]]()
    pointers, inside, whole, cut, bits, sure = set[str](), set[str](), set[str](), set[str](), set[str](), True
    spread = dict[str, set[str]]()  # name -> what it was computed of by then
    accesses = dict[str, set[str]]()  # name -> what is added to it

    def reach(part: ast.AST) -> set[str]:
        return _list_names(part).union(*(spread.get(name, ()) for name in _list_names(part)))

    def note(names: set[str]) -> None:
        """Notes that these are part of a place, and that what was loaded into them by now holds integers."""
        inside.update(names)
        whole.update(root for name, root in values if name in names and root)

    for node in _in_order(tree):
        target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
        if isinstance(node, ast.Assign | ast.AugAssign) and isinstance(target, ast.Name):
            spread[target.id] = reach(node.value) | ({target.id} if isinstance(node, ast.AugAssign) else set())
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=bound)], value=ast.Tuple(elts=loads)):
                values += [
                    (_root(one), origin.get(root, ""))
                    for one, load in zip(bound, loads, strict=False)
                    for root in _list_loaded(load)
                ]
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ):
                if isinstance(node, ast.AugAssign):
                    moved.append((origin.get(name, ""), reach(value)))
                elif root := origin.get(_root(value)):
                    origin.setdefault(name, root)
                values += [(name, origin.get(root, "")) for root in _list_loaded(value)]
            case ast.Call(args=[first, *_]) if _last(node.func) in _ACCESSES or _last(node.func).startswith("atomic_"):
                pointers.add(origin.get(_root(first), ""))
                accesses.setdefault(_root(first), set()).add(ast.unparse(first).removeprefix(_root(first)))
                note(reach(first))
                whole |= {origin.get(root, "") for root in _list_loaded(first)}
            case ast.Call(keywords=keywords) if _last(node.func) in _ACCESSES:
                pointers |= {origin.get(_root(key.value), "") for key in keywords if key.arg in {"base", "pointer"}}
            case ast.BinOp(left=left, op=ast.RShift() | ast.BitAnd(), right=right):
                if isinstance(node.op, ast.RShift) or isinstance(right, ast.Constant):
                    note(reach(left))
                    bits, cut = bits | reach(left), cut | _list_names(left)
            case ast.Call(func=ast.Attribute(value=ast.Call() as load, attr="to"), args=[kind], keywords=[]) if _last(
                load.func
            ) == "load" and _last(kind) in {"int32", "int64"}:  # what it truncates has no fractions
                whole |= {origin.get(root, "") for root in _list_loaded(load)}
            case ast.Call(func=ast.Name(id=name), args=args) if hasattr(scope.get(name), "arg_names"):
                called = _read_kernel(scope[name].fn, depth - 1)
                given = [*zip(scope[name].arg_names, args, strict=False)]
                given += [(key.arg or "", key.value) for key in node.keywords]
                for parameter, value in given:
                    pointers |= {origin.get(_root(value), "")} if parameter in called.pointers else set()
                    whole |= {origin.get(_root(value), "")} if parameter in called.whole else set()
                    note(reach(value) if parameter in called.places else set())
                    cut |= _list_names(value) if parameter in called.packed else set()
                    bits |= reach(value) if parameter in called.packed else set()
                    loaded = _list_loaded(value) if parameter in called.places else ()
                    whole |= {origin.get(root, "") for root in loaded}
                sure &= called.is_sure
            case ast.Call(func=ast.Name(id=name), args=args) if name not in {"range", "min", "max", "float", "int"}:
                sure &= not any(isinstance(arg, ast.Name) and arg.id in takes for arg in args)
    note(set().union(*(names for root, names in moved if root in pointers - {""})))
    packed = bits - pointers | cut & pointers | {root for name, root in dict(reversed(values)).items() if name in bits}
    places = inside & takes - pointers
    pointers, whole, packed = pointers & takes, whole & takes, packed & takes
    still = {name: min(texts) for name, texts in accesses.items() if len(texts) == 1 and name not in spread}
    alike = {name: f"{tree.name}{still[name]}" for name in pointers & still.keys()}
    return _Kernel(frozenset(pointers), frozenset(whole), frozenset(packed), frozenset(places), alike, is_sure=sure)


def _list_loaded(tree: ast.AST) -> list[str]:
    """The names of pointers from which this loads."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last(node.func) == "load")
    return [_root(call.args[0]) for call in calls if call.args]


def _list_names(tree: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}


_VIEWS = frozenset({"contiguous", "view", "reshape", "flatten", "unsqueeze", "squeeze", "detach"})
_ACCESSES = frozenset({"load", "store", "make_block_ptr", "make_tensor_descriptor"})


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _in_order(child)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.AST) -> str:
    """The name that pointer arithmetic begins with."""
    while True:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
                node = left
            case ast.Call(func=ast.Attribute(value=inner, attr="to")):
                node = inner
            case ast.Name(id=name):
                return name
            case _:
                return ""


def _read_shapes(text: str) -> dict[str, tuple[str, ...]]:
    """Shapes that a docstring gives: `x: (rows, cols)`, or `q (torch.Tensor): queries of shape [B, T, H, K]`."""
    shapes = dict[str, tuple[str, ...]]()
    entries = re.split(r"(?m)(?:^|,)\s*[-*`]*(\w+)`?(?: size| shape)?\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:(?!:)", text)
    for name, about in zip(entries[1::2], entries[2::2], strict=True):
        first = next((line for line in about.splitlines() if _SHAPE.search(line)), "")
        shapes_found = ["".join(ways) for ways in _SHAPE.findall(first)]
        ways = [[side.strip() for side in shape.split(",") if side.strip()] for shape in shapes_found]
        named = [
            way
            for way in ways
            if (way[1:] == [] or not all(map(str.isdigit, way)))
            and all(_SIDE.fullmatch(side) and "-1" not in side for side in way)
        ]
        if named:
            shapes.setdefault(name, tuple(sorted(named, key=len)[0]))
    return shapes
