"""What an op's imported suites have to be: whatever is wrong with their fields is a ContractError with the file."""

import difflib
import inspect
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perfci.core.errors import ContractError
from perfci.ops.spec import LAYOUTS, MORE_VALUES, SEARCHED, VALUES, Accuracy, Params, Performance, case_id, is_maker

SHOWN = 600  # characters of a name that is refused
_LONGEST_PEER = 40  # characters of a peer's name
_DTYPE = re.compile(r"bool|u?int(8|16|32|64)|b?float16|float(32|64)|complex(32|64|128)|float[48]_\w+")
_ARMS = frozenset({"kernel", "reference", "base"})  # what else is timed in a case


def parameters(function: Any) -> list[str]:
    """Returns the names of a function's parameters, in order."""
    return list(inspect.signature(function).parameters)


@contextmanager
def checking(file: str) -> Iterator[None]:
    """Raises ContractError that names the file for fields that cannot be read at all."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise ContractError("suite_broken", file=file, error=type(error).__name__, message=str(error)) from error


def check_cases(cases: Sequence[Params], file: str) -> None:
    """Cases are a list of mappings, at least one, with ids that differ."""
    if not len(cases):
        raise ContractError("no_cases", file=file)
    ids = Counter(case_id(params) for params in cases)
    if twice := next((case for case in ids if ids[case] > 1), None):
        raise ContractError("case_twice", file=file, case=twice)


def check_calls(
    function: Callable[..., Any], cases: Sequence[Params], file: str, kind: str = "make_inputs_mismatch"
) -> None:
    """A function can be called with each case's parameters, device and seed."""
    for params in cases:
        try:
            inspect.signature(function).bind(**{**params, "device": None, "seed": None})
        except (TypeError, ValueError) as error:
            facts = {"case": case_id(params), "takes": ", ".join(parameters(function)), "message": str(error)}
            raise ContractError(kind, file=file, **facts) from error


def check_suite(suite: Accuracy | Performance, file: str) -> None:
    """Kernel and reference take the same, and make_inputs takes every case."""
    kernel, reference = (", ".join(parameters(function)) for function in (suite.kernel, suite.reference))
    if kernel != reference:
        raise ContractError("signatures_differ", file=file, kernel=kernel, reference=reference)
    check_cases(suite.cases, file)
    more = (suite.accelerator_cases, suite.large_cases) if isinstance(suite, Accuracy) else ()
    for cases in filter(None, more):
        check_cases(cases, file)
    check_calls(suite.make_inputs, [*suite.cases, *itertools.chain(*more)], file)


def check_names(suite: Accuracy) -> None:
    """What the suite names is there: else it would be checked by nothing. Raises TypeError or ValueError."""
    parameters = dict.fromkeys(name for case in suite.cases for name in case)
    _refuse_unknown("values", suite.values, dict.fromkeys((*VALUES, *MORE_VALUES, *SEARCHED)))
    _refuse_unknown("layouts", suite.layouts, LAYOUTS)
    _refuse_unknown("invariant", suite.invariant, parameters)
    _refuse_unknown("permutes", suite.permutes, parameters)
    least, largest = suite.domain
    if least is not None and largest is not None and least > largest:
        raise ValueError(f"domain is {suite.domain}, but its first number has to be the smaller one")


def _refuse_unknown(field: str, names: Iterable[str], known: Iterable[str]) -> None:
    if isinstance(names, str):
        raise TypeError(f"{field} is the text {names!r}, but has to be a tuple, such as ({names!r},)")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{field} has {unknown[0]!r}, which is none of {', '.join(map(repr, known))}")


def check_tolerance(suite: Accuracy | Performance) -> None:
    """Each tolerance is of a dtype, and two numbers from 0 on. Raises TypeError or ValueError."""
    for name, pair in (suite.tolerance or {}).items():
        if not isinstance(name, str) or not _DTYPE.fullmatch(name):
            raise ValueError(f"tolerance has {name!r}, which is no name of a dtype, such as 'float16'")
        if len(pair) != 2 or not all(0.0 <= number < math.inf for number in pair):
            raise ValueError(f"tolerance of {name} is {pair!r}, but has to be (rtol, atol), finite and not negative")


def check_ranks(suite: Accuracy, file: str) -> None:
    """Sizes of groups are whole numbers. Raises ContractError."""
    sizes = suite.ranks if isinstance(suite.ranks, tuple | list) else (suite.ranks,)
    if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
        raise ContractError("ranks_misfit", file=file, found=repr(suite.ranks))


def check_quantised(suite: Accuracy, file: str) -> None:
    """Every case has the parameter that names how it is scaled, and `store` takes it."""
    if suite.large_part is not None:
        inspect.signature(suite.large_part)
    quantised = suite.quantised
    if quantised is None:
        return
    check_cases(quantised.cases, file)
    for params in quantised.cases:
        if quantised.mode not in params:
            facts = {"mode": quantised.mode, "case": case_id(params), "known": ", ".join(params) or "-"}
            raise ContractError("quantised_mode", file=file, **facts)
    check_calls(quantised.store, quantised.cases, file, "quantised_mismatch")


def check_earlier_names(op: str, accuracy: Accuracy, performance: Performance, file: str) -> None:
    """Each case had only one earlier name, which no case has now."""
    renamed, before = performance.renamed, performance.renamed_from
    counts = Counter(old for old in renamed.values() if isinstance(old, str))
    cases = {case_id(params) for suite in (performance, accuracy) for params in suite.cases}
    for case, old in renamed.items():
        if case not in cases:
            near = difflib.get_close_matches(case, sorted(cases), n=1, cutoff=0.0)
            raise ContractError("renamed_unknown", file=file, case=case, near=near[0])
        if not isinstance(old, str) or old in cases or counts[old] > 1:
            raise ContractError("renamed_taken", file=file, case=case, old=old)
    if before is not None and (not isinstance(before, str) or not before.isidentifier() or before == op):
        raise ContractError("renamed_from", file=file, op=op, found=repr(before))


def check_peers(suite: Performance, file: str) -> None:
    """Further implementations: names that differ, and functions that the reference's arguments fit."""
    reference = parameters(suite.reference)
    for name, function in suite.peers.items():
        plain = name.isprintable() and name == name.strip() and name not in _ARMS
        if not plain or not 0 < len(name) <= _LONGEST_PEER:
            raise ContractError("peer_name", file=file, name=repr(name)[:SHOWN], most=_LONGEST_PEER)
        if not callable(function):
            raise TypeError(f"the peer {name} is no function")
        if is_maker(function):
            continue
        try:
            inspect.signature(function).bind(**dict.fromkeys(reference))
        except ValueError:  # some builtins have no signature
            continue
        except TypeError as error:
            facts = {"takes": ", ".join(parameters(function)), "reference": ", ".join(reference)}
            raise ContractError("peer_signature", file=file, name=name, **facts) from error
