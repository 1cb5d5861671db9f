"""Declarations of an op's files: its cases, its accuracy suite and its performance suite. Imports no torch."""

import fnmatch
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from perfci.core.model import Cache
from perfci.ops.backends import DEFAULT

Params = Mapping[str, Any]  # one case's parameters by name, as given to `make_inputs`

VALUES = ("normal", "zeros", "ones", "tiny", "large", "subnormal", "nan", "inf", "cancellation")
"""Kinds of values that the accuracy suite fills floating-point inputs with."""

MORE_VALUES = ("mixed", "peaked", "masked")
"""`mixed` is for pointwise ops: each input has 0, 1, -1, infinities and NaN alone. For others in `peaked` one number of
each row is far above the rest, at the place that an integer input names, and in `masked` each row begins with some
-infinity."""

SEARCHED = (
    "confident", "ties", "sorted", "repeated", "wide", "constants", "subnormal", "one nan", "one infinity", "edges",
)  # fmt: skip
"""Kinds of values on which faults are searched that a suite does not see. Most are made of the suite's inputs: one
number of each row far above the others, few distinct numbers, sorted rows, runs of equal numbers, magnitudes far apart,
numbers around the literals of the kernel's file, one NaN, one infinity. `edges` are sizes around those literals."""

CACHES: tuple[Cache, ...] = get_args(Cache)
"""The L2 cache when a timed launch begins: nothing of the launch's own, or what the same call just used."""

LAYOUTS = ("contiguous", "strided", "expanded", "pitched")
"""Memory layouts of inputs: as make_inputs made them. Every second element of a larger buffer; stride 0 along the first
axis; a gap behind each row."""


def list_inputs(function: Callable[..., Any]) -> list[str]:
    """Returns the parameters of a function that may be arrays: without a default or an annotation that excludes it.

    Nothing for a function of C.
    """
    try:
        takes = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        take.name for take in takes if take.default is take.empty and take.annotation not in {int, float, bool, str}
    ]


