"""Several ways to do the same work, timed side by side: blocks whose rounds launch every one once, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.device.seam import Accelerator, Session
from perfci.measure.bench import Arm
from perfci.measure.blocks import BLOCK_WARMUP
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Params, Performance

Times = Mapping[str, tuple[tuple[float, ...], ...]]
"""By name: launches of each block, microseconds."""


class CandidateError(Exception):
    """One of them raised: its name, and what it raised."""

    def __init__(self, name: str, raised: Exception) -> None:
        super().__init__(name)
        self.name, self.raised = name, raised


@dataclass(frozen=True)
class Rounds:
    """How much is launched."""

    blocks: int
    rounds: int
    seed: int
    """of inputs, order and padding"""


def time_candidates(
    suite: Performance,
    device: Accelerator,
    params: Params,
    candidates: Mapping[str, Callable[..., Any]],
    much: Rounds,
) -> Times:
    """Time callables of one case on shared inputs, interleaved; raises CandidateError where one of them raises.

    The blocks are those of `measure.blocks`: fresh buffers behind random padding, warm-up, rounds, L2 flushed before
    each launch. All candidates share a block, so that a clock that drifts moves them alike.
    """
    order: list[list[str]] = []
    with device.session() as session:
        for index in range(much.blocks):
            order.append(_block(suite, device, params, candidates, session, much, index))
            session.pause()
    launches = iter(session.launches())
    blocks = [[(name, next(launches).time_us) for name in block] for block in order]
    return {name: tuple(tuple(us for other, us in block if other == name) for block in blocks) for name in candidates}


def _block(
    suite: Performance,
    device: Accelerator,
    params: Params,
    candidates: Mapping[str, Callable[..., Any]],
    session: Session,
    much: Rounds,
    index: int,
) -> list[str]:
    seed = random.Random(f"{much.seed}/{index}").getrandbits(31)
    drawn = random.Random(seed)
    padding = device.pad(seed)
    inputs = bound_inputs(suite, params, device.arrays.device, seed)
    arms = [Arm(name, function, inputs) for name, function in candidates.items()]
    for arm in arms * BLOCK_WARMUP:
        _called(arm, arm)
    launched: list[str] = []
    for _ in range(much.rounds):
        for arm in _shuffled(arms, drawn):
            _called(arm, lambda arm=arm: session.launch(arm, warm=suite.cache == "warm"))  # type: ignore[misc]
            launched.append(arm.arm)
    del padding
    return launched


def _called(arm: Arm, call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        raise CandidateError(arm.arm, error) from error


def _shuffled(arms: Sequence[Arm], drawn: random.Random) -> list[Arm]:
    return drawn.sample(list(arms), len(arms))
