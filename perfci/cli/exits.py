"""Exit codes: what a shell, a CI job or a script learns from perfci."""

from enum import IntEnum

from perfci.core.model import Gate


class Exit(IntEnum):
    """Exit codes. perfci's failure is Python's crash code, so that a broken tool never reads as a failed gate."""

    OK = 0
    PERFCI_FAILED = 1
    GATE_FAILED = 2
    WARNINGS = 3
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


def exit_code(gate: Gate, *, strict: bool) -> Exit:
    """Returns the exit code of a gate. In strict mode warnings fail."""
    if gate is Gate.FAILS or (gate is Gate.WARNS and strict):
        return Exit.GATE_FAILED
    return Exit.WARNINGS if gate is Gate.WARNS else Exit.OK
