"""What of a sketch's tests is not carried over: each with file and line and why, so that nothing is lost in silence."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from perfci.core.model import Fact, Reason
from perfci.measure.closeness import TOLERANCES
from perfci.scaffold.reading import Module, dotted
from perfci.scaffold.walking import COMPARISONS, Comparison, Walk

_TIMING = re.compile(
    r"\btime\.(time|perf_counter|monotonic)|\bperf_counter|cuda\.Event|elapsed_time|do_bench|synchronize\(|\.record\("
)
_PLOTS = re.compile(r"\bplt\b|matplotlib|savefig|\bplot\b|\.plot\(|show_plots|ylabel|plot_name|perf_report")
_RATES = re.compile(r"gbps|gb_s|bandwidth|tflops|gflops|flops|throughput|1e-0?9\b|1e-12\b")
_SEEDS = re.compile(r"manual_seed|random\.seed")
_DIFFERENCE = re.compile(r"diff|err|mae\b|rmse|mse\b|atol|rtol|\btol\b|\.abs\(\)\.max\(\)", re.IGNORECASE)
_SPEEDUP = re.compile(r"speed_?up|ratio|faster|acceleration", re.IGNORECASE)
_LENGTH = re.compile(r"\b\w*(ms|time|latency|us|seconds)\b", re.IGNORECASE)
_HARD = re.compile(r"\.shape\b|\.dtype\b|\.device\b|\.size\(|isnan|isinf|isfinite|is_contiguous|\.stride\(")

_GROUPS = ("prints", "timing", "plots", "rates", "seeds", "other")
"""What is told in one line a file, with all its lines."""


@dataclass
class Left:
    """What a test file has that the suites do not, and what of its checks they do."""

    reasons: list[Reason] = field(default_factory=list)
    carried: list[Reason] = field(default_factory=list)
    tolerance: dict[str, tuple[float, float]] = field(default_factory=dict)
    """dtype -> (rtol, atol) that are stricter than perfci's own"""


def left_of(op: str, module: Module, walk: Walk, entry: str, dtypes: Iterable[str]) -> Left:
    """Everything of one test file; `dtypes` are those of its cases."""
    found = Left()
    file = module.path.name
    constants = _constants(module)
    groups: dict[str, set[int]] = {name: set() for name in _GROUPS}
    checks = set[int]()
    asserted: list[Comparison] = []
    clocks = _clocks(module, entry)
    for node, guarded in _statements(module):
        if isinstance(node, ast.Assert):
            _assertion(op, file, node.test, node.lineno, constants, found, checks, asserted)
        elif not guarded and (group := "timing" if id(node) in clocks else _group(node, walk, entry)):
            groups[group].add(node.lineno)
    for test in _refusals(module):
        _assertion(op, file, test, test.lineno, constants, found, checks, asserted)
    _targets(op, file, module, constants, found)
    _tolerances(file, [*walk.comparisons, *asserted], tuple(dtypes), found)
    found.reasons += _seconds_as_ms(file, module)
    found.reasons += [_grouped(file, name, lines) for name, lines in groups.items() if lines]
    if checks:
        found.carried.append(_grouped(file, "checks", checks))
    return found


def _grouped(file: str, name: str, lines: Iterable[int]) -> Reason:
    ordered = sorted(lines)
    facts: dict[str, Fact] = {"file": file, "lines": ", ".join(map(str, ordered))}
    return Reason(f"carried_{name}" if name == "checks" else f"left_{name}", facts)


# --- statements -------------------------------------------------------------------------------------------------------

_SIMPLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Assert | ast.Return | ast.Delete


def _statements(module: Module) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement that holds no others, and whether it only says what follows from a comparison that failed."""
    refusing = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and (_is_comparison(node.test) or _HARD.search(ast.unparse(node.test)))
        for body in node.body
        for inner in ast.walk(body)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, _SIMPLE) and not (isinstance(node, ast.Assert) and id(node) in refusing):
            yield node, id(node) in refusing and not _is_print(node)


def _clocks(module: Module, entry: str) -> set[int]:
    """Ids of all that stands in helpers which take times."""
    helpers = [node for name, node in module.functions.items() if name != entry]
    timing = [node for node in helpers if not node.decorator_list and _TIMING.search(ast.unparse(node))]
    return {id(inner) for node in timing for inner in ast.walk(node)}


def _group(node: ast.stmt, walk: Walk, entry: str) -> str | None:
    """The group of what is left; None for what is carried, or says nothing."""
    text = ast.unparse(node)
    if _is_print(node):
        return "prints"
    for name, pattern in (("timing", _TIMING), ("plots", _PLOTS), ("seeds", _SEEDS)):
        if pattern.search(text):
            return name
    return None if _says_nothing(node, walk, entry) else "rates" if _RATES.search(text) else "other"


def _says_nothing(node: ast.stmt, walk: Walk, entry: str) -> bool:
    """A docstring, the test's own call, what became a case, and differences and speedups, which perfci computes."""
    value = node.value if isinstance(node, ast.Expr) else None
    own = isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and dotted(value.func) == entry)
    names = " ".join(dotted(target) for target in getattr(node, "targets", []))
    computed = bool(_DIFFERENCE.search(names) or _SPEEDUP.search(names))
    target = any(isinstance(each, ast.Compare) and _SPEEDUP.search(ast.unparse(each)) for each in ast.walk(node))
    return own or id(node) in walk.understood or computed or target


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "print"


# --- assertions -------------------------------------------------------------------------------------------------------


