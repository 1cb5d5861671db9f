"""The case that a call is: its parameters, as the op's `make_inputs` takes them.

`case_of(**arguments)` beside `make_inputs`, if there is such a function, says so: it gets tensors without content on
torch's device meta. Else the suite's cases show which size of which tensor is which parameter.
"""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfci.extensions.workloads.hearing import TensorForm
from perfci.extensions.workloads.records import Call, write_params
from perfci.ops.spec import Performance

CASE_OF = "case_of"

_Place = tuple[str, str, int]  # parameter of the kernel, what of it (size, rest, dtype, value, given), which axis


class Fitter:
    """Finds the cases of an op's calls."""

    def __init__(self, suite: Performance, torch: Any) -> None:
        self._suite, self._torch = suite, torch
        self._usual, self._optional = _list_defaults(suite.kernel), _list_defaults(suite.make_inputs)

    def fit(self, call: Call, names: Mapping[str, Any]) -> Call:
        """Returns the call with its case, and with the bytes and operations that the suite declares for it.

        Raises whatever the functions of the op raise. The case stays unknown if no cases of the suite show it.
        """
        suite = self._suite
        case_of = getattr(inspect.getmodule(inspect.unwrap(suite.make_inputs)), CASE_OF, None)
        given = {name: self._make_meta(value) for name, value in names.items()} if case_of else {}
        params = case_of(**given) if case_of else self.infer(names)
        if params is None:
            return call
        moved, flops = (None if count is None else int(count(**params)) for count in (suite.bytes_moved, suite.flops))
        return replace(call, params=write_params(params), bytes_moved=moved, flops=flops)

    def infer(self, names: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the parameters for which `make_inputs` makes arguments of these forms. None if none are found."""
        names, first_case = {**self._usual, **names}, self._suite.cases[0]
        told = dict(_list_places(names))
        for first in ("size", "rest"):  # of x with three axes, rows may be the last but one, or all but the last joined
            params = dict[str, Any]()
            for name, (usual, places) in self._places.items():
                values = (told.get(place) for place in sorted(places, key=lambda place: place[1] != first))
                params[name] = next((value for value in values if value is not None), None) if places else usual
            kept = {name: one for name, one in params.items() if name in first_case or one != self._optional[name]}
            with contextlib.suppress(Exception):
                if _is_alike(self._make(kept), names):
                    return kept
        return None

    @functools.cached_property
    def _places(self) -> dict[str, tuple[Any, list[_Place]]]:
        """Parameter -> its value in the first case, and the places of arguments that have it in all cases."""
        cases = [{**self._optional, **case} for case in self._suite.cases]
        told = [dict(_list_places(self._make(case))) for case in cases]
        return {
            name: (usual, [place for place in told[0] if all(
                type(value := places.get(place)) is type(case.get(name)) and value == case.get(name)
                for case, places in zip(cases, told, strict=True)
            )])
            for name, usual in {**self._suite.cases[0], **cases[0]}.items()
        }  # fmt: skip

    def _make(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Forms of the arguments of a case, defaults included. No memory is taken for them."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            made = self._suite.make_inputs(**params, device="cpu", seed=0)
        return self._usual | {
            name: TensorForm(tuple(value.shape), tuple(value.stride()), value.dtype)
            if isinstance(value, self._torch.Tensor)
            else value
            for name, value in made.items()
        }

    def _make_meta(self, form: Any) -> Any:
        if not isinstance(form, TensorForm):
            return form
        return self._torch.empty_strided(form.shape, form.strides, dtype=form.dtype, device="meta")


def _list_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


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


def _is_alike(made: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    """Whether arguments have the forms of a call, but for leading axes that were joined."""
    for left, right in ((made.get(name), names.get(name)) for name in {*made, *names}):
        if isinstance(left, TensorForm) and isinstance(right, TensorForm):
            one, other = (
                (math.prod(form.shape), form.shape[-1:], form.strides[-1:], form.dtype) for form in (left, right)
            )
            if one != other:
                return False
        elif isinstance(left, TensorForm) or isinstance(right, TensorForm) or left != right:
            return False
    return True
