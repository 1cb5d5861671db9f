"""Every configuration that an op's kernel may run in: candidates of autotuners, and entries of tuned files.

A call runs the one that is chosen. Here each is pinned, and makes the probe cases in output buffers of its own.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.core.errors import ContractError
from perfci.core.files import read_regular
from perfci.core.model import AccuracyCase, because
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Show, Shrink, keep
from perfci.extensions.common.tuned import Seam
from perfci.measure.bench import Describe
from perfci.measure.inputs import bound_inputs, call_fresh
from perfci.measure.verify import Check, verify
from perfci.ops.spec import Accuracy, Params

UNBOUNDED = 1 << 60  # more than any size
SPACE = "space.json"  # in tuned/: what may be tried, of which nothing is in force


@dataclass(frozen=True)
class Pin:
    """A context in which calls run in one configuration."""

    enter: Callable[[], AbstractContextManager[object]]
    takes: Callable[[Callable[[], object]], bool] = lambda _: True
    """whether a call runs in it there"""


@dataclass(frozen=True)
class Configuration:
    """One choice, and how calls are made to run in it: the first way that works for a case."""

    name: str
    pins: tuple[Pin, ...]
    choices: Mapping[str, str] = field(default_factory=dict)  # of an autotuner, as `pin` takes them
    cases: Sequence[Params] | None = None  # that are not pruned of it. None: any


@dataclass
class Looked:
    """What was made of the configurations."""

    checked: int = 0
    of: int = 0
    refused: int = 0  # of those: raised for every case


def check_configurations(
    suite: Accuracy,
    device: Accelerator,
    probes: Sequence[Params],
    configurations: Sequence[Configuration],
    describe: Describe,
    until_s: float,
    looked: Looked,
    shrink: Shrink = keep,
) -> Iterator[AccuracyCase]:
    """Yields the first failure of each configuration that is wrong, as far as time allows.

    One that raises is none that an autotuner would choose, and none that a call could have run in.
    until_s: seconds of the monotonic clock. looked: gets the counts. shrink: gets the first that is wrong.
    """
    shrunk = False
    looked.of = len(configurations)
    for configuration in configurations:
        ran_by: Pin | None = None
        cases = probes if configuration.cases is None else configuration.cases
        if not cases and math.isfinite(until_s):  # pruned for the few cases that were tried
            continue
        for pin, params in itertools.product(configuration.pins, cases):
            if ran_by and ran_by is not pin:
                break
            if time.monotonic() > until_s:
                return
            check = Check(params, "normal", "contiguous", 0, fresh=False)
            result = _verify_pinned(suite, check, device=device, pin=pin, describe=describe)
            ran_by = pin if result else ran_by
            if result and result.failure:
                reason = because("wrong_configuration", result.failure, configuration=configuration.name)
                yield check.result(failure=reason)
                if configuration.choices and not shrunk:
                    judge = functools.partial(_verify_pinned, device=device, pin=pin, describe=describe)
                    yield from shrink(result, check, judge, _show(configuration))
                    shrunk = True
                break
        looked.checked += 1
        looked.refused += ran_by is None


def _show(configuration: Configuration) -> Show:
    """How the smallest case of one is shown."""
    return Show(
        "least_configuration",
        "from dataclasses import replace; from perfci.extensions.beyond.configurations import pin; "
        "from perfci.measure.verify import Check, verify",
        lambda _, check: (
            f"with pin({configuration.choices!r}): "
            f"print(verify(replace(suite, kernel=kernel), device, {check}, vars).failure)"
        ),
        {"configuration": configuration.name},
    )


def _verify_pinned(
    suite: Accuracy, check: Check, *, device: Accelerator, pin: Pin, describe: Describe
) -> AccuracyCase | None:
    """Make one check in a configuration. None if the call does not run in it, or raises."""
    inputs = bound_inputs(suite, check.params, device.arrays.device, check.seed)
    if not pin.takes(functools.partial(call_fresh, suite.kernel, inputs, device.arrays, suite.mutates)):
        return None
    with pin.enter():
        result = verify(suite, device, check, describe)
    return None if result.raised else result


def list_configurations(
    suite: Accuracy,
    device: Accelerator,
    op: str,
    folder: Path,
    shared: Path,
    probes: Sequence[Params],
    chosen: Sequence[str],
    others: Iterable[Params] = (),
) -> list[Configuration]:
    """Returns all of an op: those of its autotuners, then entries of tuned files.

    chosen: names of those that calls chose, the most frequent first. They come first.
    others: cases for candidates that are pruned for all probe cases. Without them these are left.
    """
    files = sorted(path for path in (folder / "tuned").glob("*.json") if path.name != SPACE)
    seam = _find_seam(op, folder, shared) if files else None
    tuned, places = list_candidates(suite, device, probes, others), {name: place for place, name in enumerate(chosen)}
    tuned.sort(key=lambda candidate: places.get(candidate.name, len(places)))
    if seam is None or not seam.key:  # another backend of the op does not ask for the entries
        return tuned
    entries = ((path, entry) for path in files for entry in json.loads(read_regular(path))["configs"])
    return [*tuned, *(_configure(seam, path, entry) for path, entry in entries)]


# --- autotuners -------------------------------------------------------------------------------------------------------


def list_candidates(
    suite: Accuracy, device: Accelerator, probes: Sequence[Params], others: Iterable[Params] = ()
) -> list[Configuration]:
    """Returns the candidates of each autotuner that the probe cases run, with the cases that it does not prune of them.

    others: cases of which the first ones are for candidates that are pruned for all probe cases.
    """
    cases = dict[tuple[str, str], list[Params]]()
    for number, params in enumerate(itertools.chain(probes, others)):
        left = [name for name, fitting in cases.items() if not fitting]
        if number >= len(probes) and not left:
            break
        inputs = bound_inputs(suite, params, device.arrays.device, 0)
        with pin({}) as seen, suppress(Exception):  # of cases that this device cannot run
            call_fresh(suite.kernel, inputs, device.arrays, suite.mutates)
        if not (seen or cases):  # nor will it with the others
            break
        for tuner, texts in seen.items():
            for text, runs in texts.items() if len(texts) > 1 else ():
                fitting = cases.setdefault((tuner, text), [])
                fitting += [params] if runs and (number < len(probes) or not fitting) else []
    return [
        Configuration(f"{tuner}: {text}", (Pin(functools.partial(pin, {tuner: text})),), {tuner: text}, fitting)
        for tuner, text in _sort_unlike(cases)
        for fitting in [cases[tuner, text]]
    ]


def _sort_unlike(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Candidates, those first that have a value which none before has: a branch may be of one value.

    >>> _sort_unlike([("f", "M: 1, K: 1"), ("f", "M: 2, K: 1"), ("f", "M: 2, K: 1"), ("f", "M: 1, K: 2")])
    [('f', 'M: 1, K: 1'), ('f', 'M: 2, K: 1'), ('f', 'M: 1, K: 2'), ('f', 'M: 2, K: 1')]
    """
    seen, first, others = set[tuple[str, str]](), list[tuple[str, str]](), list[tuple[str, str]]()
    for tuner, text in names:
        values = {(tuner, value) for value in text.split(", ")}
        (others if values <= seen else first).append((tuner, text))
        seen |= values
    return [*first, *others]