def grid(**axes: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the axes, the last one varying fastest.

    >>> [case_id(c) for c in grid(rows=[1, 2], cols=[8])]
    ['rows=1,cols=8', 'rows=2,cols=8']
    """
    lists = [list(values) for values in axes.values()]
    return tuple(dict(zip(axes, point, strict=True)) for point in itertools.product(*lists))


def case_id(params: Params) -> str:
    """The one text that names a case everywhere.

    >>> case_id({"rows": 4096, "dtype": "torch.float16"})
    'rows=4096,dtype=float16'
    """
    return ",".join(f"{name}={_text(value)}" for name, value in params.items())


def matches(case: str, pattern: str | None) -> bool:
    """Whether a case id fits the --case pattern: a glob over the whole id, or over its `name=value` parts in any order.

    An id fits itself, whatever it holds.

    >>> matches("rows=7,cols=9,dtype=float16", "dtype=float16,rows=*"), matches("shape=[7;9]", "shape=[7;9]")
    (True, True)
    """
    if pattern is None or pattern == case or fnmatch.fnmatchcase(case, pattern):
        return True
    parts = case.split(",")
    return all(any(fnmatch.fnmatchcase(part, want) for part in parts) for want in pattern.split(","))


def name_parameters(signature: Iterable[str]) -> tuple[str, ...]:
    """A kernel's parameters, of its signature as a run has it: names, stars and defaults.

    >>> name_parameters(["x: Tensor", "*", "factor: float=2", "-> Tensor"])
    ('x', 'factor=2')
    """
    return tuple(re.sub(": [^=]*", "", parameter) for parameter in signature if parameter[:2] not in {"*", "/", "->"})


@dataclass(frozen=True)
class Performance:
    """An op's performance suite.

    `kernel` and `reference` have one signature. Where the kernel is the function of one of the op's backends, or the
    reference, the suite holds for all of them: perfci puts that of each backend's file in its place.
    `make_inputs(**case, device=..., seed=...)` returns their arguments by name. `bytes_moved(**case)` is the least
    number of bytes that must cross device memory, `flops(**case)` the number of floating-point operations. Both are
    optional and give GB/s and TFLOP/s.
    """

    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    make_inputs: Callable[..., Mapping[str, Any]]
    cases: Sequence[Params]
    bytes_moved: Callable[..., int] | None = None
    flops: Callable[..., int] | None = None
    reduces: Callable[..., int] | None = None
    tolerance: Mapping[str, tuple[float, float]] | None = None
    mutates: Sequence[str] | None = None
    """all three as in `Accuracy`, with values that hold where these are None"""
    cache: Cache = "cold"
    """cold: L2 is flushed before each timed launch. warm: the same call was made some times directly before on the same
    buffers, untimed, so that L2 holds what it can of them. Times of one are never compared with the other's"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a case of either suite -> the id that it had before: its baseline and history go on under the new one"""
    renamed_from: str | None = None  # name that the op had before: it goes on with its baseline and history
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """name -> another implementation, which `--backend all` times beside the kernel: a function with the reference's
    parameters, or one without parameters that makes such a function, called once a case before it is timed. Either
    raises NotImplementedError for a case that it does not support"""
    backend: str = DEFAULT  # whose kernel this is, as perfci fills in


@dataclass(frozen=True)
class Stored:
    """A tensor as an op stores it in low precision, beside what it was made of. All arrays of the case's device."""

    original: Any  # before it was quantised, float16 or wider, of any shape
    values: Any  # what is stored, of the same shape
    scale: Any  # what the values are multiplied with: one element, or as many axes as values with one element a group
    group: Sequence[int] | None = None
    """how many values share a scale along each axis, such as (1, 128), the last group of an axis holding what is left.
    It may be left out where each side of scale is 1 or that of values"""
    dtype: str | None = None
    """format of the values, such as float8_e4m3fn, where their dtype is a wider one that stands in for it"""


@dataclass(frozen=True)
class Quantised:
    """That an op stores tensors in low precision, so that the errors of this are recorded by scaling mode.

    `store(**case, device=..., seed=...)` quantises what one case is about and returns each tensor by name as `Stored`:
    {"a": Stored(...), "b": Stored(...)}. It is called once a case with a fixed seed, so that its figures move with
    code and versions alone; torch's generators give the same numbers for the same seed on the same kind of device.
    Each tensor becomes a separate case with the id `stored=NAME,` and what `case_id` makes of the case.
    """

    store: Callable[..., Mapping[str, Stored]]
    cases: Sequence[Params]
    mode: str = "scaling"  # parameter of the cases that names how they are scaled
    among: Sequence[str] = ("dtype", "group")
    """further parameters that distinguish ways of storing the same tensor, as far as cases have them.
    Cases that differ in these and in `mode` alone are shown side by side, and advice names the one to change to"""

    @property
    def ways(self) -> frozenset[str]:
        """All parameters that distinguish ways of storing the same tensor."""
        return frozenset({self.mode, *self.among})


STORED = "stored"  # what the ids of stored tensors begin with, as if it were their first parameter


def is_maker(function: Callable[..., Any]) -> bool:
    """Whether a peer takes no arguments, and so makes the function that is timed."""
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


def stored_id(tensor: str, params: Params) -> str:
    """The id of a stored tensor of a case.

    >>> stored_id("a", {"m": 8, "scaling": "row"})
    'stored=a,m=8,scaling=row'
    """
    return case_id({STORED: tensor, **params})


def is_stored(case: str) -> bool:
    """Whether an id is that of a stored tensor.

    >>> is_stored("stored=a,m=8"), is_stored("m=8"), is_stored("stored_m=8")
    (True, False, False)
    """
    return case.startswith(f"{STORED}=")


@dataclass(frozen=True)
class Accuracy:
    """An op's accuracy suite.

    Every case is checked with normal values and several seeds, one of them strided or pitched if `layouts` has these.
    The `probe_cases` are checked with every kind of `values` and every one of `layouts` too.
    """

    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    make_inputs: Callable[..., Mapping[str, Any]]
    cases: Sequence[Params]
    probe_cases: Sequence[Params] | None = None
    """cases that get every kind of values and layouts; by default the largest case of each dtype"""
    values: Sequence[str] = VALUES
    layouts: Sequence[str] = LAYOUTS
    reduces: Callable[..., int] | None = None
    """number of terms that one output element sums; widens atol by its square root, and by the mean magnitude of the
    floating-point inputs if that is above 1"""
    tolerance: Mapping[str, tuple[float, float]] | None = None
    """dtype -> (rtol, atol), where torch.testing's are not the right ones"""
    domain: tuple[float | None, float | None] = (None, None)
    """least and largest number that the op is defined on: other kinds of values than normal ones are cut to it"""
    mutates: Sequence[str] = ()
    """arguments that kernel and reference write into, such as x of relu_(x) or out: every call gets fresh ones"""
    tolerance_reason: str | None = None
    """why an atol of `tolerance` may exceed a tenth of the root mean square of an answer, which is refused otherwise"""
    rejects: Sequence[tuple[str, Callable[[str], Mapping[str, Any]]]] = ()
    """(what is wrong, function of the device that makes such inputs): the kernel must raise TypeError or ValueError"""
    deterministic: bool = True  # the same inputs give the same bits; False for kernels that add atomically
    invariant: Sequence[str] = ()  # parameters, such as rows, of which one gets the same bits alone as among others
    permutes: Sequence[str] = ()  # parameters along which permuted inputs get the permuted answer
    gradients: bool = False  # autograd differentiates kernel and reference alike
    graph: bool = False  # calls may be captured in a graph: a replay has the answer to what its inputs hold then
    idempotent: bool = False  # its answer, given for the first input like it, is its answer
    uses_dot: bool = False  # multiplies matrices: a term of a sum is a product of two inputs
    quantised: Quantised | None = None  # which tensors the op stores in low precision; None: none
    accelerator_cases: Sequence[Params] = ()
    """more cases, too large for Triton's interpreter, or of paths that it does not take"""
    large_cases: Sequence[Params] = ()
    """cases in which an array has more than 2^31 elements; only `perfci soak` runs them, if memory suffices"""
    ranks: int | Sequence[int] = 1
    """processes that call it together, each with a board, or several such numbers: `perfci ranks` makes their group.
    `make_inputs` then takes `rank` and `ranks` too, with 0 and 1 where there is no group"""
    large_part: Callable[[Mapping[str, Any], int, int], Mapping[str, Any]] | None = None
    """(inputs, start, stop) -> the inputs that the elements start to stop of the outputs' first axis come from. None:
    inputs as long as the outputs along their first axis, and with no fewer axes, are cut there"""
    backend: str = DEFAULT  # whose kernel this is, as perfci fills in


def _text(value: Any) -> str:
    return str(value).removeprefix("torch.").replace(",", ";").replace(" ", "")
