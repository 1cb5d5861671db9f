"""KernelGen's kernel and baseline as files of an op: the text as it was, but for what an op must not do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Reason
from perfci.scaffold.reading import (
    Function,
    Module,
    Patch,
    called,
    dotted,
    edited,
    fresh,
    is_jitted,
    launched,
    parents,
    rename_all,
    rename_jitted,
    span,
    without,
)
from perfci.scaffold.signature import Parameter, definition, parameters
from perfci.scaffold.walking import DTYPES

HELPERS = frozenset({"get_inputs", "get_init_inputs"})
"""Functions of a baseline's file that make inputs; they become make_inputs."""


@dataclass(frozen=True)
class Callee:
    """The kernel's wrapper, or the reference: a function, or a class whose objects are called."""

    module: Module
    name: str
    node: Function | ast.ClassDef
    found: tuple[Parameter, ...]

    @property
    def is_class(self) -> bool:
        """Whether it is one of the latter."""
        return isinstance(self.node, ast.ClassDef)

    def reason(self, kind: str, line: int, **facts: Fact) -> Reason:
        """Something about its file."""
        return Reason(kind, {"file": self.module.path.name, "line": line, **facts})


def wrapper(op: str, module: Module, wanted: Sequence[str]) -> Callee:
    """The function that callers use: the one that the tests take, else that of the op's name, else the outermost.

    Raises UsageError where nothing in the file launches a Triton kernel.
    """
    jitted = {node.name for node in module.jitted}
    plain = {name: node for name, node in module.functions.items() if not is_jitted(node)}
    launching = [name for name, node in plain.items() if launched(node) & jitted]
    while more := [name for name in plain if name not in launching and called(plain[name]) & {*launching}]:
        launching += more
    classes = [name for name, node in module.classes.items() if _called_method(node) and launched(node) & jitted]
    inner = {each for name in launching for each in called(plain[name]) if each != name}
    outer = [name for name in launching if name not in inner]
    for name in (*wanted, op, *outer, *classes):
        if name in launching or name in classes:
            return _callee(module, name)
    raise UsageError("kernelgen_no_wrapper", file=module.shown)


def reference(op: str, module: Module, wanted: Sequence[str]) -> Callee:
    """The function that says what the op means: the one that the tests take, else that of the op's name, else the only.

    Raises UsageError where that leaves none.
    """
    names = [name for name in module.functions if name not in HELPERS and not name.startswith("_")]
    classes = [name for name, node in module.classes.items() if _called_method(node)]
    close = [name for name in names if op in name]
    for name in (*wanted, op, *close, *classes, *(names if len(names) == 1 else ())):
        if name in names or name in classes:
            return _callee(module, name)
    known = ", ".join([*names, *classes]) or "none"
    raise UsageError("kernelgen_no_reference", file=module.shown, known=known, op=op)


def _callee(module: Module, name: str) -> Callee:
    found = module.classes.get(name)
    if found is None:
        function = module.functions[name]
        return Callee(module, name, function, parameters(function, module))
    method = _called_method(found)
    assert method is not None
    # Without the object itself, or the context of an autograd function.
    return Callee(module, name, found, parameters(method, module, method=True))


def _called_method(node: ast.ClassDef) -> Function | None:
    """What calling an object, or `apply`, runs."""
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    return methods.get("forward") or methods.get("__call__")


# --- the two files ----------------------------------------------------------------------------------------------------


def kernel_file(op: str, callee: Callee) -> tuple[str, list[Reason]]:
    """The text of `<op>_triton.py`, and what of the sketch it no longer has or should not have."""
    module = callee.module
    patches, reasons = _cleaned(callee)
    for node in module.jitted:
        if node.name in {op, callee.name}:
            renaming = rename_jitted(module, node)
            patches += renaming
            hidden = not is_jitted(module.functions[node.name])
            kind = "left_shadowed" if hidden else "left_renamed"
            reasons.append(callee.reason(kind, node.lineno, name=node.name, new=renaming[0].text))
    reasons += _globals_read(callee)
    more, text = _exposed(op, callee, callee.found)
    return _spaced(edited(module.text, [*patches, *more])) + text, reasons


