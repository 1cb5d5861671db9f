"""Slow-downs planted into a decoder: what the recorded workload predicts for a step, and what a step then takes.

    python examples/decoder/record.py llama-8b-decode llama-8b-prefill llama-1b-train
    python examples/decoder/planted.py result.json

What is planted is a worse configuration, or a kernel that is launched several times. The change of each recorded call
is measured alone, as perfci does: launch by launch with a cold cache, and back to back where the power limit holds both
the model and the kernel. Steps are measured with and without it in turns, until the change is known to a tenth of it.
"""

import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import torch

sys.path.insert(0, str(Path(__file__).parent))
import decoder

from perfci.core.model import Interval
from perfci.device import open_device
from perfci.extensions.workloads.costs import Changed, predict
from perfci.extensions.workloads.records import Call, Tensor, Workload, read_workload
from perfci.measure.power import HELD, WAITED
from perfci.statistics import exact

attention_triton, matmul_triton = map(importlib.import_module, ("attention_triton", "matmul_triton"))

TURN_S, HELD_TURN_S = 0.06, 0.4  # least time that a turn of a step takes, and that at the power limit, which settles
BLOCKS, SURE, MOST_S = 6, 0.08, 9.0  # fewest pairs of turns; half-width of the change, as a share of it; or this long
ROUNDS, MOST = 10, 16  # launches of each arm, and calls of an op that are measured: those that take most time
ALONE_S, PAIRS = 0.2, 3  # of a call back to back, and pairs of such turns
COOL_S, SETTLE_S = 0.3, 3.0  # before a call is tried for the limit; of steps at the limit before any of them counts


@dataclass(frozen=True)
class Plant:
    """A slow-down of an op."""

    mode: str
    op: str
    what: str
    slow: Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def replaced(module, name: str, value) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def find_function(op: str):
    """The function as the model calls it: of attention's backward pass that is attention itself."""
    return getattr(decoder, op, None) or getattr(attention_triton, op)


@contextlib.contextmanager
def repeated(op: str, times: int) -> Iterator[None]:
    """The op's kernel is launched so many times."""
    function = find_function(op)

    @functools.wraps(function)
    def slow(*args, **kwargs):
        for _ in range(times - 1):
            function(*args, **kwargs)
        return function(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        for module in (decoder, attention_triton):
            if getattr(module, op, None) is function:
                stack.enter_context(replaced(module, op, slow))
        yield


@contextlib.contextmanager
def configured(**worse) -> Iterator[None]:
    """Products are computed in another configuration than the tuned one."""
    choose = matmul_triton.choose_config

    def chosen(*args):
        config = choose(*args)
        return config._replace(**{name: change(getattr(config, name)) for name, change in worse.items()})

    with replaced(matmul_triton, "choose_config", chosen):
        yield


def half(stages: int) -> int:
    return max(stages // 2, 1)


PLANTS = (
    Plant("llama-8b-decode", "matmul", "half the stages", lambda: configured(stages=half)),
    Plant("llama-8b-decode", "attention", "twice", lambda: repeated("attention", 2)),
    Plant("llama-8b-decode", "add_rms_norm", "4 times", lambda: repeated("add_rms_norm", 4)),
    Plant("llama-8b-decode", "rotary", "4 times", lambda: repeated("rotary", 4)),
    Plant("llama-8b-prefill", "matmul", "half the stages", lambda: configured(stages=half)),
    Plant("llama-8b-prefill", "attention", "twice", lambda: repeated("attention", 2)),
    Plant("llama-8b-prefill", "add_rms_norm", "6 times", lambda: repeated("add_rms_norm", 6)),
    Plant("llama-1b-train", "cross_entropy", "16 times", lambda: repeated("cross_entropy", 16)),
    Plant("llama-1b-train", "rms_norm_backward", "8 times", lambda: repeated("rms_norm_backward", 8)),
    Plant("llama-1b-train", "attention_backward", "twice", lambda: repeated("attention_backward", 2)),
)


def make_inputs(call: Call) -> dict[str, object]:
    """Arguments of a recorded call: random numbers, and zeros where whole numbers are places."""
    made = {}
    for name, given in call.arguments.items():
        value = given
        if isinstance(value, Tensor):
            dtype, strides = getattr(torch, value.dtype), value.strides
            if strides is None:
                strides = torch.empty(value.shape, device="meta").stride()
            length = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, strides, strict=True))
            flat = torch.randn(length, device="cuda").to(dtype) if dtype.is_floating_point else torch.zeros(
                length, dtype=dtype, device="cuda")  # fmt: skip
            value = flat.as_strided(value.shape, strides)
        made[name] = value
    return made


