"""Import an op's two suite files and hold them to the contract. Runs in the worker only."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.errors import ContractError
from perfci.core.model import Fact, Reason
from perfci.core.wording import as_fact
from perfci.ops.spec import Accuracy, Performance, Quantised, case_id, is_maker

_MESSAGE_LIMIT = 600

_LONGEST_PEER = 40
"""Characters of a peer's name."""

_ARMS = frozenset({"kernel", "reference", "base"})
"""What else is timed in a case."""


@dataclass(frozen=True)
class LoadedOp:
    """An op's declarations, imported."""

    accuracy: Accuracy
    performance: Performance


def load_op(op: str, folder: Path, shared: Path) -> LoadedOp:
    """Import both suites; raises ContractError that names file and line for whatever the files do wrong."""
    with _importing_from(folder, shared):
        accuracy = _suite(folder / f"{op}_accuracy.py", "accuracy", Accuracy)
        performance = _suite(folder / f"{op}_performance.py", "performance", Performance)
    for suite, name in ((accuracy, "accuracy"), (performance, "performance")):
        _check_fields(suite, folder / f"{op}_{name}.py")
        _check_signatures(suite, folder / f"{op}_{name}.py")
    _check_large(accuracy, folder / f"{op}_accuracy.py")
    _check_quantised(accuracy.quantised, folder / f"{op}_accuracy.py")
    _check_names(op, accuracy, performance, folder / f"{op}_performance.py")
    _check_peers(performance, folder / f"{op}_performance.py")
    return LoadedOp(accuracy, performance)


def import_roots(folder: Path, shared: Path) -> list[str]:
    """Where an op's imports are looked for first: its folder, and each above it up to the folder of all ops."""
    above = folder.parents if folder.is_relative_to(shared) else ()
    between = [each for each in above if each != shared and each.is_relative_to(shared)]
    return [str(folder), *map(str, between), str(shared)]


