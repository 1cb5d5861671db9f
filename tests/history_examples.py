"""Accepted runs as in histories, for tests."""

from perfci.core.model import Device, Environment
from perfci.extensions.common.accepted_runs import Epoch, HistoryCase, HistoryRun, Spread

CASE, OTHER = "rows=1", "rows=2"


def environment(*, key="nvidia-h200", uuid="GPU-1", driver="580.1", torch="2.11.0", commit="a" * 40, timer="activity"):
    """The environment of a run."""
    device = Device("cuda", "NVIDIA H200", key, uuid, driver)
    return Environment(device, timer, "3.12.1", {"torch": torch}, "host", "Linux", commit=commit)


def figures(case=CASE, kernel_us=10.0, reference_us=15.0, **fields):
    """A case in an accepted run."""
    spreads = [Spread(us, 0.99 * us, 1.01 * us) for us in (kernel_us, reference_us)]
    return HistoryCase(case, 8, *spreads, **{"shift": -0.4} | fields)


def accepted(number, *cases, why=None, created=None, renamed=None, renamed_from=None, **surroundings):
    """The run of a number, a day apart from the next; with a reason it begins an epoch for all its cases."""
    cases = cases or (figures(),)
    return HistoryRun(
        f"run{number}",
        created or f"2026-01-{1 + number:02}T00:00:00Z",
        environment(**surroundings),
        cases,
        epoch=Epoch(why, tuple(case.case for case in cases)) if why else None,
        renamed=renamed or {},
        renamed_from=renamed_from,
    )
