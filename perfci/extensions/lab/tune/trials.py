"""An op's search through its candidates, whatever times them: entries, batches, finalists, the decision."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.core.errors import ContractError, UsageError
from perfci.core.model import Reason
from perfci.extensions.lab.tune.files import list_regimes, pick_fixed, read_numbers, read_space, read_tuned
from perfci.extensions.lab.tune.records import FINAL, SEARCH, SUITE, Attempt, Config, Regime, describe_config, key, nest
from perfci.extensions.lab.tune.seam import Entries, Seam
from perfci.extensions.lab.tune.search import Choices, choose_finalists, decide, find_next
from perfci.extensions.lab.tune.task import Regimes, Trying, Tune
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.load import choose_cases
from perfci.worker.protocol import Doing, Message, OpDone

BATCH = 8  # candidates that share their blocks: an interruption loses what so many compiled to

Send = Callable[[Message], None]


class TuningSearch:
    """One op's search. Its subclasses time the candidates."""

    def __init__(self, task: Tune, send: Send, suite: Performance) -> None:
        self.task, self.send, self.suite, self.op = task, send, suite, task.op
        self.folder, self.shared = task.folder, task.shared_folder
        self.space = read_space(self.op, self.folder)
        self.seam = Seam(self.op, self.folder, self.shared)
        self.cases = {case_id(params): params for params in choose_cases(suite.cases, task.pattern)}
        self.known = list(task.known)
        self.regimes: tuple[Regime, ...] = ()
        self._names: Mapping[str, Any] = {}
        self._entries: dict[str, Entries] = {}
        self._grids: dict[str, Choices] = {}

    def call_quietly(self, params: Params) -> None:
        """Call the op for what it reads on the way to its launch. A configuration may fail here."""
        raise NotImplementedError

    def time_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        """Time candidates, and keep the result of each."""
        raise NotImplementedError

    def find_fault(self, regime: Regime, config: Config | None) -> Reason | None:
        """Returns what the accuracy suite finds wrong with a configuration."""
        raise NotImplementedError

    def search(self) -> None:
        """Look through every entry that serves a case, as far as time allows."""
        self.find_regimes()
        done = all(self._search_regime(regime) for regime in self.regimes if regime.cases)
        self.send(OpDone(late=not done))

    def find_regimes(self) -> None:
        """Find the entries, and the cases that each serves."""
        first, params = next(iter(self.cases.items()))
        self.send(Doing("tune", self.op, first))
        self.call_quietly(params)
        if self.seam.key is None:
            raise ContractError("tune_not_asked", op=self.op)
        file = read_tuned(self.folder / "tuned" / f"{self.seam.key}.json")
        self._names = read_numbers(self.shared, self.seam.key)
        regimes = list_regimes(self.space, file.entries)
        self.regimes = tuple(replace(regime, lists=dict(regime.lists)) for regime in regimes)
        served: dict[int | None, list[str]] = {}
        entries = self._list_entries(None, None)
        for case, params in self.cases.items():
            self.send(Doing("tune", self.op, case))
            taken = self.seam.find_taken(entries, functools.partial(self.call_quietly, params))
            served.setdefault(taken, []).append(case)
        self.regimes = tuple(replace(other, cases=tuple(served.get(at, ()))) for at, other in enumerate(self.regimes))
        unserved = tuple(served.get(None, ()))
        self.send(Regimes(str(file.path), self.seam.key, file.digest, self.regimes, unserved))
        if len(unserved) == len(self.cases):
            raise ContractError("tune_unserved", op=self.op, case=unserved[0])

    def _search_regime(self, regime: Regime) -> bool:
        """Search one entry. Returns whether that came to its end in time."""
        grid = self.grid(regime)
        if not grid.coarse:
            raise UsageError("tune_space_empty", path=str(self.space.path), entry=regime.label)
        while self.task.until_s is None or time.time() < self.task.until_s:
            attempts = self.list_known(regime)
            done = {stage: {attempt.key for attempt in attempts if attempt.stage == stage} for stage in (FINAL, SUITE)}
            if not any(attempt.config is None for attempt in attempts):
                self.time_batch(regime, [None], SEARCH)
            elif batch := find_next(grid, attempts):
                self.time_batch(regime, batch[: 1 if self.task.alone else BATCH], SEARCH)
            elif left := [
                finalist for finalist in choose_finalists(grid, attempts) if key(finalist) not in done[FINAL]
            ]:
                self.time_batch(regime, left, FINAL)
            else:
                # The finalists were timed beside today's choice. One of them, or none, is right everywhere.
                choice = decide(grid, regime, attempts, needed=True)
                if not choice.changed or key(choice.config) in done[SUITE]:
                    return True
                fault = self.find_fault(regime, choice.config)
                if fault and self.find_anchor(regime) is None and self.find_fault(regime, None):
                    raise UsageError("tune_op_wrong", op=self.op, case=fault.facts.get("case"))
                self.keep(Attempt(regime.label, choice.config, SUITE, failure=fault))
        return False

    def list_entries(self, regime: Regime, config: Config | None) -> Entries | None:
        """Returns the entries that put a candidate in force, always the same ones. None: those of its file."""
        if config is None:
            return None
        name = f"{regime.label} {key(config)}"
        if name not in self._entries:
            self._entries[name] = self._list_entries(regime, config)
        return self._entries[name]

    def _list_entries(self, regime: Regime | None, config: Config | None) -> Entries:
        """All entries, one of them with this configuration. Those without one get the simplest that is valid."""
        entries = []
        for other in self.regimes:
            current = config if other is regime and config else other.current
            if current is None:
                simplest = {name: values[0] for name, values in other.lists.items()}
                current = next(iter(self.grid(other).coarse), simplest)
            entries.append({**other.when, "config": nest(current)})
        return tuple(entries)

    def grid(self, regime: Regime) -> Choices:
        """Returns a regime's candidates."""
        if regime.label not in self._grids:
            valid = functools.partial(self.space.is_valid, names={**self._names, **pick_fixed(regime.when)})
            self._grids[regime.label] = Choices(regime.lists, valid, self.task.seed, regime.current)
        return self._grids[regime.label]

    def list_known(self, regime: Regime) -> list[Attempt]:
        """Returns what is known of an entry's candidates."""
        return [attempt for attempt in self.known if attempt.regime == regime.label]

    def find_anchor(self, regime: Regime, default: Config | None = None) -> Config | None:
        """Returns what candidates are compared with: today's choice (None), or if that fails the first that works."""
        anchor = self.list_known(regime)
        if not any(attempt.config is None and attempt.failure for attempt in anchor):
            return None
        bad = {attempt.key for attempt in anchor if attempt.failure}
        return next(
            (attempt.config for attempt in anchor if attempt.config is not None and attempt.key not in bad), default
        )

    def keep(self, tried: Attempt) -> None:
        """Report the result of a candidate, and go on from it."""
        self.known.append(tried)
        self.send(tried)

    def announce(self, regime: Regime, config: Config | None) -> None:
        """Report what is tried now."""
        self.send(Trying(regime.label, config))
        self.send(Doing("tune", self.op, f"{regime.label} {describe_config(config)}".strip()))
