"""`perfci doctor`: obstacles to a trustworthy run on this machine. A check works without it.

machine    facts of the machine, and the rules that judge them
task       what a worker is asked: the state of the device, and its timer
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.doctor"

EXTENSION = Extension(
    commands={
        "doctor": CommandLine(
            f"{HERE}.commands.doctor", "Start", "Examine this machine, or try perfci out on it (--selftest)."
        )
    },
    provides={"task": (f"{HERE}.task:Examine",)},
)