def measure_alone(plant: Plant, workload: Workload, device) -> dict[tuple[str, str], Changed]:
    """The change of each call: launch by launch, both arms in random order, and back to back where power is short."""
    changes, rng = {}, random.Random(0)
    for call in [call for call in workload.calls if call.op == plant.op and call.case][:MOST]:
        inputs = make_inputs(call)

        def plain(inputs=inputs):
            return find_function(plant.op)(**inputs)

        def slow(inputs=inputs):
            with plant.slow():
                return find_function(plant.op)(**inputs)

        for arm in (plain, slow, plain, slow):
            arm()
        order = [rng.sample((plain, slow), 2) for _ in range(ROUNDS)]
        with device.session() as session:
            for pair in order:
                for arm in pair:
                    session.launch(arm)
        launches = iter(session.launches())
        seen = [{arm: next(launches) for arm in pair} for pair in order]
        shifts = [math.log(pair[slow].time_us / pair[plain].time_us) for pair in seen]
        changes[call.op, str(call.case)] = Changed(
            exact.to_ratio(exact.location(shifts)),
            us=statistics.median(pair[plain].time_us for pair in seen),
            launches=seen[0][slow].activities - seen[0][plain].activities,
            device=device.info.key,
            **(sustain(plain, slow, device) if workload.held else {}),
        )
        del inputs, plain, slow
    return changes


def sustain(plain, slow, device) -> dict[str, object]:
    """The change back to back. Nothing for a call that alone does not reach the power limit, or waits for the host."""
    sleep(COOL_S)
    alone = device.sustain(plain, ALONE_S)
    if alone.clock_mhz > HELD * device.free_mhz or alone.waited < WAITED:
        return {}
    pairs = []
    for pair in range(PAIRS):
        us = {arm: device.sustain(arm, ALONE_S).us for arm in ((plain, slow) if pair % 2 else (slow, plain))}
        pairs.append((us[plain], us[slow]))
    shift = exact.location([math.log(after / before) for before, after in pairs])
    return {"sustained": exact.to_ratio(shift), "sustained_us": statistics.median(before for before, _ in pairs)}


def measure_steps(plant: Plant, plain, scene: decoder.Scene, turn_s: float) -> tuple[Interval, list[tuple[float, ...]]]:
    """The change of a step's time, by turns in alternating order, and what a step took in each pair of turns."""
    if scene.served:
        with plant.slow():
            slow = scene.prepare()
    else:

        def slow():
            with plant.slow():
                scene.step()

    slow()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def turn(step, count: int) -> float:
        """Milliseconds of a step. The first fifth of a turn brings the clock to where this arm has it."""
        for _ in range(math.ceil(count / 4)):
            step()
        begin.record()
        for _ in range(count):
            step()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count

    count, pairs = math.ceil(turn_s / (1e-3 * turn(plain, 1))), []
    settled = perf_counter() + (SETTLE_S if turn_s == HELD_TURN_S else 0.0)
    while perf_counter() < settled:
        turn(plain, count)
        turn(slow, count)
    began = perf_counter()
    while True:
        arms = (plain, slow) if len(pairs) % 2 else (slow, plain)
        took = {arm: turn(arm, count) for arm in arms}
        pairs.append((took[plain], took[slow]))
        if len(pairs) >= BLOCKS:
            seen = exact.to_ratio(exact.location([math.log(after / before) for before, after in pairs]))
            if seen.high - seen.low < 2 * SURE * abs(seen.value) or perf_counter() - began > MOST_S:
                return seen, pairs


def main(path: str | None) -> None:
    device = open_device("cuda", seed=0)
    device.start_timer()
    results, kernels = [], Path(__file__).parents[2] / "kernels"
    for mode in dict.fromkeys(plant.mode for plant in PLANTS):
        workload, scene = read_workload(kernels, mode), decoder.Scene(mode, "cuda")
        plain = scene.prepare()
        for plant in (plant for plant in PLANTS if plant.mode == mode):
            changes = measure_alone(plant, workload, device)
            cost = predict(workload, changes)
            seen, pairs = measure_steps(plant, plain, scene, HELD_TURN_S if workload.held else TURN_S)
            off = cost.change.value / seen.value - 1 if seen.value else float("nan")
            predicted, measured = (
                f"{one.value:+7.2%} [{one.low:+.2%}, {one.high:+.2%}]" for one in (cost.change, seen)
            )
            print(f"{mode:17} {plant.op:18} {plant.what:18} share {cost.share:6.1%}", end="  ")
            print(f"predicted {predicted}  measured {measured}  off {off:+.0%}", flush=True)
            facts = {"mode": mode, "op": plant.op, "what": plant.what, "share": cost.share, "unknown": cost.unknown}
            ends = {"predicted": dataclasses.astuple(cost.change), "measured": dataclasses.astuple(seen), "off": off}
            alone = [{"case": case, **dataclasses.asdict(changed)} for (_, case), changed in changes.items()]
            results.append(facts | ends | {"alone": alone, "pairs_ms": pairs})
            if path:
                Path(path).write_text(json.dumps(results, indent=1))
        del scene, plain
        gc.collect()
        torch.cuda.empty_cache()
    print(f"within 20 %: {sum(abs(one['off']) <= 0.2 for one in results)} of {len(results)}")


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [None]))
