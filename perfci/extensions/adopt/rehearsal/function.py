"""Parameters of an op of a function: as its tests or torch call it, else as trials show.

Arguments are tried until the function and its reference accept them and agree on the shapes of the outputs.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import importlib
import importlib.util
import inspect
import itertools
import math
import os
import pkgutil
import re
import sys
import time
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfci.core.errors import UsageError
from perfci.core.extensions import provided
from perfci.core.model import Reason
from perfci.device import open_device
from perfci.extensions.adopt.rehearsal import corrected, operators, search, sketched
from perfci.extensions.adopt.rehearsal.answers import explain, find_ties, list_mutated, write_answers, write_real
from perfci.extensions.adopt.rehearsal.axes import (
    Call,
    Form,
    Outcome,
    list_form,
    list_sides,
    make_call,
    size_call,
    write_tuple,
)
from perfci.extensions.adopt.rehearsal.backward import turn_back
from perfci.extensions.adopt.rehearsal.cases import MOST_PROGRAMS, make_suites
from perfci.extensions.adopt.rehearsal.dry_torch import Argument, DryTorch
from perfci.extensions.adopt.rehearsal.notes import find_faults
from perfci.extensions.adopt.rehearsal.operators import Operator
from perfci.extensions.adopt.rehearsal.proof import judge, limit
from perfci.extensions.adopt.rehearsal.solver import find_form
from perfci.extensions.adopt.rehearsal.tests import TestReader
from perfci.extensions.adopt.rehearsal.trial import GRADIENT, Trial, watch
from perfci.extensions.adopt.rehearsal.uses import read_uses
from perfci.extensions.adopt.rehearsal.variants import (
    add_absent,
    add_axes,
    add_dtypes,
    add_options,
    grow_samples,
    list_options,
    vary_truths,
)
from perfci.extensions.adopt.sketch import Sketch, SketchFiles, SketchFunction, Suites
from perfci.ops.spec import Accuracy
from perfci.worker.load import describe_exception

_ASKS = re.compile(
    r"is_(?:cuda|npu)\b|[\"'](?:cuda|npu)[:\"']|torch\.(?:cuda|npu)\b|\.(?:cuda|npu)\(|\.device\(\w+\.device\b"
)
"""Errors away from the device that a function was written for."""

_MATHS = re.compile(r"tl\.(?:math\.)?(?:exp|log|sigmoid|softmax|r?sqrt|sin|cos|erf|tanh|sum|cumsum)")
"""Functions that need float32 to be right, or to compile at all."""

_BRANCHES = re.compile(r"dtype\S*\s*(?:==|is)\s*tl\.bfloat16|is_bf16\(\)")
"""What a kernel does with bfloat16 alone."""

_DRAWS = re.compile(r"\b(tl\.rand(n|int)?(4x)?|(\w+_)?philox\w*|uint_to_uniform_float)\(")
"""Random numbers."""
_TIMES = 8

_WHOLE_DOT = re.compile(r"(?s)(tl\.zeros\([^\n]*tl\.int32((?!\ndef ).)*tl\.dot\()|(tl\.dot\([^\n]*out_dtype=tl\.int32)")
"""A product of integers: the same kernel adds it up in int32."""

_ONCE_READY = ("look_beyond", "look_layouts", "look_values")  # notes that say nothing of a form that does not agree
_MOST_CALLS = 4  # of the operator's samples that become accuracy cases
_MOST_SAMPLES = 12  # of those of an op that has no sizes besides
_SMALL = (2, 3, 4, 8, 16, 128)  # sizes of an accuracy case
_SIZES = {
    1: ([1 << 20], [1 << 24], [1 << 27]),
    2: ([4096, 1024], [4096, 4096], [32768, 4096]),
    3: ([8, 1024, 64], [16, 4096, 64]),
    4: ([8, 16, 1024, 64], [16, 16, 4096, 64]),
}
_LITTLE = 16  # largest size of a case that stands for a large one
_SEARCH_SECONDS = 12.0  # for the search of a form
_HELD_SECONDS, _QUICK = 1.0, 0.05  # for the search of properties, and of a call that is made some 30 times for it


def find(op: str, files: SketchFiles, step: Callable[[str], None]) -> Sketch:
    """Returns what the function takes. Raises UsageError for a file, function or reference that does not exist."""
    path = Path(files.kernel or _find_file(files.module or ""))
    text = path.read_text(encoding="utf-8", errors="replace")
    is_npu = re.search(r"\b(is_)?npu\b|torch_npu", text) and not re.search(r"\b(is_)?cuda\b", text)
    going = DryTorch("npu" if is_npu else "cuda", step, tries_empty=files.tries_empty)
    step(path.name)
    plain_op = op.removesuffix("_backward")
    candidates = [] if files.reference else operators.find_operators(files.function, plain_op)
    usual = operators.find_reference(files.function) or operators.find_reference(plain_op)
    path_of = files.reference or next((one.path for one in candidates), usual)
    if path_of is None:
        raise UsageError("from_without_reference", found=f"{path.name}:{files.function}")
    side, other = _import_side(files.function, path, files.module, going), _import_reference(path_of, files, going)
    with going.going():
        takes = candidates[0].signature if candidates else _read_signature(side.function, other.function)
        tests = _read_tests(files, path_of, takes, going)
        called = _find_operator(candidates, tests, side)
        if candidates and not (called and called.found.trial.is_good):
            called, path_of, other = _find_instead(called, path_of, other, files, usual, tests, side, path)
        called = called or _find_call(tests, side, other, takes, path)
        takes = takes if called.operator else _read_signature(side.function, other.function)
        called = _derive(called) if files.is_call else called
        forward = called.found
        called = (_turn_back(called) if files.backward else None) or called
        done = called.found.form.try_usual() or _try_first(called)
        launched = "\n".join(dict.fromkeys(launch.text for launch in done.launches)) if done else text
        called = _narrow(called) if _WHOLE_DOT.search(launched) else called
        form, right, trial, operator = called.found.form, called.found.dry, called.found.trial, called.operator
        if operator:
            path_of, other = operator.path, _import_reference(operator.path, files, going)
        carried = len(called.calls) if tests else 0
        are_tests = bool(tests) and not files.is_call  # of a call the dtypes and cases are derived too
        calls = _complete_calls(called, launched, text, are_tests)
        suites, look = make_suites(
            op, form, calls, launched, _read_wrapper(side.function), pointwise=bool(operator and operator.pointwise)
        )
        # What torch itself calls an operator with is right, even if little of it is read.
        if right and (replace(trial, unread=(), idle=()) if operator else trial).is_good and not are_tests:
            read = "\n".join((launched, *map(_read_wrapper, (side.function, other.function)), text))
            suites = _vary(op, suites, called, forward, list_options(read, takes, called.found), look)
            suites = add_absent(suites, form, _list_optional(takes, called))
        look += find_faults(form, op) if right and not trial.problem else []
        idle = right and not trial.launches and not any(map(form.count_programs, called.calls))
    look += _list_strides(op, trial) if operator else []
    if ties := find_ties(form, trial) if right else None:
        trial, look = ties, [*look, Reason("look_ties", {"op": op})]
    mutates = _list_written(called, operator) if operator else list_mutated(trial)
    is_quick = right and not (trial.problem or form.has_places) and trial.seconds < _QUICK
    stated = _list_held(form, mutates) if is_quick else []
    # Of a call some inputs alone may be positive.
    as_made = are_tests or (files.is_call and any("torch.randn(" in text for text in form.inputs.values()))
    written = [*_bound(form, operator, are_tests=as_made), *([f"mutates={mutates},"] if mutates else []), *stated]
    suites = replace(suites, accuracy=(*suites.accuracy, *written))
    facts = _describe_call(op, called, path_of)
    # What torch itself calls an operator with is right, even if little of it is read.
    judged = replace(trial, unread=(), idle=()) if operator else trial
    unsure = explain(judged, dry=right, idle=idle, draws=_draws(form, launched), facts=facts)
    kernel, reference = _write_sides(called, side, other, trial, mutates)
    made = Sketch(called.shown, kernel, reference, suites, _carry(files, carried), look=tuple(look))
    if not unsure:
        made, unsure = judge(op, files, made, form, trial, launched, facts)
    if files.backward and not called.further:
        unsure = [Reason("look_no_gradient", {**facts, "function": files.function})]
    if unsure:
        kept = (reason for reason in made.look if reason.kind not in _ONCE_READY)
        return replace(made, is_ready=False, call=corrected.write_call(form), look=(*unsure, *kept))
    return made if operator or tests else replace(made, look=(Reason("look_guessed", facts), *made.look))


def _describe_call(op: str, called: _Called, path_of: str) -> dict[str, Any]:
    """The likeliest inputs, for a person to go on with, and what they raise if they are not taken."""
    form = called.found.form
    guessed = ", ".join(f"{name}: {value}" for name, value in {**form.inputs, **form.shapes}.items())
    error = "" if called.found.dry else form.run(form.make_distinct()).problem or "outputs of other shapes"
    return {"op": op, "inputs": guessed, "call": f"{path_of}({', '.join(called.found.texts)})", "error": error}


def _read_tests(files: SketchFiles, path_of: str, takes: inspect.Signature, going: DryTorch) -> list[Call]:
    """The calls of the tests. Raises UsageError if a file that is for one call has none."""
    plain = path_of.removeprefix("torch.ops.aten.").split(".")
    suite = TestReader({files.function, plain[0] if path_of.startswith("torch.ops.") else plain[-1]}, takes, going)
    tests = suite.read([Path(test) for test in files.tests])
    if files.is_call and not tests:
        raise UsageError("call_missing", file=files.tests[0], function=files.function)
    return tests


def _carry(files: SketchFiles, count: int) -> tuple[Reason, ...]:
    """What is said of calls of tests."""
    names = ", ".join(Path(test).name for test in files.tests)
    return (Reason("carried_calls", {"files": names, "count": count}),) if count else ()


def _derive(called: _Called) -> _Called:
    """The call that a person corrected, with as many sizes as it takes."""
    found = corrected.derive(called.found, called.calls[0])
    return replace(called, found=found, calls=found.calls)


def _try_first(called: _Called) -> Outcome | None:
    """The first of the calls, where usual sizes are refused."""
    form = called.found.form
    return form.try_case(size_call(form, called.calls[0])) if called.calls and form.axes else None


def _list_written(called: _Called, operator: Operator) -> tuple[str, ...]:
    """What torch's operator writes into, by its schema or in a trial: instance_norm's statistics, with some options."""
    form, names = called.found.form, list(operator.mutates)
    for call in called.calls[:_MOST_CALLS] if not called.found.trial.problem else ():
        options = {name: repr(value) for name, value in call.given.items() if name not in form.shapes}
        inputs = {name: options.get(name, text) for name, text in form.inputs.items() if text not in form.axes}
        names += replace(form, inputs={**form.inputs, **inputs}).run(form.small).rewritten
    return tuple(dict.fromkeys(names))


def _list_strides(op: str, trial: Trial) -> list[Reason]:
    """What is to look at if an output has other strides than torch's operator gives."""
    strides = dict(zip(("given", "expected"), map(str, trial.strides), strict=False))
    return [Reason("look_strides", {"op": op, **strides})] if strides else []