def _assertion(
    op: str,
    file: str,
    test: ast.expr,
    line: int,
    constants: Mapping[str, float],
    found: Left,
    checks: set[int],
    asserted: list[Comparison],
) -> None:
    """Sort one assertion: what perfci checks by itself, a tolerance, a target, or something else."""
    text = ast.unparse(test)
    limit = _limit(test, constants)
    if _is_comparison(test):
        return  # told with its tolerances
    if _SPEEDUP.search(text) and limit is not None:
        return  # told as a target
    if isinstance(test, ast.Compare) and limit is not None and _DIFFERENCE.search(ast.unparse(test.left)):
        asserted.append(Comparison("assert", line, 0.0, limit, None))
    elif _HARD.search(text):
        checks.add(line)
    elif isinstance(test, ast.Compare) and limit is not None and _LENGTH.search(ast.unparse(test.left)):
        found.reasons.append(Reason("left_time_limit", {"file": file, "line": line, "what": text, "op": op}))
    elif text not in {"False", "True"}:
        found.reasons.append(Reason("left_assertion", {"file": file, "line": line, "what": text}))


def _refusals(module: Module) -> Iterator[ast.expr]:
    """Conditions of an `if` that raises or asserts False."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If) and any(_refuses(each) for each in node.body):
            yield node.test


def _refuses(node: ast.stmt) -> bool:
    fails = isinstance(node, ast.Assert) and ast.unparse(node.test) == "False"
    return fails or isinstance(node, ast.Raise)


def _is_comparison(node: ast.AST) -> bool:
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any((dotted(call.func) or getattr(call.func, "attr", "")).split(".")[-1] in COMPARISONS for call in calls)


def _constants(module: Module) -> dict[str, float]:
    """Numbers that names are bound to, anywhere in the file."""
    found: dict[str, float] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, int | float) and not isinstance(value, bool):
                found |= {target.id: float(value) for target in node.targets if isinstance(target, ast.Name)}
    return found


def _limit(test: ast.expr, constants: Mapping[str, float]) -> float | None:
    """The number that something is compared with."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return None
    for side in (test.comparators[0], test.left):
        if isinstance(side, ast.Constant) and isinstance(side.value, int | float):
            return float(side.value)
        if isinstance(side, ast.Name) and side.id in constants:
            return constants[side.id]
    return None


def _targets(op: str, file: str, module: Module, constants: Mapping[str, float], found: Left) -> None:
    """Speedups that the sketch asks for: proposed as a line of the op's thresholds."""
    for node in ast.walk(module.tree):
        limit = _limit(node, constants) if isinstance(node, ast.Compare) else None
        if limit is not None and isinstance(node, ast.Compare) and _SPEEDUP.search(ast.unparse(node)):
            facts: dict[str, Fact] = {"file": file, "line": node.lineno, "target": f"{limit:g}", "op": op}
            found.reasons.append(Reason("left_speedup", facts))


# --- tolerances -------------------------------------------------------------------------------------------------------


def _tolerances(file: str, comparisons: Iterable[Comparison], dtypes: tuple[str, ...], found: Left) -> None:
    seen: set[tuple[object, ...]] = set()
    for each in comparisons:
        for dtype in [each.dtype] if each.dtype else dtypes:
            key = (each.line, each.rtol, each.atol, dtype)
            if dtype in TOLERANCES and key not in seen and not math.isnan(each.rtol or 0) + math.isnan(each.atol or 0):
                _tolerance(file, each, dtype, found)
            elif key not in seen and str(key) not in {str(one) for one in seen}:
                found.reasons.append(Reason("left_tolerance_unknown", {"file": file, "line": each.line}))
            seen.add(key)


def _tolerance(file: str, each: Comparison, dtype: str, found: Left) -> None:
    own = TOLERANCES[dtype]
    if each.rtol is None and each.atol is None:
        found.carried.append(Reason("carried_tolerance_usual", {"file": file, "line": each.line, "dtype": dtype}))
        return
    rtol, atol = (given if given is not None else 0.0 for given in (each.rtol, each.atol))
    facts: dict[str, Fact] = {"file": file, "line": each.line, "dtype": dtype, "rtol": f"{rtol:g}", "atol": f"{atol:g}"}
    if rtol > own[0] or atol > own[1]:
        more: dict[str, Fact] = {"own_rtol": f"{own[0]:g}", "own_atol": f"{own[1]:g}"}
        found.reasons.append(Reason("left_tolerance", facts | more))
        return
    before = found.tolerance.get(dtype, own)
    found.tolerance[dtype] = (min(rtol, before[0]), min(atol, before[1]))
    found.carried.append(Reason("carried_tolerance", facts))


# --- times ------------------------------------------------------------------------------------------------------------


def _seconds_as_ms(file: str, module: Module) -> Iterator[Reason]:
    """Differences of time.time(), which are seconds, that are printed with "ms" behind them."""
    seconds = {
        target.id
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign) and _is_seconds(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                name = dotted(value.value) if isinstance(value, ast.FormattedValue) else ""
                behind = str(text.value) if isinstance(text, ast.Constant) else ""
                if name in seconds and re.match(r"\s*ms\b", behind):
                    yield Reason("left_seconds_as_ms", {"file": file, "line": node.lineno, "name": name})


def _is_seconds(node: ast.expr) -> bool:
    text = ast.unparse(node)
    clock = re.search(r"(time\.time|perf_counter)\(\)\s*-", text)
    return bool(clock) and not re.search(r"\*\s*(1000|1e3|1e\+?0?3|1000\.0)\b", text)
