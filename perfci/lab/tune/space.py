"""An op's search space, as `tuned/space.json` declares it: lists of values, entries, and rules."""

from __future__ import annotations

import ast
import itertools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.wording import say
from perfci.lab.tune.records import Config, Regime, Value, flatten

FILE = "space.json"
KEYS = ("about", "config", "entries", "valid", "loads")
LONGEST_RULE = 500
"""Characters of an expression."""

Names = Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """What may be tried for an op."""

    path: Path
    lists: Mapping[str, tuple[Value, ...]]
    entries: tuple[Mapping[str, Any], ...]
    """as in a tuned file, with lists of its own under `config`"""
    valid: tuple[Rule, ...] = ()
    loads: Rule | None = None
    """bytes that all programs of a call load together"""

    def is_valid(self, config: Config, names: Names) -> bool:
        """Whether a configuration keeps to every rule. Raises UsageError if a rule cannot be evaluated."""
        return all(rule({**names, **config}) for rule in self.valid)


@dataclass(frozen=True)
class Rule:
    """An expression over the names of a configuration, its entry and the device."""

    text: str
    tree: ast.expr
    path: Path

    def __call__(self, names: Names) -> Any:
        """Its value. Raises UsageError if a name is unknown or the sum cannot be done."""
        facts = {"path": str(self.path), "rule": self.text}
        try:
            return _evaluate(self.tree, names)
        except KeyError as error:
            known = ", ".join(sorted(names))
            raise UsageError("tune_rule_name", **facts, name=error.args[0], known=known) from error
        except (TypeError, ArithmeticError) as error:
            raise UsageError("tune_rule_broken", **facts, why=str(error)) from error


