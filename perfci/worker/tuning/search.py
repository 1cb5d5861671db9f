"""An op's search through its candidates, whatever times them: entries, batches, finalists, the decision."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfci.core.codec import decode, encode
from perfci.core.errors import ContractError, UsageError
from perfci.core.model import Reason
from perfci.lab.tune import records
from perfci.lab.tune.files import TunedFile, read_numbers, read_tuned
from perfci.lab.tune.records import FINAL, SEARCH, SUITE, Attempt, Config, Regime, describe_config, nest
from perfci.lab.tune.search import Choices, choose_finalists, decide, find_next
from perfci.lab.tune.space import list_regimes, pick_fixed, read_space
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.load import choose_cases
from perfci.worker.protocol import Doing, Job, Message, OpDone, Regimes, Trying
from perfci.worker.tuning.seam import Entries, Seam

BATCH = 8
"""Candidates that share their blocks: an interruption loses what so many compiled to."""

Send = Callable[[Message], None]


class TuningSearch:
    """One op's search. `measured` and `modelled` time the candidates."""

    runs = True
    """whether candidates run, so that their answers can be checked"""

    def __init__(self, job: Job, send: Send, suite: Performance) -> None:
        files = job.ops[0]
        self.job, self.send, self.suite, self.op = job, send, suite, files.op
        self.folder, self.shared = Path(files.folder), Path(job.shared_folder)
        self.space = read_space(files.op, self.folder)
        self.seam = Seam(files.op, self.folder, self.shared)
        self.cases = {case_id(params): params for params in choose_cases(suite.cases, job.pattern)}
        # As it is written to disk and read again, so that a search that goes on compares like with like.
        self.known = [decode(encode(each), Attempt) for each in job.tune.known]
        self.all: tuple[Regime, ...] = ()
        self.file = TunedFile(Path())
        self.names: Mapping[str, Any] = {}
        self._kept: dict[str, Entries] = {}
        self._grids: dict[str, Choices] = {}

    # --- what times candidates ----------------------------------------------------------------------------------------

    def call_quietly(self, params: Params) -> None:
        """Call the op for what it reads on the way to its launch. A configuration may fail here."""
        raise NotImplementedError

    def time_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        """Time candidates, and keep what each showed."""
        raise NotImplementedError

    def find_fault(self, regime: Regime, config: Config | None) -> Reason | None:
        """Returns what the accuracy suite finds wrong with a configuration."""
        raise NotImplementedError

    def choose_start(self, key: str) -> TunedFile:
        """Returns the file that the search starts from."""
        return self.file

    def list_today(self) -> Entries | None:
        """Returns what the op has today. None for its own file."""
        return None

    def begin(self) -> None:
        """Report what is known before the first candidate."""

    # --- the search ---------------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Look through every entry that serves a case, as far as time allows."""
        self._find_regimes()
        self.begin()
        late = False
        for regime in self.all:
            if regime.cases and not late:
                late = not self._search_regime(regime)
        self.send(OpDone(late=late))

    def _find_regimes(self) -> None:
        """Find the entries, and the cases that each serves."""
        first, params = next(iter(self.cases.items()))
        self.send(Doing("tune", self.op, first))
        self.call_quietly(params)
        key = self.seam.key
        if key is None:
            raise ContractError("tune_not_asked", op=self.op)
        path = self.folder / "tuned" / f"{key}.json"
        self.file = read_tuned(path)
        self.names = read_numbers(self.shared, key)
        found = list_regimes(self.space, self.choose_start(key).entries)
        self.all = tuple(replace(each, lists=dict(each.lists)) for each in found)
        served: dict[int | None, list[str]] = {}
        entries = self._list_entries(None, None)
        for case, params in self.cases.items():
            self.send(Doing("tune", self.op, case))
            with self.seam.watch(entries) as watch:
                self.call_quietly(params)
            served.setdefault(watch.find_taken([len(entry["config"]) for entry in entries]), []).append(case)
        self.all = tuple(replace(each, cases=tuple(served.get(at, ()))) for at, each in enumerate(self.all))
        unserved = tuple(served.get(None, ()))
        self.send(Regimes(str(path), key, self.file.digest, self.all, unserved))
        if len(unserved) == len(self.cases):
            raise ContractError("tune_unserved", op=self.op, case=unserved[0])

    def _search_regime(self, regime: Regime) -> bool:
        """Search one entry. Returns whether that came to its end in time."""
        grid = self.grid(regime)
        if not grid.coarse:
            raise UsageError("tune_space_empty", path=str(self.space.path), entry=regime.label)
        if not any(each.config is None for each in self.of(regime)):
            if self._is_late():
                return False
            self.time_batch(regime, [None], SEARCH)
        while batch := find_next(grid, self.of(regime)):
            if self._is_late():
                return False
            self.time_batch(regime, batch[: 1 if self.job.tune.alone else BATCH], SEARCH)
        # The finalists beside today's choice, until one of them, or none, is right everywhere.
        while True:
            done = {each.key for each in self.of(regime) if each.stage == FINAL}
            left = [config for config in choose_finalists(grid, self.of(regime)) if records.key(config) not in done]
            if left:
                if self._is_late():
                    return False
                self.time_batch(regime, left, FINAL)
                continue
            choice = decide(grid, regime, self.of(regime), needed=True)
            checked = {each.key for each in self.of(regime) if each.stage == SUITE}
            if not choice.changed or not self.runs or records.key(choice.config) in checked:
                return True
            if self._is_late():
                return False
            fault = self.find_fault(regime, choice.config)
            if fault and self.find_anchor(regime) is None and self.find_fault(regime, None):
                raise UsageError("tune_op_wrong", op=self.op, case=fault.facts.get("case"))
            self.keep(Attempt(regime.label, choice.config, SUITE, failure=fault))

    def _is_late(self) -> bool:
        return self.job.until_s is not None and time.time() >= self.job.until_s

    # --- entries and candidates ---------------------------------------------------------------------------------------

    def entries(self, regime: Regime, config: Config | None) -> Entries | None:
        """Returns the entries that put a candidate in force, always the same ones. Without one those of today."""
        if config is None:
            return self.list_today()
        name = f"{regime.label} {records.key(config)}"
        if name not in self._kept:
            self._kept[name] = self._list_entries(regime, config)
        return self._kept[name]

    def _list_entries(self, regime: Regime | None, config: Config | None) -> Entries:
        """All entries, one of them with this configuration. Those without one get the simplest that is valid."""
        found = []
        for each in self.all:
            if each is regime and config:
                own = config
            elif each.current is not None:
                own = each.current
            else:
                simplest = {name: values[0] for name, values in each.lists.items()}
                own = next(iter(self.grid(each).coarse), simplest)
            found.append({**each.when, "config": nest(own)})
        return tuple(found)

    def grid(self, regime: Regime) -> Choices:
        """Returns a regime's candidates."""
        if regime.label not in self._grids:
            names = {**self.names, **pick_fixed(regime.when)}
            near = regime.current if self.job.tune.spec else None
            valid = functools.partial(self.space.is_valid, names=names)
            self._grids[regime.label] = Choices(regime.lists, valid, self.job.seed, regime.current, near)
        return self._grids[regime.label]

    def of(self, regime: Regime) -> list[Attempt]:
        """Returns what is known of an entry's candidates."""
        return [each for each in self.known if each.regime == regime.label]

    def find_anchor(self, regime: Regime) -> Config | None:
        """Returns what candidates are compared with: today's choice, or if that fails the first that works.

        Raises StopIteration if nothing has worked yet.
        """
        known = self.of(regime)
        if not any(each.config is None and each.failure for each in known):
            return None
        bad = {each.key for each in known if each.failure}
        return next(each.config for each in known if each.config is not None and each.key not in bad)

    def keep(self, tried: Attempt) -> None:
        """Report what a candidate showed, and go on from it."""
        self.known.append(decode(encode(tried), Attempt))
        self.send(tried)

    def announce(self, regime: Regime, config: Config | None) -> None:
        """Report what is tried now."""
        self.send(Trying(regime.label, config))
        self.send(Doing("tune", self.op, f"{regime.label} {describe_config(config)}".strip()))
