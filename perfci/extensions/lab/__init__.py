"""Work with kernels beside judging a change: faster configurations, long runs.

tune        the search for an op's configurations
soak        leaks, decay, answers that change, streams, threads and huge arrays
toolchain   the same check by another Triton or torch
selftest    perfci tried out on this machine
stages      what a line of progress says while they run
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.lab"

EXTENSION = Extension(
    commands={
        "soak": CommandLine(
            f"{HERE}.commands.soak",
            "Every day",
            "Call ops a thousand times, on streams and threads, on huge arrays.",
            "device timer project",
        ),
        "tune": CommandLine(
            f"{HERE}.commands.tune",
            "Optimise",
            "Search the configurations of an op for faster ones.",
            "device project",
        ),
    },
    provides={
        "watch": (f"{HERE}.commands.watch:check_often",),
        "toolchain": (f"{HERE}.commands.toolchain:check_in_toolchain",),
        "selftest": (f"{HERE}.commands.selftest:try_out",),
        "stages": (f"{HERE}.stages:describe_stages",),
        "task": (f"{HERE}.tune.task:Tune", f"{HERE}.soak.task:SoakOp"),
    },
)