def _write_sides(
    called: _Called, side: _Side, other: _Side, trial: Trial, mutates: Sequence[str]
) -> tuple[SketchFunction, SketchFunction]:
    """Kernel and reference as the op's files have them."""
    devices = called.found.form.devices
    kernel = replace(side.written, arguments=tuple(called.handed), device=devices[0])
    reference = replace(other.written, arguments=tuple(called.found.texts), device=devices[1])
    if called.further:
        kernel, reference = (
            replace(one, backward=more) for one, more in zip((kernel, reference), called.further, strict=True)
        )
    elif not mutates or not called.operator:
        kernel, reference = write_answers(kernel, reference, replace(trial, written=()) if called.operator else trial)
    return write_real(kernel, trial), write_real(reference, trial)


def _vary(
    op: str, suites: Suites, called: _Called, forward: search.Found, options: Iterable[tuple[str, Any, Any]],
    look: list[Reason],
) -> Suites:  # fmt: skip
    """The suites with cases of other values of options, or of other dtypes of torch's operator. Adds to `look`."""
    if called.operator:
        form = called.found.form
        suites, notes = add_dtypes(op, suites, form, called.operator)
        look += notes
        suites = vary_truths(add_axes(suites, form), form)
        if form.sample:
            return grow_samples(suites, form)
        options = [option for option in options if option[-1] is None]  # others have samples of torch
    chosen = (option for option in options if option[0] in called.names)  # torch's operator may take more
    suites, notes = add_options(op, suites, called.found, chosen, forward, turn_back if called.further else None)
    look += notes
    return suites


