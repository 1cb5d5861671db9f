"""Searching for an op's configurations: what may be tried, what comes next, what wins. Measures nothing itself.

space        an op's tuned/space.json: lists of values, entries, rules
search       coarse grid, steps around the best, the decision
tuned_file   the file that ops read
state        what is known so far, on disk
devices      kernels/_devices: each device's numbers with their sources
model        a time for devices that are not here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfci.core.lazy_imports import forwarding
from perfci.lab.tune.records import FINAL, SEARCH, SUITE, Config, Regime, Tried, flat, key, nested, shown

if TYPE_CHECKING:
    from perfci.lab.tune.devices import Description, described, describing
    from perfci.lab.tune.model import Launch, NoModelError, Work, estimate, floor_us
    from perfci.lab.tune.search import Choice, Grid, coming, decide, finalists
    from perfci.lab.tune.space import Space, fixed, read_space, regimes
    from perfci.lab.tune.state import State, opened
    from perfci.lab.tune.tuned_file import TunedFile, changed, diff, read_tuned
else:
    __getattr__ = forwarding(
        __name__,
        devices="Description described describing",
        model="Launch NoModelError Work estimate floor_us",
        search="Choice Grid coming decide finalists",
        space="Space fixed read_space regimes",
        state="State opened",
        tuned_file="TunedFile changed diff read_tuned",
    )

__all__ = [
    "FINAL",
    "SEARCH",
    "SUITE",
    "Choice",
    "Config",
    "Description",
    "Grid",
    "Launch",
    "NoModelError",
    "Regime",
    "Space",
    "State",
    "Tried",
    "TunedFile",
    "Work",
    "changed",
    "coming",
    "decide",
    "described",
    "describing",
    "diff",
    "estimate",
    "finalists",
    "fixed",
    "flat",
    "floor_us",
    "key",
    "nested",
    "opened",
    "read_space",
    "read_tuned",
    "regimes",
    "shown",
]
