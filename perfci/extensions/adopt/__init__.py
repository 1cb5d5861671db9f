"""`perfci new` writes an op, to fill in or around a function.

files place sketch     the functions' files, the op's folder, the files to write
task                   what a worker is asked to find out
rehearsal              how it does that: the functions are called without a device, by tests or by trial
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.adopt"

EXTENSION = Extension(
    commands={
        "new": CommandLine(
            f"{HERE}.commands", "Start", "Write the four files of a new op, empty or around your kernel."
        ),
    },
    provides={"task": (f"{HERE}.task:Rehearse",), "stages": (f"{HERE}.task:describe_stages",)},
)