def _list_optional(takes: inspect.Signature, called: _Called) -> list[str]:
    """The arguments that may be None. None of a backward pass, which has fewer outputs then."""
    if called.operator:
        return [one.name for one in called.operator.arguments if str(one.type).startswith("Optional")]
    if called.further:
        return []
    return [name for name, one in takes.parameters.items() if one.default is None]


def _draws(form: Form, launched: str) -> bool:
    """Whether kernels draw random numbers that change the answer. Few of them may agree by chance."""
    return bool(_DRAWS.search(launched)) and any(form.run(form.small).share for _ in range(_TIMES))


def _bound(form: Form, operator: Operator | None, *, are_tests: bool) -> list[str]:
    """The numbers on which the op is defined, if not all."""
    positive = not are_tests and any(text.startswith("torch.rand(") for text in form.inputs.values())
    domain = operator.domain if operator else (0.0, None) if positive else (None, None)
    return [f"domain={domain},"] if set(domain) != {None} else []


def _list_held(form: Form, mutates: Sequence[str]) -> list[str]:
    """Properties that hold in a small case, as a comment: that they hold here does not say that they are meant."""
    suite = _make_suite(form, mutates, _HELD_SECONDS)
    (params,) = suite.cases
    with form.rehearsal.real():
        device = open_device("cpu", seed=0)
        held = " ".join(line for propose in provided("properties") for line in propose(suite, device, params))
    return [f"# The present kernel has these properties. State those that users rely on: {held}"] if held else []


def _make_suite(form: Form, mutates: Sequence[str], seconds: float) -> Accuracy:
    """The suite of one small case. seconds: of this process, which its calls may take."""
    sides = zip((watch(form.kernel, seconds), form.reference), form.devices, strict=True)
    until_s = time.process_time() + seconds
    kernel, reference = (
        limit(sketched.wrap(function, device) if device else function, until_s) for function, device in sides
    )
    params = {**form.small, "dtype": form.dtype}

    def make_inputs(dtype: str, device: str, seed: int, **sizes: int) -> Mapping[str, Any]:  # noqa: ARG001
        return form.make_inputs(sizes, dtype, seed)

    return Accuracy(kernel, reference, make_inputs, (params,), mutates=mutates)


