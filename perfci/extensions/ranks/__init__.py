"""Ops over several boards: `perfci ranks`. A process a rank, all in one group of torch.distributed.

spec records            what an op says of its traffic, and what travels between the processes
flow verdicts           the whole: boards, processes, looks, and what their numbers mean
task group              the worker that leads a group, and the rank processes that it starts, watches and ends
rank checks work timing a rank's process: its group, its checks, what its device is given, its blocks
arms                    what an op's files give a rank, real or virtual
virtual                 the same on the fake device, by virtual clocks
boards                  a group of boards, taken whole or not at all
declared gate           which ops say of ranks, and their groups as part of a check
stand_in                one rank without the others, for what is compiled without a device
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
        "groups": (f"{HERE}.gate:Groups",),
        "weigh": (f"{HERE}.gate:add_rows",),
        "stages": (f"{HERE}.stages:describe_stages",),
        "task": (f"{HERE}.task:LeadRanks",),
        "ways": (f"{HERE}.stand_in:list_ways",),
    },
)
