"""The files of tuning: an op's search space, its tuned files, and the descriptions of devices."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from perfci.core.codec import decode
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.wording import say
from perfci.extensions.lab.tune.records import Choice, Config, Regime, Value, flatten, nest

ABOUT = "First entry that fits a call: NAME_max holds up to a number, a list any of its values, else equal."

FOLDER = "_devices"
GENERIC = "generic"  # key of every device without a description

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

# --- the search space -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """Values to try for an op: `tuned/space.json`."""

    path: Path
    lists: Mapping[str, tuple[Value, ...]]
    entries: tuple[Mapping[str, Any], ...]  # as in a tuned file, with lists of their own under `config`
    valid: tuple[Rule, ...] = ()

    def is_valid(self, config: Config, names: Mapping[str, Any]) -> bool:
        """Whether a configuration keeps to every rule. Raises UsageError if a rule cannot be evaluated."""
        return all(rule({**names, **config}) for rule in self.valid)


@dataclass(frozen=True)
class Rule:
    """An expression over the names of a configuration, its entry and the device."""

    text: str
    code: CodeType
    path: Path

    def __call__(self, names: Mapping[str, Any]) -> Any:
        """Its value. Raises UsageError if a name is unknown or the sum cannot be done."""
        facts = {"path": str(self.path), "rule": self.text}
        try:
            return eval(self.code, {"__builtins__": {"min": min, "max": max}}, dict(names))
        except NameError as error:
            listed = ", ".join(sorted(names))
            raise UsageError("tune_rule_name", **facts, name=error.name, known=listed) from error
        except (TypeError, ArithmeticError) as error:
            raise UsageError("tune_rule_broken", **facts, why=str(error)) from error


@dataclass(frozen=True)
class _SpaceFile:
    config: dict[str, Any]
    entries: tuple[dict[str, Any], ...] = ({},)
    valid: tuple[str, ...] = ()
    about: Any = None


def read_space(op: str, folder: Path) -> Space:
    """The space of the op in this folder. Raises UsageError if there is none, StoredFileError if it is damaged."""
    path = folder / "tuned" / "space.json"
    try:
        text = read_regular(path)
        space, fields = decode(text, _SpaceFile), list(_SpaceFile.__dataclass_fields__)
        if unknown := [name for name in json.loads(text) if name not in fields]:
            raise ValueError(say("{key} is none of {known}", key=unknown[0], known=", ".join(fields)))
        lists = _read_lists(space.config)
        if not lists or not space.entries:
            raise ValueError(say("config and entries must not be empty"))
        for entry in space.entries:
            _read_lists(entry.get("config", {}))
        return Space(path, lists, space.entries, tuple(_read_rule(path, rule) for rule in space.valid))
    except FileNotFoundError:
        raise UsageError("tune_no_space", op=op, path=str(path)) from None
    except _UNREADABLE as error:
        raise StoredFileError("tune_space_damaged", path=str(path), why=str(error)) from error


def _read_lists(table: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    lists = {name: tuple(values) if isinstance(values, list) else (values,) for name, values in flatten(table).items()}
    for name, values in lists.items():
        if not values or not all(value is None or isinstance(value, int | float | str) for value in values):
            raise ValueError(
                say("{name} has to be a list of numbers, texts, true and false, with one at least", name=name)
            )
    return lists


_PARTS = (
    ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.Call, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
"""All that a rule may be made of: sums, comparisons, and calls of min and max."""


def _read_rule(path: Path, text: str) -> Rule:
    """Raises ValueError if the text is no rule."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(say("{text} is no expression ({error})", text=repr(text), error=str(error))) from error
    for node in ast.walk(tree):
        call = isinstance(node, ast.Call) and (node.keywords or ast.unparse(node.func) not in {"min", "max"})
        if call or not isinstance(node, _PARTS):
            raise ValueError(say("{text} is no expression ({error})", text=repr(text), error=ast.unparse(node)))
    return Rule(text, compile(_Names().visit(tree), str(path), "eval"), path)