@dataclass(frozen=True)
class _Called:
    """How function and reference are called."""

    found: search.Found
    calls: Sequence[Call]  # those of tests, or torch's samples
    shown: tuple[str, ...]  # the op's parameters
    handed: Sequence[str]  # what the function is called with
    operator: Operator | None = None  # torch's, as which both are called
    further: tuple[str, ...] = ()  # of the backward pass: more arguments of `gradients`, for both sides

    @property
    def names(self) -> set[str]:
        """The names of the op's parameters."""
        return {re.split("[:=]", text)[0].strip() for text in self.shown}


def _turn_back(called: _Called) -> _Called | None:
    """The backward pass. None if there is none."""
    back = turn_back(called.found) if called.found.dry and not called.found.trial.problem else None
    if back is None:
        return None
    more = f"of={write_tuple(back.of)}", f"{GRADIENT}={GRADIENT}"
    shown = (*called.shown, *([] if "*" in called.shown else ["*"]), f"{GRADIENT}: torch.Tensor")
    return _Called(back.found, (), shown, (*called.handed, *more), further=back.further)


def _sort_overloads(candidates: Sequence[Operator], names: Collection[str]) -> list[Operator]:
    """Of overloads that which gives most of the function's parameters first, such as the axis of a deviation."""
    packets = [operator.path.rpartition(".")[0] for operator in candidates]

    def rank(place: int) -> tuple[int, int]:
        given = {one.name for one in candidates[place].arguments if not one.is_out}
        return packets.index(packets[place]), -len(given.intersection(names))

    return [candidates[place] for place in sorted(range(len(candidates)), key=rank)]


def _find_operator(candidates: Sequence[Operator], tests: Sequence[Call], side: _Side) -> _Called | None:
    """The call as the first of torch's operators that agrees with the function, else the best one. None if none fits.

    Where its axes are not found, the shapes are those of torch's samples.
    """
    best: _Called | None = None
    for operator in _sort_overloads(candidates, {*inspect.signature(side.function).parameters}):
        with side.rehearsal.real():
            samples = [operator.list_calls(dtype) for dtype in ("float32", "bool", "int32", "")] if not tests else []
        sources = [tests] if tests else [[Call("accuracy", given, {}) for given in calls] for calls in samples]
        reference = pkgutil.resolve_name(operator.path)
        fitted = _fit_operator(operator, sources, side.function, reference, side.rehearsal)
        if fitted is None:
            continue
        start, shown, handed, given = fitted
        start = replace(start, devices=(side.written.device, None))
        for form, calls, right in (find_form(start, given), (*list_form(start, given), True)):
            attempt = search.judge(form, handed, calls if tests else (), dry=right and form.agrees())
            called = _Called(attempt, calls, shown, handed, operator)
            best = called if best is None or attempt.rank < best.found.rank else best
            if best.found.trial.agrees:
                return best
    return best


def _find_instead(
    called: _Called | None, path_of: str, other: _Side, files: SketchFiles, usual: str | None, tests: Sequence[Call],
    side: _Side, path: Path,
) -> tuple[_Called | None, str, _Side]:  # fmt: skip
    """The call with torch's usual function of this name, which takes other arguments, if a trial is for it."""
    if usual is None:
        return called, path_of, other
    function = _import_reference(usual, files, side.rehearsal)
    instead = _find_call(tests, side, function, _read_signature(side.function, function.function), path)
    is_better = called is None or instead.found.rank < called.found.rank
    return (instead, usual, function) if is_better else (called, path_of, other)


def _find_call(
    tests: Sequence[Call], side: _Side, other: _Side, takes: inspect.Signature, path: Path
) -> _Called:  # fmt: skip
    devices, going = (side.written.device, other.written.device), side.rehearsal
    given = {*tests[0].given} if tests else set[str]()
    shown, handed = _write_parameters(takes, given, path, side.function)
    calls = [test for test in tests if {*test.given} == given and {*test.tensors} == {*tests[0].tensors}]
    defaults = {name: one.default for name, one in takes.parameters.items() if one.default is not one.empty}
    # As the op's file calls it: what a decorator hands on by place takes no names.
    start = Form(make_call(side.function, handed, defaults), other.function, going, devices=devices)
    going.until = going.now_s + _SEARCH_SECONDS
    attempt = search.search(takes, read_uses(side.function, takes, other.function), handed, calls, start)
    going.until, going.spent_s = math.inf, 0.0  # its cases are tried afterwards
    return _Called(attempt, attempt.calls, shown, handed)


def _read_wrapper(function: Any) -> str:
    """The text of a function, and of those of its modules that it calls, with their decorators."""
    texts, waiting = dict[Any, str](), [function]
    while waiting:
        plain = inspect.unwrap(waiting.pop())
        plain = getattr(plain, "__func__", plain)
        code = getattr(plain, "__code__", None)
        if code is not None and plain not in texts:
            with contextlib.suppress(OSError, TypeError):
                texts[plain] = inspect.getsource(plain)
            called = (plain.__globals__.get(name) for name in code.co_names if plain in texts)
            waiting += [other for other in called if isinstance(other, types.FunctionType)]
    return "\n".join(texts.values())


