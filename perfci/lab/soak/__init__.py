"""What a single right call does not show: leaks, decay, answers that change, streams, threads, and huge shapes.

findings   what came of a test, and its rules' limits
rules      leaks and decay, judged from series of readings
subject    one case of an op, its calls and their comparison
repeated   many calls one behind the other: memory, speed, the same answer
together   several at once: streams, threads
huge       arrays of more than 2^31 elements, verified in slices
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfci.core.lazy_imports import forwarding
from perfci.lab.soak.findings import (
    DECAY,
    DECAY_LIMIT,
    DETERMINISM,
    LARGE,
    MEMORY,
    STREAMS,
    TESTS,
    THREADS,
    Finding,
    Status,
    named,
)

if TYPE_CHECKING:
    from perfci.lab.soak.huge import BEYOND, is_large, large
    from perfci.lab.soak.repeated import decay, determinism, memory
    from perfci.lab.soak.subject import Subject
    from perfci.lab.soak.together import streams, threads
else:
    __getattr__ = forwarding(
        __name__,
        huge="BEYOND is_large large",
        repeated="decay determinism memory",
        subject="Subject",
        together="streams threads",
    )

__all__ = [
    "BEYOND",
    "DECAY",
    "DECAY_LIMIT",
    "DETERMINISM",
    "LARGE",
    "MEMORY",
    "STREAMS",
    "TESTS",
    "THREADS",
    "Finding",
    "Status",
    "Subject",
    "decay",
    "determinism",
    "is_large",
    "large",
    "memory",
    "named",
    "streams",
    "threads",
]