def describe_exception(error: BaseException, folder: Path) -> dict[str, Fact]:
    """Type, message, and the last line of the op's own files that the exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    frame = own[-1] if own else (frames[-1] if frames else None)
    text = " ".join(str(error).split())
    return {
        "error": type(error).__name__,
        "message": text[:_MESSAGE_LIMIT] or "no message",
        "file": Path(frame.filename).name if frame else None,
        "line": frame.lineno if frame else None,
    }


def call_reason(kind: str, error: BaseException, folder: Path, **facts: Fact) -> Reason:
    """A reason for an exception that user code raised."""
    return Reason(kind, {**facts, **describe_exception(error, folder)})


def imported(path: Path, name: str, kind: type[Any], shared: Path) -> Any:
    """What a file binds to a name, imported as when it is run by its path; ContractError where it is no `kind`."""
    with _importing_from(path.parent, shared):
        return _suite(path, name, kind)


@contextmanager
def _importing_from(folder: Path, shared: Path) -> Iterator[None]:
    """As when a suite is run by its path."""
    before = list(sys.path)
    sys.path[:0] = import_roots(folder, shared)
    try:
        yield
    finally:
        sys.path[:] = before


def _suite(path: Path, name: str, kind: type[Any]) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ContractError as error:
        # The suite itself refused what it was given; only here is it known where that stands.
        place, said = describe_exception(error, path.parent), error.reason.facts
        raise ContractError(
            "cache_misfit", file=place["file"], line=place["line"], found=said.get("found"), known=said.get("known")
        ) from error
    except (Exception, SystemExit) as error:
        raise ContractError("import_failed", suite=path.name, **describe_exception(error, path.parent)) from error
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        raise ContractError("suite_not_built", file=path.name, name=name, kind=kind.__name__)
    return found


def _check_fields(suite: Accuracy | Performance, path: Path) -> None:
    for field in ("kernel", "reference", "make_inputs"):
        if not _has_signature(found := getattr(suite, field)):
            raise _misfit(path, field, as_fact("a Python function"), found)
    if not isinstance(suite.cases, Sequence):
        raise _misfit(path, "cases", as_fact("a list or tuple"), suite.cases)
    if not suite.cases:
        raise ContractError("no_cases", file=path.name)
    for params in suite.cases:
        if not isinstance(params, Mapping):
            raise _misfit(path, as_fact("every case"), as_fact("a mapping of names to values"), params)


def _misfit(path: Path, field: str, wanted: str, found: Any) -> ContractError:
    return ContractError("suite_field", file=path.name, field=field, wanted=wanted, found=type(found).__name__)


def _check_signatures(suite: Accuracy | Performance, path: Path) -> None:
    ids = [case_id(params) for params in suite.cases]
    twice = next((case for case in ids if ids.count(case) > 1), None)
    if twice:
        raise ContractError("case_twice", file=path.name, case=twice)
    kernel, reference = (parameters(function) for function in (suite.kernel, suite.reference))
    if kernel != reference:
        raise ContractError(
            "signatures_differ", file=path.name, kernel=", ".join(kernel), reference=", ".join(reference)
        )
    for params in suite.cases:
        wanted = {**params, "device": None, "seed": None}
        try:
            inspect.signature(suite.make_inputs).bind(**wanted)
        except TypeError as error:
            raise ContractError(
                "make_inputs_mismatch",
                file=path.name,
                case=case_id(params),
                takes=", ".join(parameters(suite.make_inputs)),
                message=str(error),
            ) from error


def _check_large(suite: Accuracy, path: Path) -> None:
    """What only a soak runs: cases that make_inputs takes, and a function that cuts inputs."""
    if not isinstance(suite.large_cases, Sequence):
        raise _misfit(path, "large_cases", as_fact("a list or tuple"), suite.large_cases)
    if suite.large_part is not None and not _has_signature(suite.large_part):
        raise _misfit(path, "large_part", as_fact("a Python function"), suite.large_part)
    if not suite.large_cases:
        return
    for params in suite.large_cases:
        if not isinstance(params, Mapping):
            raise _misfit(path, as_fact("every case of large_cases"), as_fact("a mapping of names to values"), params)
    _check_signatures(dataclasses.replace(suite, cases=suite.large_cases), path)


def _check_quantised(quantised: Any, path: Path) -> None:
    """What is said of storage in low precision: cases, and a function that takes them."""
    if quantised is None:
        return
    if not isinstance(quantised, Quantised):
        raise _misfit(path, "quantised", as_fact("a perfci.Quantised"), quantised)
    if not _has_signature(quantised.store):
        raise _misfit(path, "quantised.store", as_fact("a Python function"), quantised.store)
    if not isinstance(quantised.cases, Sequence) or not all(isinstance(params, Mapping) for params in quantised.cases):
        raise _misfit(
            path, "quantised.cases", as_fact("a list or tuple of mappings of names to values"), quantised.cases
        )
    if not quantised.cases:
        raise ContractError("quantised_no_cases", file=path.name)
    ids = [case_id(params) for params in quantised.cases]
    if twice := next((case for case in ids if ids.count(case) > 1), None):
        raise ContractError("case_twice", file=path.name, case=twice)
    for params in quantised.cases:
        _check_store(quantised, params, path)


def _check_store(quantised: Quantised, params: Mapping[str, Any], path: Path) -> None:
    if quantised.mode not in params:
        known = ", ".join(params)
        raise ContractError(
            "quantised_mode", file=path.name, mode=quantised.mode, case=case_id(params), known=known or "-"
        )
    try:
        inspect.signature(quantised.store).bind(**{**params, "device": None, "seed": None})
    except TypeError as error:
        takes = ", ".join(parameters(quantised.store))
        raise ContractError(
            "quantised_mismatch", file=path.name, case=case_id(params), takes=takes, message=str(error)
        ) from error


def _check_names(op: str, accuracy: Accuracy, performance: Performance, path: Path) -> None:
    """What the suite says of earlier names: each case had but one, which no case has now."""
    renamed, before = performance.renamed, performance.renamed_from
    told = isinstance(renamed, Mapping) and all(isinstance(name, str) for pair in renamed.items() for name in pair)
    if not told:
        raise _misfit(path, "renamed", as_fact("a mapping of a case's id to the id that it had before"), renamed)
    cases = {case_id(params) for suite in (performance, accuracy) for params in suite.cases}
    for case, old in renamed.items():
        if case not in cases:
            near = difflib.get_close_matches(case, sorted(cases), n=1, cutoff=0.0)
            raise ContractError("renamed_unknown", file=path.name, case=case, near=near[0])
        if old in cases:
            raise ContractError("renamed_present", file=path.name, case=case, old=old)
        if twice := [other for other in renamed if other != case and renamed[other] == old]:
            raise ContractError("renamed_twice", file=path.name, case=case, other=twice[0], old=old)
    if before is not None and (not isinstance(before, str) or not before.isidentifier() or before == op):
        raise ContractError("renamed_from", file=path.name, op=op, found=repr(before))


def _check_peers(suite: Performance, path: Path) -> None:
    """Further implementations: names that tell them apart, and functions that the reference's arguments fit."""
    if not isinstance(suite.peers, Mapping):
        raise _misfit(path, "peers", as_fact("a mapping of names to functions"), suite.peers)
    known: dict[str, str] = {}
    for name, function in suite.peers.items():
        if not _is_peer_name(name):
            raise ContractError("peer_name", file=path.name, name=repr(name)[:_MESSAGE_LIMIT], most=_LONGEST_PEER)
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise ContractError("peer_twice", file=path.name, name=name, other=other)
        if not callable(function):
            raise _misfit(path, f"peers[{name!r}]", as_fact("a function"), function)
        _check_peer(name, function, suite, path)


def _is_peer_name(name: object) -> bool:
    said = isinstance(name, str) and name.isprintable() and name == name.strip() and name not in _ARMS
    return said and 0 < len(str(name)) <= _LONGEST_PEER


def _check_peer(name: str, function: Any, suite: Performance, path: Path) -> None:
    if not _has_signature(function) or is_maker(function):
        return
    given = parameters(suite.reference)
    try:
        inspect.signature(function).bind(**dict.fromkeys(given))
    except TypeError as error:
        takes, reference = ", ".join(parameters(function)), ", ".join(given)
        raise ContractError("peer_signature", file=path.name, name=name, takes=takes, reference=reference) from error


def _has_signature(function: Any) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def parameters(function: Any) -> list[str]:
    """Names of a function's parameters, in order."""
    return list(inspect.signature(function).parameters)