def _narrow(called: _Called) -> _Called:
    """The call with int8 tensors in the place of float ones, if kernel and reference take them."""
    form, dense = called.found.form, r"torch\.randn\((.*?), generator=generator, dtype=dtype"
    whole = r"torch.randint(-128, 128, \1, generator=generator, dtype=dtype"
    names = [name for name, text in form.inputs.items() if re.search(dense, text)]
    factors = [name for name in names if len(list_sides(form.shapes[name])) > 1]
    for chosen in (names, factors):  # perhaps the factors alone, and not their scales, which are small
        texts = {name: re.sub(dense, whole, form.inputs[name]) for name in chosen}
        scales = {name: form.inputs[name].replace("dtype=dtype", "dtype=torch.float32") + " / 128" for name in names}
        narrow = replace(form, dtype="int8", inputs={**form.inputs, **scales, **texts})
        trial = narrow.run(form.small)
        if trial.is_good:
            break
    form = narrow
    return called if trial.problem else replace(called, found=replace(called.found, form=form, trial=trial))


def _complete_calls(called: _Called, launched: str, text: str, are_tests: bool) -> list[Call]:
    """The calls, in all dtypes that both take if no test chose them, and with those of the performance suite.

    text: of the function's file.
    """
    attempt, form, calls = called.found, called.found.form, list(called.calls)
    small, dry = form.small, form.agrees()

    def is_taken(dtype: str) -> bool:
        if dry and not replace(form, dtype=dtype).agrees():
            return False
        trial = form.run(small, dtype) if dtype != form.dtype else None
        return trial is None or (not trial.problem and trial.is_alike)

    is_whole = form.dtype.startswith(("int", "uint")) and not called.operator
    wanted_dtypes = [form.dtype] if is_whole else _choose_dtypes(launched, text)
    usual = [dtype for dtype in wanted_dtypes if not attempt.dry or is_taken(dtype)]
    dtypes = usual or [call.dtype for call in calls[:1]] or [form.dtype]
    if not are_tests:
        firsts = [_retype(call, dtype) for call in calls[:1] for dtype in dtypes]
        most = _MOST_SAMPLES if form.sample else _MOST_CALLS
        calls = [*firsts, *(_retype(call, dtype) for call in calls[1:most] for dtype in dtypes[:1])]
    usual_sizes = (*[2] * len(form.axes), *_SMALL)[len(_SMALL) :]
    usual_case = {**dict(zip(form.axes, usual_sizes, strict=True)), **form.little}
    case = usual_case if calls or not attempt.dry or _is_light(form, usual_case) else small
    calls = calls or [_call(form, "accuracy", [*case.values()], dtype) for dtype in dtypes]
    for wanted in [] if any(call.part == "performance" for call in calls) else _list_sizes(form, launched):
        sizes = _turn(form, wanted)
        if not attempt.dry or form.try_case(dict(zip(form.axes, sizes, strict=True)), alone=True):
            calls += [_call(form, "performance", sizes, dtype) for dtype in dtypes[-2:]]
    return calls


def _is_light(form: Form, sizes: Mapping[str, Any]) -> bool:
    """Whether kernel and reference take a case for real, in a time in which a check can call it some times."""
    done, going = form.try_case(sizes), form.rehearsal
    if done is None or done.programs > MOST_PROGRAMS:
        return False
    spent_s, most_s = going.spent_s, going.most_s
    trial = form.run(sizes)
    going.spent_s, going.most_s = spent_s, most_s  # the time of smaller cases
    return not trial.problem and trial.seconds < _HELD_SECONDS


