"""The case that a call is: its parameters, as the op's `make_inputs` takes them.

`case_of(**arguments)` beside `make_inputs`, if there is such a function, says so: it gets tensors without content on
torch's device meta. Else the suite's cases show which size of which tensor is which parameter.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.extensions.workloads.hearing import Signature, TensorForm
from perfci.extensions.workloads.records import Call, Tensor, write_params
from perfci.ops.spec import Performance

CASE_OF = "case_of"

_Place = tuple[str, str, int]  # parameter of the kernel, what of it (size, rest, dtype, value, given), which axis


def bind(function: Callable[..., Any], signature: Signature) -> dict[str, Any]:
    """Returns the forms of a call's arguments by name, without defaults."""
    bound = inspect.signature(function).bind(
        *signature.args, **dict(zip(signature.names, signature.named, strict=True))
    )
    return dict(bound.arguments)


def fit(call: Call, names: Mapping[str, Any], suite: Performance, torch: Any) -> Call:
    """Returns the call with its case, and with the bytes and operations that the suite declares for it.

    Raises whatever the functions of the op raise. The case stays unknown if no cases of the suite show it.
    """
    home = inspect.getmodule(inspect.unwrap(suite.make_inputs))
    case_of = getattr(home, CASE_OF, None)
    params = case_of(**_make_meta(names, torch)) if case_of else infer(suite, names, torch)
    if params is None:
        return call
    moved, flops = (None if count is None else int(count(**params)) for count in (suite.bytes_moved, suite.flops))
    return replace(call, params=write_params(params), bytes_moved=moved, flops=flops)


def _make_meta(names: Mapping[str, Any], torch: Any) -> dict[str, Any]:
    return {
        name: torch.empty_strided(form.shape, form.strides, dtype=form.dtype, device="meta")
        if isinstance(form, TensorForm)
        else form
        for name, form in names.items()
    }


def infer(suite: Performance, names: Mapping[str, Any], torch: Any) -> dict[str, Any] | None:
    """Returns the parameters for which `make_inputs` makes arguments of these forms. None if none were recognised."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def make(params: Mapping[str, Any]) -> dict[str, Any]:
        with FakeTensorMode():
            made = suite.make_inputs(**params, device="cpu", seed=0)
        return {name: _read_form(value, torch) for name, value in made.items()}

    usual, optional = _list_defaults(suite.kernel), _list_defaults(suite.make_inputs)
    whole = [{**optional, **case} for case in suite.cases]
    examples = [(case, {**usual, **make(case)}) for case in whole]
    names = {**usual, **names}
    for first in ("size", "rest"):  # of x with three axes, rows may be the last but one, or all but the last joined
        params = dict[str, Any]()
        for name in {**dict.fromkeys(suite.cases[0]), **optional}:
            places = sorted(_find_places(name, examples), key=lambda place: place[1] != first)
            given = next((value for place in places if (value := _read_place(names, place)) is not None), None)
            params[name] = given if places else whole[0][name]
        kept = {name: value for name, value in params.items() if name in suite.cases[0] or value != optional[name]}
        with contextlib.suppress(Exception):
            if _is_alike({**usual, **make(kept)}, names):
                return kept
    return None


def _list_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _read_form(value: Any, torch: Any) -> Any:
    return (
        TensorForm(tuple(value.shape), tuple(value.stride()), value.dtype) if isinstance(value, torch.Tensor) else value
    )


def _find_places(name: str, examples: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> list[_Place]:
    """Returns the places of arguments that have the parameter's value in all cases."""
    common: list[_Place] | None = None
    for params, made in examples:
        here = [place for place, value in _list_places(made) if _is_same(value, params.get(name))]
        common = here if common is None else [place for place in common if place in here]
    return common or []


def _is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _list_places(made: Mapping[str, Any]) -> Iterator[tuple[_Place, Any]]:
    """Yields all that arguments tell: sizes from the front and the back, products of leading ones, dtypes, flags."""
    for name, form in made.items():
        yield (name, "given", 0), form is not None
        if isinstance(form, TensorForm):
            yield (name, "dtype", 0), form.dtype
            for axis in range(-len(form.shape), 0):
                yield (name, "size", axis), form.shape[axis]
                yield (name, "rest", axis), math.prod(form.shape[:axis])
        else:
            yield (name, "value", 0), form


def _read_place(names: Mapping[str, Any], place: _Place) -> Any:
    return dict(_list_places({place[0]: names.get(place[0])})).get(place)


def _is_alike(made: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    """Whether arguments have the forms of a call, but for leading axes that were joined."""
    for name in {*made, *names}:
        left, right = made.get(name), names.get(name)
        if isinstance(left, TensorForm) and isinstance(right, TensorForm):
            joined = math.prod(left.shape) == math.prod(right.shape) and left.shape[-1:] == right.shape[-1:]
            dense = left.strides[-1:] == right.strides[-1:]
            if left.dtype != right.dtype or not joined or not dense:
                return False
        elif isinstance(left, TensorForm) or isinstance(right, TensorForm) or left != right:
            return False
    return True


def describe_argument(value: object) -> str:
    """Writes an argument for people: 4096x1024 float16, or a flag."""
    if not isinstance(value, Tensor):
        return str(value)
    return f"{'x'.join(map(str, value.shape))} {value.dtype}" + ("" if value.strides is None else " strided")
