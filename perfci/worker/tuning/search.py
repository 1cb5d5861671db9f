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
from perfci.lab.tune.records import FINAL, SEARCH, SUITE, Config, Regime, Tried, describe_config, nest
from perfci.lab.tune.search import Grid, choose_finalists, decide, find_next
from perfci.lab.tune.space import list_regimes, pick_fixed, read_space
from perfci.ops.spec import Params, Performance, case_id, matches
from perfci.worker.protocol import Job, Message, OpDone, Regimes, Step, Trying
from perfci.worker.tuning.seam import Entries, Seam

BATCH = 8
"""Candidates that share their blocks: an interruption loses what so many compiled to."""

Say = Callable[[Message], None]


class Search:
    """One op's search; what times a candidate stands in `measured` and `modelled`."""

    runs = True
    """whether candidates run, so that their answers can be checked"""

    def __init__(self, job: Job, say: Say, suite: Performance) -> None:
        files = job.ops[0]
        self.job, self.say, self.suite, self.op = job, say, suite, files.op
        self.folder, self.shared = Path(files.folder), Path(job.shared_folder)
        self.space = read_space(files.op, self.folder)
        self.seam = Seam(files.op, self.folder, self.shared)
        self.cases = {case_id(params): params for params in suite.cases if matches(case_id(params), job.pattern)}
        # As it is written to disk and read again, so that a search that goes on compares like with like.
        self.known = [decode(encode(each), Tried) for each in job.tune.known]
        self.all: tuple[Regime, ...] = ()
        self.file = TunedFile(Path())
        self.names: Mapping[str, Any] = {}
        self._kept: dict[str, Entries] = {}
        self._grids: dict[str, Grid] = {}

    def search(self) -> None:
        """Look through every entry that serves a case; says what it finds."""
        self._look_around()
        late = False
        for regime in self.all:
            if regime.cases and not late:
                late = not self._searched(regime)
        self.say(OpDone(late=late))

    # --- which entries there are ----------------------------------------------------------------------------------

    def _look_around(self) -> None:
        params = next(iter(self.cases.values()))
        self.say(Step("tune", self.op, case_id(params)))
        self._quietly(params)
        key = self.seam.key
        if key is None:
            raise ContractError("tune_not_asked", op=self.op)
        path = self.folder / "tuned" / f"{key}.json"
        self.file = read_tuned(path)
        self.names = read_numbers(self.shared, key)
        found = list_regimes(self.space, self._start(key).entries)
        self.all = tuple(replace(each, lists=dict(each.lists)) for each in found)
        served: dict[int | None, list[str]] = {}
        for case, params in self.cases.items():
            self.say(Step("tune", self.op, case))
            served.setdefault(self._serving(params), []).append(case)
        self.all = tuple(replace(each, cases=tuple(served.get(at, ()))) for at, each in enumerate(self.all))
        unserved = tuple(served.get(None, ()))
        self.say(Regimes(str(path), key, self.file.digest, self.all, unserved))
        if len(unserved) == len(self.cases):
            raise ContractError("tune_unserved", op=self.op, case=unserved[0])
        self._before()

    def _before(self) -> None:
        """What is told before the first candidate."""

    def _start(self, key: str) -> TunedFile:
        """The file that the search starts from."""
        return self.file

    def _serving(self, params: Params) -> int | None:
        entries = self.entries(None, None)
        with self.seam.watched(entries) as watch:
            self._quietly(params)
        return watch.taken([len(entry["config"]) for entry in entries])

    def _quietly(self, params: Params) -> None:
        """Call the op for what it reads on the way to its launch; a configuration that fails is no matter yet."""
        raise NotImplementedError

    def entries(self, regime: Regime | None, config: Config | None) -> Entries:
        """All entries, one of them with this configuration; those without one get the simplest that is valid."""
        return tuple(
            {**each.when, "config": nest(config if each is regime and config else self._usual(each))}
            for each in self.all
        )

    def given(self, regime: Regime, config: Config | None) -> Entries | None:
        """The entries that put a candidate in force, always the same ones; None for what the op takes today."""
        if config is None:
            return self.today()
        name = f"{regime.label} {records.key(config)}"
        if name not in self._kept:
            self._kept[name] = self.entries(regime, config)
        return self._kept[name]

    def today(self) -> Entries | None:
        """What the op has today."""
        return None

    def _usual(self, regime: Regime) -> Config:
        if regime.current is not None:
            return regime.current
        return next(iter(self.grid(regime).coarse), {name: values[0] for name, values in regime.lists.items()})

    def grid(self, regime: Regime) -> Grid:
        """A regime's candidates."""
        if regime.label not in self._grids:
            self._grids[regime.label] = self._made(regime)
        return self._grids[regime.label]

    def _made(self, regime: Regime) -> Grid:
        names = {**self.names, **pick_fixed(regime.when)}
        near = regime.current if self.job.tune.spec else None
        return Grid(
            regime.lists, functools.partial(self.space.is_valid, names=names), self.job.seed, regime.current, near
        )

    # --- one entry ------------------------------------------------------------------------------------------------

    def _searched(self, regime: Regime) -> bool:
        """Whether the search of one entry came to its end in time."""
        grid = self.grid(regime)
        if not grid.coarse:
            raise UsageError("tune_space_empty", path=str(self.space.path), entry=regime.label)
        if not any(each.config is None for each in self.of(regime)) and not self._batch(regime, [None], SEARCH):
            return False
        while batch := find_next(grid, self.of(regime)):
            size = 1 if self.job.tune.alone else BATCH
            if not self._batch(regime, batch[:size], SEARCH):
                return False
        return self._settled(regime, grid)

    def _settled(self, regime: Regime, grid: Grid) -> bool:
        """The finalists held against today's choice, until one of them, or none, is right everywhere."""
        while True:
            done = {each.key for each in self.of(regime) if each.stage == FINAL}
            left = [config for config in choose_finalists(grid, self.of(regime)) if records.key(config) not in done]
            if left and not self._batch(regime, left, FINAL):
                return False
            choice = decide(grid, regime, self.of(regime), needed=True)
            checked = {each.key for each in self.of(regime) if each.stage == SUITE}
            if left or not choice.changed or not self.runs or records.key(choice.config) in checked:
                if not left:
                    return True
                continue
            if self._late():
                return False
            fault = self.fault(regime, choice.config)
            if fault and self.anchor(regime) is None and self.fault(regime, None):
                raise UsageError("tune_op_wrong", op=self.op, case=fault.facts.get("case"))
            self.keep(Tried(regime.label, choice.config, SUITE, failure=fault))

    def _batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> bool:
        """Try some candidates; False where the time is up before."""
        if self._late():
            return False
        self.try_batch(regime, configs, stage)
        return True

    def try_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        """Time candidates, and keep what each showed."""
        raise NotImplementedError

    def fault(self, regime: Regime, config: Config | None) -> Reason | None:
        """What the accuracy suite has against a configuration."""
        raise NotImplementedError

    def of(self, regime: Regime) -> list[Tried]:
        """What is known of an entry's candidates."""
        return [each for each in self.known if each.regime == regime.label]

    def anchor(self, regime: Regime) -> Config | None:
        """What candidates are held against: today's choice, or where that does not work the first that does.

        Raises LookupError where nothing has worked yet.
        """
        known = self.of(regime)
        if not any(each.config is None and each.failure for each in known):
            return None
        bad = {each.key for each in known if each.failure}
        return next(each.config for each in known if each.config is not None and each.key not in bad)

    def keep(self, tried: Tried) -> None:
        """Say what a candidate showed, and go on from it."""
        self.known.append(decode(encode(tried), Tried))
        self.say(tried)

    def trying(self, regime: Regime, config: Config | None) -> None:
        """Say what comes now."""
        self.say(Trying(regime.label, config))
        self.say(Step("tune", self.op, f"{regime.label} {describe_config(config)}".strip()))

    def _late(self) -> bool:
        return self.job.until_s is not None and time.time() >= self.job.until_s
