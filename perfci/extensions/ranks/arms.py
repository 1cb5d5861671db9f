"""What an op's files give a rank, real or virtual: what is timed, and what they declare of its traffic."""

import functools
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from perfci.extensions.ranks.records import BASE, COMMUNICATE, COMPUTE, KERNEL, REFERENCE
from perfci.extensions.ranks.spec import Traffic
from perfci.ops.spec import Params, Performance
from perfci.worker.load import LoadedOp

Function = Callable[..., Any]


def find_traffic(op: str) -> Traffic | None:
    """Returns what a loaded op declares of its traffic."""
    module = sys.modules.get(f"{op}_performance")
    return next((value for value in vars(module or object).values() if isinstance(value, Traffic)), None)


def make_arms(
    suite: Performance, base: LoadedOp | None, traffic: Traffic | None, inputs: Mapping[str, Any],
    names: Collection[str] | None = None,
) -> dict[str, Function]:  # fmt: skip
    """Returns what is timed, by name, each ready to be called. names: only these."""
    functions: dict[str, Function | None] = {KERNEL: suite.kernel, REFERENCE: suite.reference}
    functions[BASE] = base.performance.kernel if base else None
    arms: dict[str, Function] = {
        name: functools.partial(function, **inputs) for name, function in functions.items() if function
    }
    makers = {COMMUNICATE: traffic.communicate, COMPUTE: traffic.compute} if traffic else {}
    wanted = {name: make for name, make in makers.items() if make and (names is None or name in names)}
    arms |= {name: make(**inputs) for name, make in wanted.items()}
    return {name: call for name, call in arms.items() if names is None or name in names}


def describe_case(suite: Performance, traffic: Traffic | None, params: Params, ranks: int) -> Mapping[str, Any]:
    """Returns what an op declares of a case on one of so many ranks: fields of `CasePrepared`."""
    size = {"ranks": ranks}
    return {
        "activations": traffic.activations(**params) if traffic and traffic.activations else None,
        "sent_bytes": traffic.sent(**params, **size) if traffic else None,
        "moved_bytes": traffic.moved(**params, **size) if traffic and traffic.moved else None,
        "flops": suite.flops(**params) // ranks if suite.flops else None,
        "dtype": str(params.get("dtype", "")).removeprefix("torch."),
    }
