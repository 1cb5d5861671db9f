"""The chain task: a chain's file imported, held to its contract, and its cases checked one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfci.core.errors import ContractError
from perfci.core.wording import as_fact
from perfci.device.seam import Accelerator
from perfci.lab.chains.records import ENDING, ListedChain
from perfci.lab.chains.runs import Setting, check_case, list_parameters
from perfci.ops.spec import Chain, Params, Stage, case_id, matches
from perfci.worker.load import describe_exception, imported, parameters
from perfci.worker.protocol import ChainPlanned, Job, Message, OpDone, OpFiles, Step

Say = Callable[[Message], None]


def load_chain(name: str, folder: Path, shared: Path) -> Chain:
    """Import a chain; raises ContractError that names the file for whatever it does wrong."""
    path = folder / f"{name}{ENDING}"
    chain: Chain = imported(path, "chain", Chain, shared)
    _check_fields(chain, path.name)
    _check_stages(chain.stages, path.name)
    _check_cases(chain, path.name)
    return chain


def listed(files: OpFiles, job: Job) -> ListedChain:
    """What a chain declares: its stages, and the cases that fit the job's pattern."""
    try:
        chain = load_chain(files.op, Path(files.folder), Path(job.shared_folder))
    except ContractError as error:
        return ListedChain(files.op, failure=error.reason)
    stages, cases = (stage.name for stage in chain.stages), map(case_id, _chosen(job, chain))
    return ListedChain(files.op, tuple(stages), tuple(cases))


def run(job: Job, say: Say, device: Accelerator, chain: Chain) -> None:
    """Check the job's cases; ends early where one of them cost the process its device."""
    name, chosen = job.ops[0].op, _chosen(job, chain)
    say(ChainPlanned(tuple(case_id(params) for params in chosen)))
    shared, done = Path(job.shared_folder), 0

    def tell(stage: str, case: str) -> None:
        say(Step(f"stage {stage}", name, case, done, len(chosen)))

    on = Setting(name, chain, device, lambda error: describe_exception(error, shared), tell)
    for params in chosen:
        say(Step("inputs and references", name, case_id(params), done, len(chosen)))
        case = check_case(on, params, job.seed)
        say(case)
        done += 1
        if case.lost:
            break
    say(OpDone())


def _chosen(job: Job, chain: Chain) -> list[Params]:
    every = {case_id(params): params for params in (*chain.cases, *chain.accelerator_cases)}
    wanted = [case for case in every if matches(case, job.pattern)]
    return [every[case] for case in wanted if job.cases is None or case in job.cases]


def _check_fields(chain: Chain, file: str) -> None:
    if not callable(chain.make_inputs):
        raise _misfit(file, "make_inputs", as_fact("a Python function"), chain.make_inputs)
    for field in ("stages", "cases", "accelerator_cases"):
        if not isinstance(getattr(chain, field), Sequence):
            raise _misfit(file, field, as_fact("a list or tuple"), getattr(chain, field))
    tolerance = chain.tolerance
    if tolerance is not None and not (isinstance(tolerance, Mapping) and all(map(_is_share, tolerance.values()))):
        raise ContractError("chain_tolerance", file=file, found=repr(tolerance))


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_stages(stages: Sequence[Stage], file: str) -> None:
    if not stages:
        raise ContractError("chain_no_stages", file=file)
    for stage in stages:
        if not isinstance(stage, Stage):
            raise _misfit(file, as_fact("every stage"), as_fact("a perfci.Stage"), stage)
        if not isinstance(stage.name, str) or not stage.name.isidentifier():
            raise ContractError("chain_stage_name", file=file, stage=repr(stage.name))
        if [each.name for each in stages].count(stage.name) > 1:
            raise ContractError("chain_stage_twice", file=file, stage=stage.name)
        for field in ("kernel", "reference"):
            if not _has_names(found := getattr(stage, field)):
                raise _misfit(file, f"{field} of {stage.name}", as_fact("a Python function"), found)
        _check_wiring(stage, file)


def _check_wiring(stage: Stage, file: str) -> None:
    """Both functions can be called with what the stage takes."""
    takes = stage.takes
    if not isinstance(takes, Mapping) or not all(isinstance(name, str) for pair in takes.items() for name in pair):
        raise _misfit(file, f"takes of {stage.name}", as_fact("a mapping of parameters to names"), takes)
    ours, theirs = list_parameters(stage.kernel), list_parameters(stage.reference)
    if not takes and sorted(ours) != sorted(theirs):
        facts = {"kernel": ", ".join(ours), "reference": ", ".join(theirs)}
        raise ContractError("chain_signatures", file=file, stage=stage.name, **facts)
    for field in ("kernel", "reference") if takes else ():
        function = getattr(stage, field)
        try:
            inspect.signature(function).bind(**takes)
        except TypeError as error:
            facts = {"parameters": ", ".join(parameters(function)), "message": str(error)}
            raise ContractError("chain_takes", file=file, stage=stage.name, function=field, **facts) from error


def _has_names(function: Any) -> bool:
    try:
        list_parameters(function)
    except (TypeError, ValueError):
        return False
    return True


def _check_cases(chain: Chain, file: str) -> None:
    every = [*chain.cases, *chain.accelerator_cases]
    if not every:
        raise ContractError("no_cases", file=file)
    for params in every:
        if not isinstance(params, Mapping):
            raise _misfit(file, as_fact("every case"), as_fact("a mapping of names to values"), params)
    ids = [case_id(params) for params in every]
    if twice := next((case for case in ids if ids.count(case) > 1), None):
        raise ContractError("case_twice", file=file, case=twice)
    for params in every:
        try:
            inspect.signature(chain.make_inputs).bind(**{**params, "device": None, "seed": None})
        except (TypeError, ValueError) as error:
            takes = ", ".join(parameters(chain.make_inputs))
            facts = {"case": case_id(params), "takes": takes, "message": str(error)}
            raise ContractError("make_inputs_mismatch", file=file, **facts) from error


def _misfit(file: str, field: str, wanted: str, found: Any) -> ContractError:
    return ContractError("suite_field", file=file, field=field, wanted=wanted, found=type(found).__name__)
