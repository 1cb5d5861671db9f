"""The chain task: a chain's file is imported and checked against its contract, and its cases one by one."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from perfci.core.errors import ContractError
from perfci.core.model import Amount
from perfci.device.seam import Accelerator
from perfci.extensions.lab.chains.records import ENDING, Chain, ChainMeasured, Stage
from perfci.extensions.lab.chains.runs import Setting, check_case, list_parameters
from perfci.ops.spec import case_id
from perfci.worker.answers import Answers, Rule
from perfci.worker.contract import check_calls, check_cases, checking, parameters
from perfci.worker.load import choose_cases, describe_exception, import_from, import_suite
from perfci.worker.opening import open_op
from perfci.worker.protocol import Doing, Message, MessageChannel, OpDone
from perfci.worker.tasks import DeviceTask

Send = Callable[[Message], None]


@dataclass(frozen=True)
class ChainPlanned:
    """A chain is imported."""

    cases: tuple[str, ...]
    tolerance: Mapping[str, Amount] | None = None


@dataclass(frozen=True, kw_only=True)
class CheckChain(DeviceTask):
    """Check a chain of ops, stage by stage and as a whole."""

    performer = "perfci.extensions.lab.chains.task:run"
    answers: ClassVar[Answers] = {
        **DeviceTask.answers,
        ChainPlanned: Rule(),
        ChainMeasured: Rule(lambda _, message: message.case),
        OpDone: Rule(),
    }
    last = (OpDone,)

    pattern: str | None = None
    cases: tuple[str, ...] | None = None


def load_chain(name: str, folder: Path, shared: Path) -> Chain:
    """Import a chain. Raises ContractError that names the file for whatever it does wrong."""
    path = folder / f"{name}{ENDING}"
    with import_from(path.parent, shared):
        chain: Chain = import_suite(path, "chain", Chain)
    with checking(path.name):
        tolerance = chain.tolerance
        if tolerance is not None and not (isinstance(tolerance, Mapping) and all(map(_is_share, tolerance.values()))):
            raise ContractError("chain_tolerance", file=path.name, found=repr(tolerance))
        names = [stage.name for stage in chain.stages]
        if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
            raise ContractError("chain_stage_names", file=path.name, names=", ".join(names) or "-")
        for stage in chain.stages:
            _check_stage(stage, path.name)
        cases = [*chain.cases, *chain.accelerator_cases]
        check_cases(cases, path.name)
        check_calls(chain.make_inputs, cases, path.name)
    return chain


def run(task: CheckChain, channel: MessageChannel) -> None:
    """Import a chain and check the task's cases. Ends early if one of them cost the process its device."""
    with open_op(task, channel, lambda _: load_chain(task.op, task.folder, task.shared_folder)) as (device, chain):
        check(task, channel.send, device, chain)


def check(task: CheckChain, send: Send, device: Accelerator, chain: Chain) -> None:
    """Check the task's cases of a chain."""
    name = task.op
    chosen = choose_cases(choose_cases([*chain.cases, *chain.accelerator_cases], task.pattern), None, task.cases)
    send(ChainPlanned(tuple(case_id(params) for params in chosen), chain.tolerance))
    describe = functools.partial(describe_exception, folder=task.shared_folder)
    for done, params in enumerate(chosen):

        def announce(stage: str, case: str, done: int = done) -> None:
            send(Doing(stage, name, case, done, len(chosen)))

        announce("inputs and references", case_id(params))
        case = check_case(Setting(name, chain, device, describe, announce), params, task.seed)
        send(case)
        if case.lost:
            break
    send(OpDone())


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_stage(stage: Stage, file: str) -> None:
    """Two functions that can be called with what the stage takes."""
    takes, functions = stage.takes, {"kernel": stage.kernel, "reference": stage.reference}
    ours, theirs = list_parameters(stage.kernel), list_parameters(stage.reference)
    if not takes and sorted(ours) != sorted(theirs):
        facts = {"kernel": ", ".join(ours), "reference": ", ".join(theirs)}
        raise ContractError("chain_signatures", file=file, stage=stage.name, **facts)
    for field, function in functions.items() if takes else ():
        try:
            inspect.signature(function).bind(**takes)
        except TypeError as error:
            facts = {"parameters": ", ".join(parameters(function)), "message": str(error)}
            raise ContractError("chain_takes", file=file, stage=stage.name, function=field, **facts) from error
