"""`perfci.workload`: the cases of an op that a model calls, a few that stand for all."""

import importlib
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfci.core.errors import PerfciError, UsageError
from perfci.extensions.workloads.records import FOLDER, Call, Tensor, Workload, read_params, read_workload
from perfci.store.files import decode

MOST = 12  # cases that stand for all calls of an op
_APART = 1e3  # distance of cases that differ in a dtype or flag: farther than any two sizes


def list_cases(name: str, op: str | None = None, most: int = MOST) -> tuple[dict[str, Any], ...]:
    """The cases of an op that a workload calls, those that take most time first, as `cases=` takes them.

    >>> perfci.workload("llama-decode")  # doctest: +SKIP
    ({'rows': 32, 'cols': 4096, 'dtype': torch.bfloat16},)

    op: without it that of the file that calls this, OP_performance.py. If there are more than `most` cases, like sizes
    are clustered, and each cluster has its medoid for a case. Raises UsageError if there is no such workload, or if no
    call of the op in it has a known case.
    """
    file = Path(sys._getframe(1).f_code.co_filename).resolve()
    op = op or file.stem.rpartition("_")[0]
    kernels = next((folder for folder in file.parents if (folder / FOLDER).is_dir()), file.parent)
    calls = [call for call in read_workload(kernels, name).calls if call.op.rpartition("/")[2] == op]
    chosen = choose([call for call in calls if call.params is not None], most)
    if not chosen:
        raise UsageError("workload_lacks_op", name=name, op=op)
    return tuple(make_case(call) for call in chosen)


def write_calls(path: Path) -> str:
    """Returns the calls in the file of a workload as a benchmark in Python, for `perfci new`. Raises ValueError."""
    try:
        calls = decode(path, Workload).calls
    except PerfciError as error:
        raise ValueError(str(error)) from error
    lines = [f"    {call.op.rpartition('/')[2]}({', '.join(_write_arguments(call))})" for call in calls]
    return "\n".join(["def bench_calls():", *lines, "    pass"])


def _write_arguments(call: Call) -> Iterator[str]:
    for name, value in call.arguments.items():
        made = f"torch.empty({value.shape}, dtype=torch.{value.dtype})" if isinstance(value, Tensor) else repr(value)
        yield f"{name}={made}"


def make_case(call: Call) -> dict[str, Any]:
    """Returns the case of a call, with torch's dtypes."""
    params = read_params(call.params)
    dtypes = {name: value[6:] for name, value in params.items() if isinstance(value, str) and value[:6] == "torch."}
    return params | {name: getattr(importlib.import_module("torch"), dtype) for name, dtype in dtypes.items()}


def choose(calls: Sequence[Call], most: int = MOST) -> list[Call]:
    """Returns calls that stand for all: of each case one, of each cluster its medoid, the weightiest cluster first.

    A call weighs what it takes, or how often it comes if no one timed it. Clusters are those of average linkage on the
    logarithms of sizes; what differs in a dtype or flag is never in one.
    """
    by_case, weighed = {call.case: call for call in calls}, Counter[str | None]()
    for call in calls:
        weighed[call.case] += call.count if call.us is None else call.us  # type: ignore[assignment]
    distinct, weights = list(by_case.values()), np.array([weighed[case] for case in by_case])
    groups, points = list(range(len(distinct))), place([read_params(call.params) for call in distinct])
    if len(distinct) > most:
        from scipy.cluster.hierarchy import fcluster, linkage

        groups = list(fcluster(linkage(points, "average"), most, "maxclust"))
    medoids = []
    for group in dict.fromkeys(groups):
        members = [at for at, of in enumerate(groups) if of == group]
        apart = np.linalg.norm(points[members][:, None] - points[members][None], axis=-1)
        medoids.append((weights[members].sum(), distinct[members[int(np.argmin(apart @ weights[members]))]]))
    return [call for _, call in sorted(medoids, key=lambda pair: -pair[0])]


def place(cases: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, Any]:
    """Returns a point for each case: logarithms of its sizes, and an axis for each value of anything else."""
    names = dict.fromkeys(name for case in cases for name in case)
    sizes = [name for name in names if all(type(case.get(name)) is int and case[name] >= 0 for case in cases)]
    values = dict.fromkeys((name, repr(case.get(name))) for case in cases for name in names if name not in sizes)
    return np.array([
        [math.log2(1 + case[name]) for name in sizes]
        + [_APART * (repr(case.get(name)) == value) for name, value in values]
        for case in cases
    ])  # fmt: skip