def read_space(op: str, folder: Path) -> Space:
    """The space of the op in this folder. Raises UsageError if there is none, StoredFileError if it is damaged."""
    path = folder / "tuned" / FILE
    try:
        return _read_tree(path, json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise UsageError("tune_no_space", op=op, path=str(path)) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise StoredFileError("tune_space_damaged", path=str(path), why=why) from error


def _read_tree(path: Path, tree: Any) -> Space:
    """Raises ValueError or TypeError."""
    if not isinstance(tree, dict):
        raise TypeError(say("it is no table"))
    if unknown := next((name for name in tree if name not in KEYS), None):
        raise ValueError(say("{key} is none of {known}", key=unknown, known=", ".join(KEYS)))
    lists = _read_lists(tree.get("config"))
    if not lists:
        raise ValueError(say("config names no value"))
    entries = tree.get("entries", [{}])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise TypeError(say("entries has to be a list of tables"))
    for entry in entries:
        _read_lists(entry.get("config", {}))
    rules, loads = tree.get("valid", []), tree.get("loads")
    if not isinstance(rules, list):
        raise TypeError(say("valid has to be a list of expressions"))
    valid = tuple(_read_rule(path, rule) for rule in rules)
    return Space(path, lists, tuple(entries), valid, None if loads is None else _read_rule(path, loads))


def _read_lists(table: Any) -> dict[str, tuple[Value, ...]]:
    if not isinstance(table, dict):
        raise TypeError(say("config has to be a table of lists"))
    found: dict[str, tuple[Value, ...]] = {}
    for name, values in flatten(table).items():
        several = tuple(values) if isinstance(values, list) else (values,)
        if not several or not all(value is None or isinstance(value, int | float | str) for value in several):
            raise ValueError(
                say("{name} has to be a list of numbers, texts, true and false, with one at least", name=name)
            )
        found[name] = several
    return found


def list_regimes(space: Space, tuned: Sequence[Mapping[str, Any]]) -> tuple[Regime, ...]:
    """The entries that a search is about, in the order in which a call asks them: the tuned file's, then the space's.

    Each entry of the file gets the lists of the space's entry that asks for the same.
    """

    def split(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in entry.items() if name != "config"}

    left = [(split(entry), {**space.lists, **_read_lists(entry.get("config", {}))}) for entry in space.entries]
    parts: list[tuple[dict[str, Any], Mapping[str, tuple[Value, ...]], Config | None]] = []
    for entry in tuned:
        when, current = split(entry), flatten(entry.get("config", {}))
        own = next((each for each in left if each[0] == when and _has_switches(current, each[1])), None)
        if own:
            left.remove(own)
        lists = own[1] if own else space.lists
        # A value that an entry leaves out is the first of its list, as it is the simplest.
        parts.append((when, lists, {**{name: values[0] for name, values in lists.items()}, **current}))
    parts += [(when, lists, None) for when, lists in left]
    found: dict[str, Regime] = {}
    for when, lists, current_ in parts:
        label = ",".join(f"{name}={_describe(value)}" for name, value in when.items()) or "*"
        fixed = ",".join(f"{name}={_describe(each[0])}" for name, each in lists.items() if len(each) == 1)
        label = f"{label}:{fixed}" if label in found and fixed else label
        label = label if label not in found else f"{label}#{len(found)}"
        found[label] = Regime(label, when, lists, current_)
    return tuple(found.values())


def _has_switches(current: Config, lists: Mapping[str, tuple[Value, ...]]) -> bool:
    """Whether a configuration has the switches that are given no choice. A switch that is left out is false."""
    switches = {name: values[0] for name, values in lists.items() if len(values) == 1 and isinstance(values[0], bool)}
    return all(current.get(name, False) is value for name, value in switches.items())


def _describe(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(";", ":")).replace('"', "")


def pick_fixed(when: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that an entry fixes, for rules."""
    return {name: value for name, value in when.items() if isinstance(value, int | float | str)}


# --- expressions ------------------------------------------------------------------------------------------------------

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.And: all,
    ast.Or: any,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_CALLS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max}
_PARTS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call,
    ast.Load, *_OPERATORS,
)  # fmt: skip


def _read_rule(path: Path, text: Any) -> Rule:
    """A rule that holds nothing but sums, comparisons, and calls of min and max. Raises ValueError."""
    if not isinstance(text, str) or len(text) > LONGEST_RULE:
        raise ValueError(say("{text} is no text of up to {most} characters", text=repr(text), most=LONGEST_RULE))
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(say("{text} is no expression ({error})", text=repr(text), error=str(error))) from error
    for node in ast.walk(tree):
        why = "" if isinstance(node, _PARTS) else f"{type(node).__name__} is not allowed"
        if isinstance(node, ast.Call) and (node.keywords or ast.unparse(node.func) not in _CALLS):
            why = "only min and max may be called"
        if why:
            raise ValueError(say("{text} is no expression ({error})", text=repr(text), error=why))
    return Rule(text, tree, path)


def _evaluate(node: ast.expr, names: Names) -> Any:
    found: Any

    def evaluate(*parts: ast.expr) -> list[Any]:
        return [_evaluate(part, names) for part in parts]

    match node:
        case ast.Constant(found):
            pass
        case ast.Tuple(parts):
            found = tuple(evaluate(*parts))
        case ast.BinOp(left, sign, right):
            found = _OPERATORS[type(sign)](*evaluate(left, right))
        case ast.UnaryOp(sign, part):
            found = _OPERATORS[type(sign)](*evaluate(part))
        case ast.BoolOp(sign, parts):
            found = _OPERATORS[type(sign)](_evaluate(part, names) for part in parts)
        case ast.Compare(left, signs, parts):
            pairs = itertools.pairwise(evaluate(left, *parts))
            found = all(_OPERATORS[type(sign)](*pair) for sign, pair in zip(signs, pairs, strict=True))
        case ast.Call(ast.Name(name), parts):
            found = _CALLS[name](*evaluate(*parts))
        case _:  # a name, or one with dots such as keys.block_m
            found = names[ast.unparse(node)]
    return found
