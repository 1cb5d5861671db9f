"""A wrong case as five lines of Python that a person can run at the root of the project."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Least, Show, draw
from perfci.ops.backends import DEFAULT, name_of
from perfci.ops.spec import Accuracy
from perfci.worker.load import LoadedOp, import_roots
from perfci.worker.tasks import Task

VISIBLE = frozenset({"wrong_values", "not_finite"})
"""Failures that two printed numbers show. Others are of memory, and perfci's check tells of them"""

LINES = """\
{interpret}import sys; sys.path[:0] = {paths}
import torch; from perfci.device import open_device; device = open_device("{device}", seed=0)
from {file} import {suite} as suite{kernel}
{inputs}
{call}"""


def write_lines(
    task: Task, loaded: LoadedOp, device: Accelerator, least: Least, form: Any = None, show: Show | None = None
) -> str:
    """Returns the lines that make the least call, and print its answer beside that of the reference.

    form: one of `structure`, by which arrays lie. show: of what is no check of a suite.
    """
    name, suite, kind = name_of(task.op), loaded.accuracy, device.info.kind
    other = suite.backend != DEFAULT
    made = "; ".join((*_make(suite, device, least), *(_move(suite, device, least, form) if form else ())))
    call = _call(suite, device, least) if least.failure.kind in VISIBLE else _check(least)
    if show:
        made, call = show.imports, show.call(_spell_params(least), _spell_check(least, least.check.layout))
    roots = [Path(root).resolve() for root in import_roots(task.folder, task.shared_folder)]
    text = LINES.format(
        interpret='import os; os.environ["TRITON_INTERPRET"] = "1"; ' if kind == "cpu" else "",
        paths=[root.relative_to(task.place.root.resolve()).as_posix() for root in roots],
        device=kind,
        file=f"{name}_accuracy",
        suite=_find_name(sys.modules[f"{name}_accuracy"]),
        kernel=f"; from {name}_{suite.backend} import {name} as kernel" if other else "; kernel = suite.kernel",
        inputs=made,
        call=call,
    )
    return text if "torch." in text else text.replace("import torch; ", "", 1)


def _find_name(module: Any) -> str:
    """The name by which a file has its suite."""
    names: Iterator[str] = (name for name, value in vars(module).items() if isinstance(value, Accuracy))
    return next(names)


def _make(suite: Accuracy, device: Accelerator, least: Least) -> Iterator[str]:
    """How inputs are made: by the suite alone, or with the values of a check. Then filled, and laid out."""
    check, arrays = least.check, device.arrays
    drawn = draw(suite, device, check)
    floats = {name for name, value in drawn.items() if arrays.is_array(value) and arrays.dtype_facts(value)}
    if check.values == "normal" or floats <= least.fillings.keys():
        yield f'inputs = suite.make_inputs({_spell_params(least)}, device="{device.arrays.device}", seed={check.seed})'
    else:
        yield "from perfci.measure.verify import Check, make_inputs"
        yield f"inputs = make_inputs(suite, device.arrays, {_spell_check(least, 'contiguous')})"
    for name, filling in least.fillings.items():
        yield f'inputs["{name}"][...] = {filling.number:g}'
        for index, number in filling.others.items():
            yield f'inputs["{name}"][{", ".join(map(str, index))}] = {_spell_number(number)}'
    if check.layout != "contiguous" or least.failure.kind == "not_finite":  # which may come from beside the inputs
        yield f'inputs = device.arrays.place(inputs, "{check.layout}")'


def _move(suite: Accuracy, device: Accelerator, least: Least, form: Any) -> Iterator[str]:
    """How arrays get where they lie."""
    from perfci.extensions.beyond.structure import place_arrays

    name, arguments = getattr(form, "func", form).__name__, getattr(form, "args", ())
    names = [name for name, _ in place_arrays(draw(suite, device, least.check), form)]
    moved = (f'"{one}": {name}({", ".join([*map(repr, arguments), f"inputs[{one!r}]"])})' for one in names)
    yield f"from perfci.extensions.beyond.structure import {name}, give"
    yield f"kernel = give(kernel, {{{', '.join(moved)}}})"


def _call(suite: Accuracy, device: Accelerator, least: Least) -> str:
    """Both answers, where they differ most if they are one array each."""
    if suite.mutates:
        copied = "import copy; expected = copy.deepcopy(inputs)"
        return f"{copied}; print(kernel(**inputs), inputs, suite.reference(**expected), expected)"
    index = str(least.failure.facts.get("index")).strip("(),")
    is_one = device.arrays.is_array(suite.reference(**draw(suite, device, least.check)))
    place = f"[{index}]" if is_one and re.fullmatch(r"\d+(, \d+)*", index) else ""
    return f"print(kernel(**inputs){place}, suite.reference(**inputs){place})"


def _check(least: Least) -> str:
    """The check itself."""
    made = ", make_inputs=lambda **_: inputs" if least.fillings else ""
    check = _spell_check(least, least.check.layout, "normal" if least.fillings else least.check.values)
    call = f"verify(replace(suite, kernel=kernel{made}), device, {check}, vars)"
    return f"from dataclasses import replace; from perfci.measure.verify import Check, verify; print({call}.failure)"


def _spell_params(least: Least) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in least.check.params.items())


def _spell_check(least: Least, layout: str, values: str | None = None) -> str:
    check = least.check
    constants = f", {check.constants!r}" if check.constants else ""
    return (
        f'Check(dict({_spell_params(least)}), "{values or check.values}", "{layout}", {check.seed}, False{constants})'
    )


def _spell_number(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'