def reference_file(op: str, callee: Callee, signature: Sequence[Parameter]) -> tuple[str, list[Reason]]:
    """The text of `<op>_baseline.py` but for make_inputs, with the kernel's signature."""
    module = callee.module
    patches, reasons = _cleaned(callee)
    for name in HELPERS & module.functions.keys():
        node = module.functions[name]
        if name == "get_inputs" or not callee.is_class:
            patches.append(without(module, node))
            reasons.append(callee.reason("left_get_inputs", node.lineno, name=name))
    reasons += _fixed_dtypes(callee)
    if len(callee.found) != len(signature):
        facts = {"takes": ", ".join(each.name for each in callee.found), "name": callee.name}
        wanted = ", ".join(each.name for each in signature)
        reasons.append(callee.reason("left_parameters", callee.node.lineno, wanted=wanted, **facts))
    more, text = _exposed(op, callee, signature)
    start = _spaced(edited(module.text, [*patches, *more]))
    return (start if _imports_torch(module) else _with_torch(start)) + text + "\n\n", reasons


def _spaced(text: str) -> str:
    """Two empty lines at most, where something was taken out between."""
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def _exposed(op: str, callee: Callee, signature: Sequence[Parameter]) -> tuple[list[Patch], str]:
    """Patches and text behind the file that give it a function of the op's name and signature."""
    module, name = callee.module, callee.name
    same = [each.name for each in callee.found] == [each.name for each in signature]
    others = rename_all(module, op, f"_{op}_of_sketch") if name != op and _is_plain(module, op) else []
    if not callee.is_class and same:
        return ([*others, *rename_all(module, name, op, exact=True)] if name != op else []), ""
    if callee.is_class and name != op:
        instance = "apply" if _is_autograd(callee.node) else ""
        made = f"{name}.{instance}" if instance else "_sketch"
        head = "" if instance else f"\n\n_sketch = {name}({_init_arguments(callee)})\n"
        return others, f"{head}\n\n{definition(op, _plain(signature), made, _matched(callee, signature))}"
    own = fresh(module, f"_{op}_of_sketch") if name == op else name
    patches = rename_all(module, name, own) if name == op else others
    return patches, f"\n\n{definition(op, _plain(signature), own, _matched(callee, signature))}"


def _is_plain(module: Module, name: str) -> bool:
    """Whether the file has a function of this name that is no Triton kernel."""
    return name in module.functions and not is_jitted(module.functions[name])


def _plain(signature: Sequence[Parameter]) -> list[Parameter]:
    return [each if each.plain_default else Parameter(each.name, each.kind, "None") for each in signature]


def _matched(callee: Callee, signature: Sequence[Parameter]) -> list[str]:
    """The kernel's arguments as the reference takes them: by name where all names are known, else in order."""
    ours, theirs = [each.name for each in signature], [each.name for each in callee.found]
    if {*theirs} <= {*ours}:
        return [f"{name}={name}" if ours[: len(theirs)] != theirs else name for name in theirs]
    return ours[: len(theirs)]


def _is_autograd(node: Function | ast.ClassDef) -> bool:
    return isinstance(node, ast.ClassDef) and any(dotted(base).endswith("Function") for base in node.bases)


def _init_arguments(callee: Callee) -> str:
    """What an object is made with: nothing, or what get_init_inputs gives."""
    assert isinstance(callee.node, ast.ClassDef)
    init = next((each for each in callee.node.body if isinstance(each, Function) and each.name == "__init__"), None)
    needed = len(init.args.args) - 1 - len(init.args.defaults) if init else 0
    if needed <= 0:
        return ""
    if "get_init_inputs" in callee.module.functions:
        return "*get_init_inputs()"
    place = callee.module.shown
    raise UsageError("kernelgen_class_arguments", file=place, line=callee.node.lineno, name=callee.name)


def _imports_torch(module: Module) -> bool:
    names = [alias for node in module.tree.body if isinstance(node, ast.Import) for alias in node.names]
    return any(alias.name == "torch" and alias.asname in {None, "torch"} for alias in names)


def _with_torch(text: str) -> str:
    """The import, behind a docstring."""
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        return f"import torch\n\n{text}"
    lines = text.splitlines(keepends=True)
    at = tree.body[0].end_lineno or 0
    return "".join([*lines[:at], "\nimport torch\n", *lines[at:]])


