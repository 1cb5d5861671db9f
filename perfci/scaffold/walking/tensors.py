"""Torch's ways to make and to change a tensor, as text with sizes; no torch is needed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.scaffold.walking.values import MARK, UNKNOWN, Dtype, Tensor

DTYPES = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float32": "float32", "float": "float32",
    "float64": "float64", "double": "float64", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "int": "int32", "long": "int64", "bool": "bool", "uint8": "uint8",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip

RANDOM = ("randn", "rand", "randint", "randn_like", "rand_like")
FACTORIES = (*RANDOM, "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "empty_like", "arange")

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


def tensor_made(name: str, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """What a call of one of FACTORIES makes; UNKNOWN where its sizes, limits or dtype cannot be told."""
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


def combined(sign: ast.operator, left: Any, right: Any) -> Any:
    """A tensor and a tensor or a number; UNKNOWN with anything else."""
    symbol = _SIGNS.get(type(sign))
    tensor = left if isinstance(left, Tensor) else right
    if symbol is None:
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
    return replace(tensor, text=f"({texts[0]} {symbol} {texts[1]})", sizes=sizes)


def tensor_method(owner: Tensor, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What a method of a tensor gives; UNKNOWN for one that is not followed."""
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


def _as(owner: Tensor, dtype: str) -> Tensor:
    """Made in this dtype to begin with; where an integer becomes a float or the reverse, converted."""
    if owner.text.count(MARK + "torch.") == 1 and ("int" in owner.dtype) == ("int" in dtype):
        old, new = (f"{MARK}torch.{each}{MARK}" for each in (owner.dtype, dtype))
        return replace(owner, text=owner.text.replace(old, new), dtype=dtype)
    return replace(owner, text=f"{owner.text}.to({MARK}torch.{dtype}{MARK})", dtype=dtype)