class _Names(ast.NodeTransformer):
    """Makes a dotted name, such as keys.block_m, one name: no attribute of any value is read."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)


def list_regimes(space: Space, tuned: Sequence[Mapping[str, Any]]) -> tuple[Regime, ...]:
    """The entries of a search in the order in which a call asks them: the tuned file's, then the space's."""

    def split(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in entry.items() if name != "config"}

    def fits(current: Config, lists: Mapping[str, tuple[Value, ...]]) -> bool:
        """Whether a configuration has the switches that are given no choice. One that is left out is false."""
        switches = {
            name: values[0] for name, values in lists.items() if len(values) == 1 and isinstance(values[0], bool)
        }
        return all(current.get(name, False) is value for name, value in switches.items())

    left = [(split(entry), {**space.lists, **_read_lists(entry.get("config", {}))}) for entry in space.entries]
    parts: list[tuple[dict[str, Any], Mapping[str, tuple[Value, ...]], Config | None]] = []
    for entry in tuned:
        when, current = split(entry), flatten(entry.get("config", {}))
        match = next((part for part in left if part[0] == when and fits(current, part[1])), (when, space.lists))
        left = [part for part in left if part is not match]
        # A value that an entry leaves out is the first of its list, as it is the simplest.
        parts.append((when, match[1], {**{name: values[0] for name, values in match[1].items()}, **current}))
    parts += [(when, lists, None) for when, lists in left]
    regimes: dict[str, Regime] = {}
    for when, lists, current_config in parts:
        label = ",".join(f"{name}={_describe(value)}" for name, value in when.items()) or "*"
        fixed = ",".join(f"{name}={_describe(values[0])}" for name, values in lists.items() if len(values) == 1)
        label = f"{label}:{fixed}" if label in regimes and fixed else label
        label = label if label not in regimes else f"{label}#{len(regimes)}"
        regimes[label] = Regime(label, when, lists, current_config)
    return tuple(regimes.values())


def _describe(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(";", ":")).replace('"', "")


def pick_fixed(when: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that an entry fixes, for rules."""
    return {name: value for name, value in when.items() if isinstance(value, int | float | str)}


# --- tuned files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedFile:
    """A tuned file as it was read. Without entries if there is none."""

    path: Path
    text: str = ""
    about: str = ABOUT
    entries: tuple[Mapping[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """Of its text, empty if there is no file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12] if self.text else ""


def read_tuned(path: Path) -> TunedFile:
    """Reads the file. Raises StoredFileError if it is damaged."""
    try:
        text = read_regular(path).decode()
        tree = json.loads(text)
        entries = tuple(tree["configs"])
        for entry in entries:
            flatten(entry["config"])
    except FileNotFoundError:
        return TunedFile(path)
    except _UNREADABLE as error:
        raise StoredFileError("tune_file_damaged", path=str(path), why=str(error)) from error
    return TunedFile(path, text, str(tree.get("about", ABOUT)), entries)


def change_tuned(file: TunedFile, regimes: Sequence[Regime], choices: Sequence[Choice]) -> str:
    """The file's text with the choices, one entry a line. Of entries with the same bounds the first is replaced."""
    wanted = {choice.regime.label: choice.config for choice in choices if choice.changed}
    if not wanted:
        return file.text
    entries: list[Mapping[str, Any]] = []
    for place, regime in enumerate(regimes):
        config = wanted.pop(regime.label, None)
        if config is not None:
            entries.append({**regime.when, "config": nest(config)})
        elif place < len(file.entries):
            entries.append(file.entries[place])
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "about": {json.dumps(file.about)},\n  "configs": [\n{lines}\n  ]\n}}\n'


# --- device descriptions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    value: Any
    source: str


def read_numbers(kernels: Path, key: str) -> Mapping[str, Any]:
    """Numbers of the device with this key, for rules. Empty if it has no description. Raises StoredFileError."""
    folder = kernels / FOLDER
    fitting = [path for path in folder.glob("*.json") if f"{key}-".startswith(f"{path.stem}-")]
    path = max(fitting, key=lambda file: len(file.stem), default=folder / f"{GENERIC}.json")
    if not path.is_file():
        return {}
    try:
        fields = decode(read_regular(path), dict[str, _Field])
    except (OSError, ValueError) as error:
        raise StoredFileError("device_spec_damaged", path=str(path), why=str(error)) from error
    return {name: given.value for name, given in fields.items() if isinstance(given.value, int | float)}