def _turn(form: Form, sizes: Sequence[Any]) -> Sequence[Any]:
    """The sizes, the other way round if places would lie beyond the tensor that they point into."""
    if not form.has_places or form.is_ragged:
        return sizes
    few = [max(size * _LITTLE // max(sizes), 1) for size in sizes]
    return sizes if form.takes(dict(zip(form.axes, few, strict=True))) else sizes[::-1]


def _read_signature(function: Any, reference: Any) -> inspect.Signature:
    """The parameters of a function. Of one that hides them all behind stars, those of its reference."""
    takes = inspect.signature(function)
    if all(one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD} for one in takes.parameters.values()):
        with contextlib.suppress(TypeError, ValueError):
            return inspect.signature(reference)
    return takes


@dataclass(frozen=True)
class _Side:
    """The function of kernel or reference, and how the op's file has it."""

    function: Any
    written: SketchFunction
    rehearsal: DryTorch


def _import_reference(path_of: str, files: SketchFiles, going: DryTorch) -> _Side:
    """Raises UsageError if there is no such function."""
    if files.baseline:
        return _import_side(path_of, Path(files.baseline), files.baseline_module, going)
    module, _, name = path_of.rpartition(".")
    if files.module and module.split(".")[0] == files.module.split(".")[0]:  # it is imported as the kernel is
        return _import_side(name, Path(_find_file(module)), module, going)
    module = "torch" if path_of.startswith("torch.") else module
    try:
        return _Side(pkgutil.resolve_name(path_of), SketchFunction(module, path_of, ()), going)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError("reference_missing", reference=path_of) from error


def _import_side(name: str, path: Path, module: str | None, going: DryTorch) -> _Side:
    """Raises UsageError if a file does not define this function or class, or if it is a kernel."""
    text, call = path.read_text(encoding="utf-8", errors="replace"), f"source.{name}"
    source, hidden, pretends, alone = _import_either(module, path, text, going.device)
    function = getattr(source, name, None)
    if not callable(function) or hasattr(function, "__getitem__"):
        functions = ", ".join(key for key, value in vars(source).items() if isinstance(value, types.FunctionType))
        raise UsageError("from_unknown", file=path.name, function=name, known=functions or "-")
    if inner := getattr(function, "_init_fn", None):  # of torch.library.custom_op, which hides what triton_op wraps
        function = inspect.getclosurevars(inner).nonlocals.get("fn", inner)
    hides = _launches_hidden(function, hidden)
    if hides and module:
        raise UsageError("import_hides", file=path.name, function=name)
    if hides:
        setattr(source, name, hidden[name])
    if (
        isinstance(function, type) and hasattr(function, "apply") and hasattr(function, "backward")
    ):  # an autograd.Function
        function, call = _apply(function), f"{call}.apply"
    elif isinstance(function, type):
        try:
            function, call = function(), f"{call}()"
        except TypeError as error:
            raise UsageError("from_unknown", file=path.name, function=f"{name}()", known=str(error)) from error
        function = getattr(function, "forward", function.__call__)
    elif hasattr(getattr(function, "__self__", None), "backward") and name != "apply":  # its apply, by another name
        function = _apply(function.__self__)
    asks = hides or pretends or _ASKS.search(text)
    device = going.device if asks else None
    return _Side(function, SketchFunction(module or f"_{path.stem}", call, (), device, hides, pretends, alone), going)


def _import_either(
    module: str | None, path: Path, text: str, device: str
) -> tuple[types.ModuleType, dict[str, Any], bool, bool]:
    """Import a file as it is; where that fails, beside a pretended device, then without what its packages import too.

    Gives its Triton kernels too, by their names, and whether a device was pretended, and its packages left out. Raises
    UsageError with what it raised as it is.
    """
    before, around, reasons = {*sys.modules}, {**os.environ}, list[Reason]()
    # A library that hands Triton on, as vLLM does, hands on something else where it sees no GPU.
    handed_on = "triton.jit" in text and not re.search(r"(?m)^\s*(import|from) triton\b", text)
    packages = (False, True) if module and "." in module else (False,)
    for alone, pretends in itertools.product(packages, (True, False) if handed_on else (False, True)):
        try:
            with ExitStack() as stack:
                stack.enter_context(sketched.pretend(device)) if pretends else None
                sketched.leave_out(module or "") if alone else None
                hidden = stack.enter_context(sketched.kernels())
                made = _import(module, path) if module else _load(path)
            _pretended.update({*sys.modules} - before if pretends else ())
            return made, hidden, pretends or _uses_pretended(made), alone
        except UsageError as error:
            reasons.append(error.reason)
        _forget(before, module or path.stem)  # once the error is gone, which holds what was loaded
        os.environ.clear()
        os.environ.update(around)  # which the op's file finds
        if reasons[-1].kind not in {"import_raised", "sketch_raised"}:
            break
    for facts in (reason.facts for reason in reasons[:2]):
        lacks = str(facts.get("missing_module") or "").partition(".")[0]
        if lacks not in {"", "torch_npu", (module or path.stem).partition(".")[0]}:
            raise UsageError("import_lacks", **facts, package=lacks)
    raise UsageError(reasons[0].kind, **reasons[0].facts)


_pretended = set[str]()  # modules that were imported where a device was pretended, for any op


def _uses_pretended(module: types.ModuleType) -> bool:
    """Whether a module, or what it has from others, could not be imported alone: it was there already."""
    parts = module.__name__.split(".")
    names = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    names |= {str(getattr(value, "__module__", getattr(value, "__name__", ""))) for value in vars(module).values()}
    return bool(names & {name for name in _pretended if name.split(".")[0] not in _KEPT})


_KEPT = ("torch", "triton", "numpy", "perfci")


def _forget(before: Collection[str], module: str) -> None:
    """Unload what an import that failed has loaded of a package, or of others that failed: halves pass for the whole.

    Others stay: a part in C may end Python if it is loaded twice, and an operator cannot be registered twice.
    """
    for name in [name for name in sys.modules if name not in before and name.split(".")[0] not in _KEPT]:
        top = name.partition(".")[0]
        if top == module.partition(".")[0] or top not in sys.modules:
            del sys.modules[name]
    gc.collect()  # operators that it has registered


def _apply(owner: Any) -> Callable[..., Any]:
    """The call of an autograd.Function, with its forward's parameters: the context is none where it is set up apart."""

    def apply(*args: Any, **named: Any) -> Any:
        bound = inspect.signature(apply).bind(*args, **named)
        bound.apply_defaults()  # or what lies behind an argument that is not given is lost
        return owner.apply(*bound.args)

    takes, old = inspect.signature(owner.forward), owner.setup_context.__module__.startswith("torch.")
    vars(apply)["__wrapped__"] = owner.forward
    vars(apply)["text"] = owner.forward, owner.forward.__doc__ or owner.__doc__
    vars(apply)["__signature__"] = takes.replace(parameters=[*takes.parameters.values()][old:])
    return apply


def _find_file(module: str) -> str:
    """Returns the file of a module. Raises UsageError if there is none."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)  # which imports nothing, as it would for a module in a package
    except (ImportError, ValueError):
        spec = None
    places = [Path(place, *inner) for place in (spec and spec.submodule_search_locations) or ()]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if inner]
    origin = spec.origin if spec and not inner else next((str(file) for file in files if file.is_file()), None)
    if not origin:
        raise UsageError("from_missing", found=module)
    return origin


def _list_sizes(form: Form, launched: str) -> Sequence[Sequence[Any]]:
    """Sizes of performance cases."""
    count = len(form.axes)
    if form.sample:
        return []
    if form.is_ragged:
        return [[shape] for shape in ((1 << 20,), (4096, 1024), (4096, 4096))]
    most = [[2] * (count - 4) + sizes for sizes in _SIZES[4]]
    return ([2048] * count, [4096] * count) if "tl.dot(" in launched else _SIZES.get(count, most)


def _choose_dtypes(launched: str, text: str) -> tuple[str, ...]:
    """Returns the dtypes in which a right kernel of this kind is right everywhere, Triton's interpreter included.

    text: of the function's file, which may have a branch for bfloat16 that generated kernels call.
    """
    if _WHOLE_DOT.search(launched):
        return ("int8",)
    if "tl.dot(" in launched:
        return ("float16", "bfloat16")  # float32 would be multiplied as TF32
    if "float32" in launched or _BRANCHES.search(text):
        return ("float32", "float16", "bfloat16")
    return ("float32",) if _MATHS.search(launched) else ("float32", "float16")


def _fit_operator(
    operator: Operator, samples: Sequence[Sequence[Call]], function: Any, reference: Any, going: DryTorch
) -> tuple[Form, tuple[str, ...], list[str], list[Call]] | None:
    """How to call a function as torch's operator of its name, and the first samples that both take. None without any.

    Gives the form of a call, the op's parameters, and what the function and the reference are called with.
    """
    takes = inspect.signature(function).parameters.values()
    open_ended = any(take.kind is take.VAR_POSITIONAL for take in takes)
    keywords = {take.name for take in takes if take.kind in {take.POSITIONAL_OR_KEYWORD, take.KEYWORD_ONLY}}
    any_keyword = any(take.kind is take.VAR_KEYWORD for take in takes)
    room = math.inf if open_ended else sum(take.kind <= take.POSITIONAL_OR_KEYWORD for take in takes)
    plain = [argument for argument in operator.arguments if not argument.kwarg_only]
    named = [
        argument
        for argument in operator.arguments
        if argument.kwarg_only and (any_keyword or argument.name in keywords)
    ]
    needed = [parameter for parameter in plain if not parameter.has_default_value()]
    for (call_sample, texts), given in itertools.product(
        map(_spread, filter(None, samples)), dict.fromkeys((tuple(plain), tuple(needed)))
    ):
        if len(given) > room:
            continue
        used = {part for one in (*given, *named) for part in texts.get(one.name, (one.name,))}
        calls = [
            replace(call, given={key: value for key, value in call.given.items() if key in used})
            for call in call_sample
        ]
        lists = {name: f"[{', '.join(parts)}]" for name, parts in texts.items()}
        handed = [lists.get(one.name, one.name) for one in given]
        handed += [f"{one.name}={lists.get(one.name, one.name)}" for one in named]
        shown = [
            part + (": torch.Tensor" if "Tensor" in str(one.type) else "")
            for one in (*given, *named)
            for part in texts.get(one.name, (one.name,))
            if part != "None"
        ]
        form = Form(make_call(function, handed, {}), make_call(reference, handed, {}), going)
        costs = [(form.count_programs(call), call) for call in {call.key: call for call in calls}.values()]
        taken = sorted(
            ((cost, call) for cost, call in costs if cost is not None), key=lambda pair: pair[0] > MOST_PROGRAMS
        )
        if taken:
            cheap = [call for cost, call in taken if cost <= MOST_PROGRAMS] or [taken[0][1]]
            first = cheap[0]
            if len({tensor.shape for tensor in first.tensors.values()}) == 1:  # not those that are broadcast
                cheap = [call for call in cheap if len({tensor.shape for tensor in call.tensors.values()}) == 1]
            if any(isinstance(value, int | list | tuple) for value in first.given.values()):
                # Such as axes, which fit tensors with as many.
                ranks = [len(tensor.shape) for tensor in first.tensors.values()]
                cheap = [call for call in cheap if [len(tensor.shape) for tensor in call.tensors.values()] == ranks]
            return form, tuple(shown), handed, cheap
    return None


def _spread(calls: Sequence[Call]) -> tuple[list[Call], dict[str, tuple[str, ...]]]:
    """Calls with an argument for each tensor of a list, and the names that make up each list. All as in the first."""

    def name_parts(call: Call) -> dict[str, tuple[str, ...]]:
        lists = {name: value for name, value in call.given.items() if isinstance(value, list)}
        return {
            name: tuple(f"{name}_{place}" if part is not None else "None" for place, part in enumerate(parts))
            for name, parts in lists.items()
            if any(isinstance(part, Argument) for part in parts)
        }

    texts, spread = name_parts(calls[0]), list[Call]()
    for call in calls:
        if name_parts(call) == texts:
            parts = {part: one for name in texts for part, one in zip(texts[name], call.given[name], strict=True)}
            plain = {name: value for name, value in call.given.items() if name not in texts}
            spread.append(
                replace(call, given={name: one for name, one in {**parts, **plain}.items() if name != "None"})
            )
    return spread, texts


def _retype(call: Call, dtype: str) -> Call:
    """A call with its float32 tensors in another dtype."""
    given = {
        name: replace(value, dtype=dtype) if isinstance(value, Argument) and value.dtype == "float32" else value
        for name, value in call.given.items()
    }
    return replace(call, given=given)


def _call(form: Form, part: str, sizes: Sequence[int], dtype: str) -> Call:
    """A call with these sizes of the axes."""
    params, evaluate = dict(zip(form.axes, sizes, strict=True)), form.rehearsal.evaluate
    tensors = {name: Argument(evaluate(text, params), dtype, None) for name, text in form.shapes.items()}
    scalars = {name: evaluate(text, params) for name, text in form.inputs.items() if name not in tensors}
    return Call(part, tensors | scalars, {})


def _launches_hidden(function: Any, hidden: Mapping[str, Any]) -> bool:
    """Whether a function launches a Triton kernel by its name, which it hides from itself."""
    name, code = getattr(function, "__name__", ""), getattr(function, "__code__", None)
    loads = dis.get_instructions(code) if name in hidden and code else ()
    return any(load.opname == "LOAD_GLOBAL" and load.argval == name for load in loads)


def _import(name: str, path: Path) -> types.ModuleType:
    """Import a module by its name. Raises UsageError if it raises, or if it is another file's."""
    try:
        module = importlib.import_module(name)
    except SyntaxError as error:
        file = Path(error.filename or path).name
        raise UsageError("syntax_error", file=file, line=error.lineno, why=error.msg) from error
    except (Exception, SystemExit) as error:
        facts = {**describe_exception(error, path.parent), "module": name, "source": path.name}
        raise UsageError("import_raised", **facts) from error
    origin = getattr(module, "__file__", None) or name
    if not path.samefile(origin):
        raise UsageError("import_other", file=path.name, module=name, found=origin)
    return module


def _load(path: Path) -> types.ModuleType:
    """Import a file by its path. Raises UsageError if it raises."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    try:
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    except SyntaxError as error:
        raise UsageError("syntax_error", file=path.name, line=error.lineno, why=error.msg) from error
    except (Exception, SystemExit) as error:
        raise UsageError("sketch_raised", source=path.name, **describe_exception(error, path.parent)) from error
    return module


def _write_parameters(
    takes: inspect.Signature, given: set[str], path: Path, function: Any
) -> tuple[tuple[str, ...], list[str]]:
    """Returns the op's parameters and its call's arguments as text, without odd defaults that no one gives."""
    shown, handed, by_name = list[str](), list[str](), False
    for parameter in takes.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            line = inspect.unwrap(function).__code__.co_firstlineno
            facts = {"file": path.name, "line": line, "function": function.__name__, "argument": parameter.name}
            raise UsageError("new_star_arguments", **facts)
        needed, alone = parameter.default is parameter.empty, parameter.kind is parameter.KEYWORD_ONLY
        dtype = str(parameter.default).startswith("torch.")
        plain = parameter.default is None or isinstance(parameter.default, bool | int | float | str)
        if not (needed or plain or dtype or parameter.name in given):
            by_name = True  # what lies behind it
            continue
        kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        shown_type = kind if kind in {"int", "float", "bool", "str"} else None
        shown_type = "torch.Tensor" if needed and "Tensor" in kind else shown_type
        text = f"{parameter.name}: {shown_type}" if shown_type else parameter.name
        if not needed:
            default = str(parameter.default) if dtype else repr(parameter.default) if plain else "None"
            text += f" = {default}" if shown_type else f"={default}"
        shown += ["*"] if alone and "*" not in shown else []
        shown.append(text)
        handed.append(f"{parameter.name}={parameter.name}" if alone or by_name else parameter.name)
    return tuple(shown), handed
