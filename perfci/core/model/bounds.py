"""What a stored number may be at all: far beyond what any device gives, and short of what no arithmetic survives.

A file whose numbers lie outside is refused when it is read, with the place. The published schemas say so too. Within,
logarithms, ratios and sums of what was read stay finite.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Time = Annotated[float, Meta(ge=1e-6, le=1e15)]
"""Microseconds that something took: from a picosecond to thirty years, never nothing."""

Shift = Annotated[float, Meta(ge=-50.0, le=50.0)]
"""Natural logarithm of a ratio of two such times."""

Change = Annotated[float, Meta(ge=-1.0, le=1e18)]
"""A ratio of two such times - 1."""

Amount = Annotated[float, Meta(ge=0.0, le=1e18)]
"""Seconds, watts, gigabytes a second, a share: what cannot be negative."""

Moment = Annotated[float, Meta(ge=-1e18, le=1e18)]
"""Seconds since some other moment."""

Count = Annotated[int, Meta(ge=0, le=2**62)]
"""How many, or how many bytes."""

Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that may be negative: a seed, a temperature."""
