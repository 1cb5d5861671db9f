"""Work with kernels beside judging a change: faster configurations, long runs, ops in a row.

tune        the search for an op's configurations
soak        leaks, decay, answers that change, streams, threads and huge arrays
chains      ops as a model calls them, stage by stage and as a whole
commands    these, the same check by another Triton or torch, and perfci tried out on this machine
stages      what a line of progress shows while they run
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.lab"

EXTENSION = Extension(
    commands={
        "chain": CommandLine(
            f"{HERE}.commands.chain",
            "Every day",
            "Check ops in a row, as a model calls them, stage by stage.",
            "device project",
        ),
        "soak": CommandLine(
            f"{HERE}.commands.soak",
            "Every day",
            "Call ops a thousand times, on streams and threads, on huge arrays.",
            "device timer project",
        ),
        "tune": CommandLine(
            f"{HERE}.commands.tune", "Optimise", "Search the configurations of an op for faster ones.", "device project"
        ),
    },
    provides={
        "watch": (f"{HERE}.commands.watch:check_often",),
        "toolchain": (f"{HERE}.commands.toolchain:check_in_toolchain",),
        "selftest": (f"{HERE}.commands.selftest:try_out",),
        "stages": (f"{HERE}.stages:describe_stages",),
        "suite": (f"{HERE}.chains.records:Chain", f"{HERE}.chains.records:Stage"),
        "task": (f"{HERE}.tune.task:Tune", f"{HERE}.chains.task:CheckChain", f"{HERE}.soak.task:SoakOp"),
    },
)
