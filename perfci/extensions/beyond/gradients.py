"""Gradients of an op that autograd can differentiate, beside those of the reference in float64.

The derivative is made an op: its inputs are those of the op and the gradients of its outputs, its outputs the gradients
of the inputs. So it is checked as every op is, in values, shape, dtype, layout and memory.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError, gradcheck

from perfci.core.model import AccuracyCase, Reason, because
from perfci.device.seam import Accelerator
from perfci.measure.bench import Describe
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.verify import Check, list_probes, verify
from perfci.ops.spec import Accuracy

GIVEN = "gradient_"  # what names of the gradients of outputs begin with

LAYOUTS = ("contiguous", f"strided {GIVEN}0", f"expanded {GIVEN}0")
"""How gradients of outputs lie in memory: that of a sum is expanded"""

SMALL, MOST_ELEMENTS = (3, 8, 16), 256
"""Largest size of a case to compare gradients with differences: the first that the op takes. Of all inputs"""

STEPS, RTOL, ATOL = (1e-2, 4e-3), 2e-2, 2e-3
"""Steps of float32 by which inputs are moved, each of which has to show a fault, and what its rounding may do"""


def check_gradients(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe
) -> Iterator[AccuracyCase]:
    """Yields checks of the gradients of each probe case: all at once, each alone, and after another call."""
    for params in list_probes(suite, pattern) if suite.gradients else ():
        check = Check(params, "normal", "contiguous", 0, fresh=False)
        try:
            names = list_differentiable(suite, device, check)
        except Exception as error:
            why = Reason("reference_raised", {"case": check.case, **describe(error)})
            yield check.result(failure=why, raised=True)
            continue
        if failure := _find_lost(suite, device, check, names, describe):
            yield failure
            continue
        for layout in LAYOUTS if names else ():
            made = replace(check, layout=layout)
            yield _tell(made, verify(differentiate(suite, names), device, made, describe), ", ".join(names))
        for name in names if len(names) > 1 else ():
            yield _tell(check, verify(differentiate(suite, [name]), device, check, describe), name)
        if names:
            yield _tell(check, verify(differentiate(suite, names, again=True), device, check, describe), "")
    if suite.gradients and (result := check_differences(suite, device, pattern)):
        yield result


def check_differences(suite: Accuracy, device: Accelerator, pattern: str | None) -> AccuracyCase | None:
    """Compare the kernel's gradients at one small case with differences of its answers, whatever the reference says.

    None without such a case. Where the reference fails alike, the function has no gradient.
    """
    for check in list_small(suite, pattern):
        try:
            inputs = bound_inputs(suite, check.params, device.arrays.device, check.seed)
            names = [name for name, value in inputs.items() if _is_number(value)]
            if sum(inputs[name].numel() for name in names) > MOST_ELEMENTS:
                continue
            given = derive(suite.kernel, inputs, names, list_given(suite.reference, inputs, check.seed))
        except Exception:  # of a size that the op does not have, or a gradient that other checks tell of
            continue
        of = [name for name, gradient in zip(names, given, strict=True) if gradient is not None]
        wrong = [compare_differences(suite.kernel, inputs, of, step) for step in STEPS] if of else []
        if not wrong or not all(wrong) or not _is_smooth(suite, device, check, inputs, of):
            return check.result() if of else None
        message = " ".join(wrong[0].split())[:200].rstrip(".")
        return check.result(failure=Reason("gradient_not_numeric", {"case": check.case, "message": message}))
    return None


def _is_smooth(
    suite: Accuracy, device: Accelerator, check: Check, inputs: Mapping[str, Any], of: Sequence[str]
) -> bool:
    """Whether the reference's gradients are its differences. One without gradients says nothing against it."""
    return {*of}.isdisjoint(list_differentiable(suite, device, check)) or not compare_differences(
        suite.reference, inputs, of, STEPS[0]
    )


def list_small(suite: Accuracy, pattern: str | None) -> Iterator[Check]:
    """Yields the first probe case in float32 with ever larger small sizes."""
    for params in list_probes(suite, pattern)[:1]:
        single = {name: torch.float32 if isinstance(value, torch.dtype) else value for name, value in params.items()}
        for most in SMALL:
            small = {name: min(value, most) if type(value) is int else value for name, value in single.items()}
            yield Check(small, "normal", "contiguous", 0, fresh=False)


