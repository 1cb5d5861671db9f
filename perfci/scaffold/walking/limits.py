"""How far a test is followed."""

from __future__ import annotations

MOST_STEPS = 20_000
MOST_CALLS = 400


class StopError(Exception):
    """Enough."""
