"""Times candidates of a search: ways to do the same work, in blocks that all share."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from perfci.device.seam import Accelerator
from perfci.measure.bench import Arm
from perfci.measure.blocks import BLOCK_WARMUP
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Params, Performance


class CandidateError(Exception):
    """A candidate raised: its name, and what it raised."""

    def __init__(self, name: str, raised: Exception) -> None:
        super().__init__(name)
        self.name, self.raised = name, raised


def time_candidates(
    suite: Performance,
    device: Accelerator,
    params: Params,
    candidates: Mapping[str, Callable[..., Any]],
    *,
    blocks: int,
    rounds: int,
    seed: int,
) -> Mapping[str, tuple[tuple[float, ...], ...]]:
    """Time ways to do the same work, in blocks that all share, so that a clock that drifts moves them alike.

    Returns the launches of each block by name, microseconds. Raises CandidateError if a candidate raises.
    """
    order: list[list[str]] = []
    running = ""
    try:
        with device.session() as session:
            for index in range(blocks):
                own_seed = random.Random(f"{seed}/{index}").getrandbits(31)
                drawn = random.Random(own_seed)
                padding = device.pad(own_seed)
                inputs = bound_inputs(suite, params, device.arrays.device, own_seed)
                arms = [Arm(name, function, inputs) for name, function in candidates.items()]
                for arm in arms * BLOCK_WARMUP:
                    running = arm.arm
                    arm()
                order.append([])
                for arm in (one for _ in range(rounds) for one in drawn.sample(arms, len(arms))):
                    running = arm.arm
                    session.launch(arm, warm=suite.cache == "warm")
                    order[-1].append(running)
                del padding
                running = ""
                session.pause()
    except Exception as error:
        if running:
            raise CandidateError(running, error) from error
        raise
    launches = iter(session.launches())
    timed = [[(name, next(launches).time_us) for name in block] for block in order]
    return {name: tuple(tuple(us for other, us in block if other == name) for block in timed) for name in candidates}
