"""An op's search space, as `tuned/space.json` declares it: lists of values, entries, and what has to hold."""

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
from perfci.lab.tune.records import Config, Regime, Value, flat

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
        """Whether a configuration keeps to every rule; raises UsageError for a rule that names what nobody knows."""
        return all(rule({**names, **config}) for rule in self.valid)


@dataclass(frozen=True)
class Rule:
    """An expression over the names of a configuration, its entry and the device."""

    text: str
    tree: ast.expr
    path: Path

    def __call__(self, names: Names) -> Any:
        """Its value; raises UsageError where a name is unknown or the sum cannot be done."""
        try:
            return _value(self.tree, names)
        except KeyError as error:
            known = ", ".join(sorted(names))
            raise UsageError(
                "tune_rule_name", path=str(self.path), rule=self.text, name=error.args[0], known=known
            ) from error
        except (TypeError, ArithmeticError) as error:
            raise UsageError("tune_rule_broken", path=str(self.path), rule=self.text, why=str(error)) from error


def read_space(op: str, folder: Path) -> Space:
    """The space of the op in this folder; raises UsageError where there is none, StoredFileError for a damaged one."""
    path = folder / "tuned" / FILE
    try:
        tree = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError("tune_no_space", op=op, path=str(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, getattr(error, "strerror", None) or str(error)) from error
    if not isinstance(tree, dict):
        raise _damaged(path, say("it is no table"))
    if unknown := next((name for name in tree if name not in KEYS), None):
        raise _damaged(path, say("{key} is none of {known}", key=unknown, known=", ".join(KEYS)))
    lists = _lists(path, tree.get("config"))
    if not lists:
        raise _damaged(path, say("config names no value"))
    entries = tree.get("entries", [{}])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise _damaged(path, say("entries has to be a list of tables"))
    for entry in entries:
        _lists(path, entry.get("config", {}))
    rules, loads = tree.get("valid", []), tree.get("loads")
    if not isinstance(rules, list):
        raise _damaged(path, say("valid has to be a list of expressions"))
    return Space(
        path,
        lists,
        tuple(entries),
        tuple(_rule(path, rule) for rule in rules),
        None if loads is None else _rule(path, loads),
    )


def regimes(space: Space, tuned: Sequence[Mapping[str, Any]]) -> tuple[Regime, ...]:
    """The entries that a search is about, in the order in which a call asks them: the tuned file's, then the space's.

    Each entry of the file gets the lists of the space's entry that asks for the same.
    """
    left = [(_when(entry), _merged(space, entry)) for entry in space.entries]
    found = []
    for entry in tuned:
        when, current = _when(entry), flat(entry.get("config", {}))
        own = next(((w, lists) for w, lists in left if w == when and _agrees(lists, current)), None)
        if own:
            left.remove(own)
        lists = own[1] if own else space.lists
        # What an entry leaves out is the first of its list, as it is the simplest.
        found.append((when, lists, {**{name: values[0] for name, values in lists.items()}, **current}))
    labels: list[str] = []
    for when, lists, _ in (parts := [*found, *((when, lists, None) for when, lists in left)]):
        label = ",".join(f"{name}={_told(value)}" for name, value in when.items()) or "*"
        fixed = ",".join(f"{name}={_told(each[0])}" for name, each in lists.items() if len(each) == 1)
        label = f"{label}:{fixed}" if label in labels and fixed else label
        labels.append(label if label not in labels else f"{label}#{len(labels)}")
    return tuple(
        Regime(label, when, lists, current) for label, (when, lists, current) in zip(labels, parts, strict=True)
    )


def fixed(when: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that an entry fixes, for rules."""
    return {name: value for name, value in when.items() if isinstance(value, int | float | str)}


def _when(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "config"}


def _merged(space: Space, entry: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    return {**space.lists, **_lists(space.path, entry.get("config", {}))}


def _agrees(lists: Mapping[str, tuple[Value, ...]], current: Config) -> bool:
    """Whether a configuration has the switches that are given no choice; one left out is false."""
    switches = {name: values[0] for name, values in lists.items() if len(values) == 1 and isinstance(values[0], bool)}
    return all(current.get(name, False) is value for name, value in switches.items())


def _told(value: Any) -> str:
    return json.dumps(value, separators=(";", ":")).replace('"', "") if not isinstance(value, str) else value


def _lists(path: Path, table: Any) -> dict[str, tuple[Value, ...]]:
    if not isinstance(table, dict):
        raise _damaged(path, say("config has to be a table of lists"))
    found: dict[str, tuple[Value, ...]] = {}
    for name, values in flat(table).items():
        several = tuple(values) if isinstance(values, list) else (values,)
        plain = all(isinstance(value, int | float | str | bool) or value is None for value in several)
        if not several or not plain:
            raise _damaged(
                path, say("{name} has to be a list of numbers, texts, true and false, with one at least", name=name)
            )
        found[name] = several
    return found


def _damaged(path: Path, why: str) -> StoredFileError:
    return StoredFileError("tune_space_damaged", path=str(path), why=why)


# --- expressions ------------------------------------------------------------------------------------------------------

_SUMS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
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


def _rule(path: Path, text: Any) -> Rule:
    if not isinstance(text, str) or len(text) > LONGEST_RULE:
        raise _damaged(path, say("{text} is no text of up to {most} characters", text=repr(text), most=LONGEST_RULE))
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _damaged(path, say("{text} is no expression ({error})", text=repr(text), error=str(error))) from error
    return Rule(text, tree, path)


def _check(node: ast.expr) -> None:
    """Raises ValueError for anything but sums, comparisons, and calls of min and max."""
    if type(node) not in _WORKED:
        raise ValueError(f"{type(node).__name__} is not allowed")
    signs = [each for each in (getattr(node, "op", None), *getattr(node, "ops", ())) if each is not None]
    if strange := next((each for each in signs if type(each) not in _SUMS and not isinstance(each, _JOINS)), None):
        raise ValueError(f"{type(strange).__name__} is not allowed")
    if isinstance(node, ast.Call) and (node.keywords or ast.unparse(node.func) not in _CALLS):
        raise ValueError("only min and max may be called")
    parts = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for part in parts:
        if isinstance(part, ast.expr):
            _check(part)


def _value(node: Any, names: Names) -> Any:
    return _WORKED[type(node)](node, names)


def _joined(node: ast.BoolOp, names: Names) -> bool:
    values = (bool(_value(part, names)) for part in node.values)
    return all(values) if isinstance(node.op, ast.And) else any(values)


def _compared(node: ast.Compare, names: Names) -> bool:
    terms = itertools.pairwise([_value(each, names) for each in (node.left, *node.comparators)])
    return all(_SUMS[type(sign)](*pair) for sign, pair in zip(node.ops, terms, strict=True))


_JOINS = ast.And | ast.Or
_WORKED: Mapping[type[ast.AST], Callable[[Any, Names], Any]] = {
    ast.Constant: lambda node, _: node.value,
    ast.Name: lambda node, names: names[node.id],
    ast.Attribute: lambda node, names: names[ast.unparse(node)],  # keys.block_m
    ast.Tuple: lambda node, names: tuple(_value(part, names) for part in node.elts),
    ast.BinOp: lambda node, names: _SUMS[type(node.op)](_value(node.left, names), _value(node.right, names)),
    ast.UnaryOp: lambda node, names: _SUMS[type(node.op)](_value(node.operand, names)),
    ast.BoolOp: _joined,
    ast.Compare: _compared,
    ast.Call: lambda node, names: _CALLS[node.func.id](*(_value(part, names) for part in node.args)),
}
