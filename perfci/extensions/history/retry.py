"""Duels of what an earlier run left open.

`accept` refuses INCONCLUSIVE cases, so each is duelled with the commit of its last conclusive run. So is one that a
younger base answered, if its op's files changed since: nothing else would look at what came in between.
"""

import dataclasses
import re

from perfci.core.environment import find_newest
from perfci.core.errors import UsageError
from perfci.core.model.baseline import Baseline, BaselineCase
from perfci.core.model.basics import Gate, Reason, Suite, Verdict, because
from perfci.core.model.decision import Judgements
from perfci.core.model.run import Again, AgainCase, Base, DuelWhat, Run
from perfci.core.settings import Settings
from perfci.extensions.history.groups import SHOWN, begin, group_cases, measure_groups, plan_groups
from perfci.git.base import How
from perfci.git.command import parse_commit
from perfci.runs.bench import Listener, claim_bench
from perfci.runs.decide import decide, read_context
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request

BUDGETS = 2  # times the earlier run's budget, which was too small, unless --budget names one


def retry(
    settings: Settings, earlier: Run, request: Request, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Duel the INCONCLUSIVE performance cases of a run of the checked-out commit, as a run in the reports folder.

    request: device, budget (0: twice the earlier run's), seed, timer. Other values are the earlier run's. A run without
    ops had nothing to duel. Raises UsageError for a run of another commit or device model, a shard's, and for a
    --threshold that a pipeline does not allow.
    """
    head = parse_commit(settings.root, "HEAD")
    if head is None or head != earlier.environment.commit:
        raise UsageError("again_commit", run=earlier.id, found=head, planned=earlier.environment.commit)
    device, timer = earlier.environment.device, earlier.environment.timer
    request = dataclasses.replace(
        request,
        device="fake" if request.device == "auto" and device.kind == "fake" else request.device,
        budget_s=request.budget_s or BUDGETS * earlier.plan.budget_s,
        timer=timer if timer and request.timer == "auto" and timer != "virtual" else request.timer,
        suites=(Suite.PERFORMANCE,),
        duel=DuelWhat.ALL,
        thresholds=request.thresholds or earlier.plan.thresholds,
    )
    with claim_bench(settings, listener) as bench:
        whole = Experiment.beside(bench, request, command, None)
        blank = begin(whole, dataclasses.replace(device, uuid=None), Again(earlier.id))
        cases, undecided = _find_open_cases(earlier, settings)
        if not cases:
            return blank, Judgements(())
        request = dataclasses.replace(request, ops=tuple(dict.fromkeys(case.op for case in cases)))
        whole = dataclasses.replace(whole, request=request)
        described = whole.describe()
        if described.device.key != device.key:
            raise UsageError("again_device", run=earlier.id, planned=device.key, found=described.device.key)
        groups, refused = group_cases(whole, described.ops, cases, _name_base)
        lost = [case for case in cases if case.failure]
        for case, why in refused:
            failure = because("again_not_duelled", why, op=case.op, case=case.case, commit=(case.commit or "")[:SHOWN])
            lost.append(dataclasses.replace(case, failure=failure))
        # Only what was left open is asked again if nothing changed, and stays open if it cannot be asked.
        lost = [case for case in lost if (case.op, case.case) in undecided]
        for group in groups:
            group.cases = [case for case in group.cases if not case.same or (case.op, case.case) in undecided]
        groups = [group for group in groups if group.cases]
        again = Again(earlier.id, (*(case for group in groups for case in group.cases), *lost))
        if not again.cases:
            return blank, Judgements(())
        return measure_groups(
            whole, blank, plan_groups(whole, described, groups, again), described.device, groups, earlier
        )


def _name_base(commit: str) -> Base:
    return Base(commit, How.AGAIN, commit[:SHOWN])


def _find_open_cases(earlier: Run, settings: Settings) -> tuple[list[AgainCase], set[tuple[str, str]]]:
    """Returns the cases, each with its last conclusive commit or why it has none, and the INCONCLUSIVE ones."""
    baselines, base = read_context(earlier, settings).baselines, earlier.plan.base
    # A case without a stored commit has the one that the run was compared with.
    other = base.commit if base and base.how == How.BASELINE else None
    stored = {(op, case.case): case for op, baseline in baselines.items() for case in baseline.cases}
    cases, undecided = [], set()
    for row in decide(earlier, settings).rows:
        if row.suite is not Suite.PERFORMANCE or row.case is None:
            continue
        commit = _find_last_commit(stored.get((row.op, row.case)), baselines.get(row.op)) or other
        failure = None if commit else Reason("again_no_commit", {"op": row.op, "case": row.case})
        is_open = row.verdict is Verdict.INCONCLUSIVE
        if is_open or (other and commit != other and row.verdict.gate is not Gate.FAILS):
            cases.append(AgainCase(row.op, row.case, commit, failure=failure))
        if is_open:
            undecided.add((row.op, row.case))
    return cases, undecided


def _find_last_commit(stored: BaselineCase | None, baseline: Baseline | None) -> str | None:
    """Returns the newest recorded, clean commit of the runs that a case's stored blocks come from."""
    if baseline is None or stored is None:
        return None
    sources = {block.run for block in stored.blocks}
    clean = [run for run in baseline.runs if run.id in sources and not run.environment.dirty and run.environment.commit]
    newest = find_newest(clean).environment.commit if clean else None
    return newest if newest and re.fullmatch(r"[0-9a-f]{7,64}", newest) else None
