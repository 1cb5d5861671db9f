"""A round that is measured on a board of a cluster."""

from dataclasses import replace
from typing import Any

from perfci import store
from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder
from perfci.extensions.agents.logbook import FILE, read_logbook
from perfci.extensions.agents.round_records import Round
from perfci.extensions.agents.rounds import FOLDER, try_round
from perfci.ops.discover import select_one
from perfci.runs.bench import Listener
from perfci.runs.boards import find_sick
from perfci.runs.nodes import HERE, Cluster, NodeAnswer, NodeCommand, find_kind, unpack
from perfci.runs.plan import Request
from perfci.store.files import copy_folder
from perfci.worker.protocol import Doing


def try_on_cluster(
    settings: Settings, request: Request, why: str, listener: Listener, command: str, address: str | None, **more: Any
) -> Round:
    """One round as `try_round` judges it, with kernel, best and start measured on one board of a cluster, if any."""
    if not address:
        return try_round(settings, request, why, listener, command, **more)
    with find_kind().open(address, request.device) as cluster:

        def measure(round_: Round) -> Round:
            listener(Doing("measure", round_.op))
            return _measure(cluster, settings, request, round_)

        return try_round(settings, request, why, listener, command, elsewhere=measure, **more)


def _measure(cluster: Cluster, settings: Settings, request: Request, round_: Round) -> Round:
    """A node's answer about a round, and its run in the reports folder."""
    op, rounds, tried = select_one(settings, round_.op), settings.reports / FOLDER, list[Round]()
    words = ["try", op.op, "--why", round_.why, "--against", round_.start, "--device", cluster.device, "--on", HERE]
    words += ["--seed", str(request.seed)] if request.seed is not None else []
    sick = find_sick(settings)

    def keep(_: int, answer: NodeAnswer) -> Reason | None:
        with temporary_folder("round") as folder:
            unpack(answer.packed, [folder / FILE, folder / "run"])
            tried[:] = read_logbook(folder).rounds[-1:]
            if (folder / "run" / store.RUN_FILE).is_file():
                copy_folder(folder / "run", rounds)
                return cluster.find_fault(store.read_run(rounds), answer.node, aside=sick)
        return None

    asked = NodeCommand(words, kept=[op.folder / FILE, rounds])
    faults = cluster.run(settings, {1: asked}, keep, [str(round_.against), round_.start])
    if not tried or tried[0].digest != round_.digest:
        reason = faults[-1] if faults else Reason("round_edited", {"op": op.op})
        raise PerfciError(reason.kind, **reason.facts)
    kept = {name: getattr(round_, name) for name in ("number", "time", "commit", "expected", "advice")}
    return replace(tried[0], **kept, counters={})