@contextmanager
def pin(choices: Mapping[str, str]) -> Iterator[Mapping[str, Mapping[str, bool]]]:
    """Inside, an autotuner launches the candidate with this text, or else its first one, and times none.

    choices: name of a kernel -> the candidate. Yields the candidates of each that is launched, and which it may launch:
    the others are pruned.
    """
    try:
        from triton.runtime.autotuner import Autotuner
    except ImportError:  # a device without Triton
        yield {}
        return
    from unittest import mock  # which takes long to import, and each command imports this file

    from triton.runtime.jit import KernelInterface

    seen = dict[str, dict[str, bool]]()

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        name = tuner.base_fn.__name__
        texts = [[str(config) for config in listed] for listed in (configs, tuner.configs)]
        seen[name] = dict.fromkeys(texts[0], True) | {text: text in texts[0] for text in texts[1]}
        config = tuner.best_config = next((one for one in configs if str(one) == choices.get(name)), configs[0])
        options = kwargs | config.all_kwargs()
        if config.pre_hook:
            config.pre_hook(tuner.nargs | options)
        return tuner.fn.run(*args, **options)

    with ExitStack() as stack:
        for kind in _list_launchers(KernelInterface):
            if issubclass(kind, Autotuner):
                stack.enter_context(mock.patch.object(kind, "run", run))
            elif not kind.__module__.startswith("triton."):
                stack.enter_context(mock.patch.object(kind, "run", _pass_on(kind.run)))
        yield seen


def _list_launchers(base: Any) -> list[Any]:
    """The classes below one that have a `run`: libraries have autotuners of their own."""
    below = (kind for one in base.__subclasses__() for kind in _list_launchers(one))
    return [*([base] if "run" in vars(base) else []), *below]


def _pass_on(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `run` for a library's class around an autotuner, which keeps the first choice of each key."""

    def launch(launcher: Any, *args: Any, **kwargs: Any) -> Any:
        inner: Any = getattr(launcher, "fn", None)
        return inner.run(*args, **kwargs) if hasattr(inner, "run") else run(launcher, *args, **kwargs)

    return launch


# --- tuned files ------------------------------------------------------------------------------------------------------


def _find_seam(op: str, folder: Path, shared: Path) -> Seam | None:
    """What the op asks for entries. None if there is no `_launch.tuned`."""
    with suppress(ContractError):
        seam = Seam(op, folder, shared)
        seam.forget()
        return seam
    return None


def _configure(seam: Seam, path: Path, entry: Mapping[str, Any]) -> Configuration:
    """An entry without its bounds, or for an op that reads some of them, with its largest numbers without a limit."""
    bounds = ", ".join(f"{name} {value}" for name, value in entry.items() if name != "config")
    values = ", ".join(f"{name} {value}" for name, value in entry["config"].items())
    wide = {name: UNBOUNDED if name.endswith("_max") else value for name, value in entry.items()}
    pins = tuple(
        Pin(functools.partial(_force, seam, forced), functools.partial(_is_taken, seam, forced))
        for forced in ({"config": entry["config"]}, wide)
    )
    return Configuration(f"tuned/{path.name}, {bounds or '*'}: {values}", pins)


def _is_taken(seam: Seam, entry: Mapping[str, Any], call: Callable[[], object]) -> bool:
    """Whether a call takes an entry that is the only one. One that raises takes none."""
    try:
        return seam.find_taken((entry,), call) is not None
    except Exception:  # of a configuration that does not fit the call
        return False


@contextmanager
def _force(seam: Seam, entry: Mapping[str, Any]) -> Iterator[None]:
    """Have each call find this entry alone."""
    seam.use((entry,))
    try:
        yield
    finally:
        seam.use(None)