def compare_differences(function: Callable[..., Any], inputs: Mapping[str, Any], of: Sequence[str], step: float) -> str:
    """Returns how gradients differ from differences of the answers. Empty if they do not, or if there are none."""

    def call(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {**inputs, **dict(zip(of, leaves, strict=True))}
        return tuple(output for output in flat(function(**given)) if _is_number(output))

    leaves = [inputs[name].detach().clone().requires_grad_() for name in of]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of inputs that are not float64
        try:
            gradcheck(call, leaves, eps=step, atol=ATOL, rtol=RTOL, nondet_tol=ATOL)
        except GradcheckError as error:
            return str(error)
        except Exception:  # of a function without gradients
            return ""
    return ""


def list_differentiable(suite: Accuracy, device: Accelerator, check: Check) -> list[str]:
    """Returns the inputs of which the reference has gradients."""
    inputs = bound_inputs(suite, check.params, device.arrays.device, check.seed)
    names = [name for name, value in inputs.items() if torch.is_tensor(value) and value.is_floating_point()]
    given = derive(suite.reference, inputs, names, list_given(suite.reference, inputs, check.seed))
    return [name for name, gradient in zip(names, given, strict=True) if gradient is not None]


def _find_lost(
    suite: Accuracy, device: Accelerator, check: Check, names: Sequence[str], describe: Describe
) -> AccuracyCase | None:
    """Inputs of which the reference has gradients and the kernel none. A kernel that raises is told of too."""
    inputs = bound_inputs(suite, check.params, device.arrays.device, check.seed)
    try:
        given = derive(suite.kernel, inputs, names, list_given(suite.reference, inputs, check.seed))
    except Exception as error:
        return check.result(failure=Reason("gradient_raised", {"case": check.case, **describe(error)}), raised=True)
    lost = [name for name, gradient in zip(names, given, strict=True) if gradient is None]
    facts = {"case": check.case, "names": ", ".join(lost)}
    return check.result(failure=Reason("gradient_lost", facts)) if lost else None


def _tell(check: Check, result: AccuracyCase, names: str) -> AccuracyCase:
    """The result of a derivative's check as one of the op's. What a tolerance lets pass is told of the op itself."""
    failure = result.failure and because(
        "wrong_gradient" if names else "gradient_of_second", result.failure, names=names
    )
    return check.result(
        failure=failure, raised=result.raised, errors=result.errors, rtol=result.rtol, atol=result.atol,
        reference_errors=result.reference_errors,
    )  # fmt: skip


def differentiate(suite: Accuracy, of: Sequence[str], *, again: bool = False) -> Accuracy:
    """Returns the suite of the gradients of some inputs, with only these asked for.

    again: another call with other inputs comes between forward and backward, and the
    backward pass is made twice.
    """

    def make_inputs(device: str, seed: int, **params: Any) -> Mapping[str, Any]:
        inputs = suite.make_inputs(**params, device=device, seed=seed)
        given = list_given(suite.reference, inputs, seed)
        return {**inputs, **{f"{GIVEN}{place}": value for place, value in enumerate(given)}}

    def turn(function: Callable[..., Any], *, twice: bool) -> Callable[..., Any]:
        return functools.partial(_call, function, of, again=twice)

    return replace(
        suite,
        kernel=turn(suite.kernel, twice=again),
        reference=turn(suite.reference, twice=False),
        make_inputs=make_inputs,
        mutates=(),
        deterministic=False,  # many add up atomically in the backward pass alone
    )


def _call(function: Callable[..., Any], of: Sequence[str], *, again: bool, **inputs: Any) -> list[torch.Tensor]:
    """Call a function and its backward pass. A gradient that is none counts as zeros."""
    given = [inputs.pop(name) for name in sorted(name for name in inputs if name.startswith(GIVEN))]
    gradients = derive(function, inputs, of, given, again=again)
    memory = {value.untyped_storage().data_ptr() for value in given}
    made = [torch.zeros_like(inputs[name]) if one is None else one for name, one in zip(of, gradients, strict=True)]
    # The gradient of a sum is the given one itself.
    return [one.clone() if one.untyped_storage().data_ptr() in memory else one for one in made]


def derive(
    function: Callable[..., Any], inputs: Mapping[str, Any], of: Sequence[str], given: Sequence[Any],
    *, again: bool = False,
) -> list[torch.Tensor | None]:  # fmt: skip
    """Returns the gradients of these inputs, None for one without.

    given: those of the outputs that are numbers, in order.
    """
    with torch.enable_grad():
        leaves = {name: inputs[name].detach().requires_grad_() for name in of}
        outputs = [output for output in flat(function(**{**inputs, **leaves})) if _is_number(output)]
        pairs = [(out, gradient) for out, gradient in zip(outputs, given, strict=False) if out.requires_grad]
        if not pairs:
            return [None for _ in of]
        if again:
            others = {name: inputs[name].detach().clone().mul_(2).requires_grad_() for name in of}
            kept = function(**{**inputs, **others})  # which may not touch what the first call has saved
            _ask(pairs, [*leaves.values()])
            del kept
        return _ask(pairs, [*leaves.values()])


def _ask(pairs: Sequence[tuple[Any, Any]], leaves: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    outputs, casted = zip(*((output, given.to(output.dtype)) for output, given in pairs), strict=True)
    return [*torch.autograd.grad(outputs, leaves, casted, retain_graph=True, allow_unused=True)]


def _is_number(output: Any) -> bool:
    return isinstance(output, torch.Tensor) and output.is_floating_point()


def list_given(reference: Callable[..., Any], inputs: Mapping[str, Any], seed: int) -> list[torch.Tensor]:
    """Returns gradients of the outputs of a call, drawn by a seed."""
    with torch.no_grad():
        outputs = [output for output in flat(reference(**inputs)) if _is_number(output)]
    drawn = list[torch.Tensor]()
    for place, output in enumerate(outputs):
        generator = torch.Generator("cpu").manual_seed(1000 * seed + place)
        numbers = torch.randn(output.shape, generator=generator, dtype=torch.float32)
        drawn.append(numbers.to(output.dtype).to(output.device))
    return drawn