# --- what an op must not do -------------------------------------------------------------------------------------------


def _cleaned(callee: Callee) -> tuple[list[Patch], list[Reason]]:
    """What both files get: no device by name, nothing that runs on import, no prints."""
    module = callee.module
    patches: list[Patch] = []
    reasons: list[Reason] = []
    devices = _device_names(module)
    around = _Around(callee, parents(module.tree), devices)
    for found in (_checks, _devices, _hints, _printed):
        more, why = found(around)
        patches += more
        reasons += why
    for node in module.tree.body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            patches.append(without(module, node))
            reasons.append(callee.reason("left_main", node.lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and dotted(node.value.func) != "print":
            patches.append(without(module, node))
            reasons.append(callee.reason("left_statement", node.lineno, what=ast.unparse(node)[:60]))
        elif isinstance(node, ast.Assign) and {dotted(target) for target in node.targets} & devices:
            patches.append(without(module, node))
    return patches, reasons


Found = tuple[list[Patch], list[Reason]]


@dataclass(frozen=True)
class _Around:
    """A file while it is cleaned."""

    callee: Callee
    above: Mapping[int, ast.AST]
    """id of a node -> the node that holds it"""
    devices: set[str]
    """top-level names of a device"""

    @property
    def module(self) -> Module:
        return self.callee.module

    def holders(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node lies in, from the inside out."""
        while id(node) in self.above:
            node = self.above[id(node)]
            yield node

    def function(self, node: ast.AST) -> Function | None:
        """The function around a node."""
        return next((each for each in self.holders(node) if isinstance(each, Function)), None)

    def tensor(self, node: ast.AST) -> str | None:
        """The first argument of the function around a node, but for the object itself."""
        function = self.function(node)
        names = [each.arg for each in function.args.args if each.arg not in {"self", "cls", "ctx"}] if function else []
        return names[0] if names else None

    def carried(self, node: ast.AST) -> bool:
        """Whether a node is in the op's files: not below the main guard, nor in a helper that makes inputs."""
        function = self.function(node)
        guarded = any(isinstance(each, ast.If) and "__name__" in ast.unparse(each.test) for each in self.holders(node))
        return not guarded and not (function and function.name in HELPERS)


def _device_names(module: Module) -> set[str]:
    """Top-level names of a device that is written out: DEVICE = torch.device("cuda")."""
    found = set()
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and _is_device(node.value, set()):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _is_device(node: ast.AST, names: set[str]) -> bool:
    """Whether it is "cuda", "cuda:0", torch.device("cuda"), Triton's active device, or a name of one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.split(":")[0] in {"cuda", "npu"}
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.IfExp):
        return _is_device(node.body, names)
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func)
    return name.endswith("get_active_torch_device") or (
        name == "torch.device" and bool(node.args) and _is_device(node.args[0], names)
    )


def _checks(around: _Around) -> Found:
    """Demands for an NVIDIA GPU: true everywhere; an assertion of nothing else goes."""
    module = around.module
    whole = [node for node in ast.walk(module.tree) if isinstance(node, ast.Assert) and _is_check(node.test)]
    gone = {id(inner) for node in whole for inner in ast.walk(node)}
    leaves = [
        node
        for node in ast.walk(module.tree)
        if id(node) not in gone and isinstance(node, ast.expr) and _is_check(node, leaf=True)
    ]
    patches = [_dropped(around, node) for node in whole] + [Patch(*span(module, node), "True") for node in leaves]
    lines = [*(node.lineno for node in whole), *(node.lineno for node in leaves)]
    return patches, [around.callee.reason("left_cuda_check", line) for line in lines]


def _is_check(node: ast.expr, *, leaf: bool = False) -> bool:
    """`x.is_cuda`, `x.device.type == "cuda"`; several joined by `and`, unless a leaf is asked for."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) and not leaf:
        return all(_is_check(each) for each in node.values)
    if isinstance(node, ast.Attribute):
        return node.attr == "is_cuda"
    compares = isinstance(node, ast.Compare) and len(node.comparators) == 1 and isinstance(node.ops[0], ast.Eq)
    return compares and dotted(node.left).endswith("device.type") and _is_device(node.comparators[0], set())  # type: ignore[attr-defined]


def _devices(around: _Around) -> Found:
    """A device that is written out becomes that of the first tensor of the function around it."""
    patches, reasons = list[Patch](), list[Reason]()
    for node in (each for each in ast.walk(around.module.tree) if isinstance(each, ast.Call)):
        tensor = around.tensor(node)
        found = list(_device_patches(around, node, f"{tensor}.device"))
        if tensor:
            patches += found
        elif found and around.function(node) and around.carried(node):
            reasons.append(around.callee.reason("left_device", node.lineno, what=ast.unparse(node)[:60]))
    return patches, reasons


def _device_patches(around: _Around, node: ast.Call, device: str) -> Iterator[Patch]:
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    given = [each.value for each in node.keywords if each.arg == "device"]
    given += node.args if method == "to" else []
    yield from (Patch(*span(around.module, each), device) for each in given if _is_device(each, around.devices))
    if method in {"cuda", "npu"} and not node.args and isinstance(node.func, ast.Attribute):
        end = span(around.module, node.func.value)[1]
        yield Patch(end, span(around.module, node)[1], f".to({device})")


def _hints(around: _Around) -> Found:
    """Take out tl.multiple_of on a plain arange: it promises what 1, 2 and 3 are not."""
    module, patches, reasons = around.module, list[Patch](), list[Reason]()
    for kernel in module.jitted:
        given = [node for node in ast.walk(kernel) if isinstance(node, ast.Assign) and _is_arange(node.value)]
        plain = {target.id for node in given for target in node.targets if isinstance(target, ast.Name)}
        for node in (each for each in ast.walk(kernel) if isinstance(each, ast.Call) and each.args):
            inner = node.args[0]
            promised = _is_arange(inner) or (isinstance(inner, ast.Name) and inner.id in plain)
            if dotted(node.func).endswith("multiple_of") and promised:
                start, end = span(module, inner)
                patches.append(Patch(*span(module, node), module.text[start:end]))
                reasons.append(around.callee.reason("left_multiple_of", node.lineno))
    return patches, reasons


def _is_arange(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).endswith("arange")


def _printed(around: _Around) -> Found:
    """Prints, in functions too: an op is called thousands of times."""
    prints = [
        node
        for node in ast.walk(around.module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "print"
    ]
    reasons = [around.callee.reason("left_print", node.lineno) for node in prints if around.carried(node)]
    return [_dropped(around, node) for node in prints], reasons


def _dropped(around: _Around, node: ast.stmt) -> Patch:
    """A statement taken out; `pass` where its block would be empty."""
    holder = around.above[id(node)]
    blocks = [getattr(holder, name, None) for name in ("body", "orelse", "finalbody")]
    alone = any(isinstance(block, list) and [id(each) for each in block] == [id(node)] for block in blocks)
    inner = alone and not isinstance(holder, ast.Module)
    return Patch(*span(around.module, node), "pass") if inner else without(around.module, node)


def _globals_read(callee: Callee) -> Iterator[Reason]:
    """Triton kernels that read what the file's top level binds, other than compile-time constants."""
    bound = {name: node for node in callee.module.tree.body for name, node in _variables(node)}
    for kernel in callee.module.jitted:
        own = {each.arg for each in (*kernel.args.args, *kernel.args.kwonlyargs)}
        stored = {
            node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        seen = set[str]()
        for node in (each for part in kernel.body for each in ast.walk(part)):
            name = node.id if isinstance(node, ast.Name) else ""
            if name in bound and name not in own | stored | seen and "constexpr" not in ast.unparse(bound[name]):
                seen.add(name)
                yield callee.reason("left_global", getattr(node, "lineno", 1), name=name, kernel=kernel.name)


def _variables(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))


def _fixed_dtypes(callee: Callee) -> Iterator[Reason]:
    """The reference is called in float64 too, so it must not fix a dtype."""
    for node in ast.walk(callee.node):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        fixed = any(dotted(each) in {f"torch.{name}" for name in DTYPES} for each in node.args)
        if (node.func.attr in {"half", "float", "bfloat16"} and not node.args) or (node.func.attr == "to" and fixed):
            yield callee.reason("left_fixed_dtype", node.lineno, what=ast.unparse(node)[:60])
