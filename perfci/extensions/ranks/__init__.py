"""Ops over several boards: `perfci ranks`. A process a rank, all in one group of torch.distributed.

spec records            what an op says of its traffic, and what travels between the processes
flow verdicts           the whole: boards, processes, looks, and what their numbers mean
task group              the worker that leads a group, and the rank processes that it starts, watches and ends
rank checks timing      a rank's process: its group, its checks, its blocks
virtual                 the same on the fake device, by virtual clocks
boards                  a group of boards, taken whole or not at all
declared section        which ops say of ranks, and what the report of a check says of them
volume                  bytes that cross links, rooflines, and how much communication is hidden
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.ranks"

EXTENSION = Extension(
    commands={
        "ranks": CommandLine(
            f"{HERE}.commands.ranks",
            "Every day",
            "Check ops over several boards, rank by rank and as a whole.",
            "device project",
        ),
    },
    provides={
        "suite": (f"{HERE}.spec:Traffic",),
        "sections": (f"{HERE}.section:read_sections",),
        "stages": (f"{HERE}.stages:describe_stages",),
        "task": (f"{HERE}.task:LeadRanks",),
    },
)
