"""Names of what an op's process is doing, by stage. Extensions add theirs."""

from perfci.core.model import as_fact

OF_BASE = " of the base"  # how the stage of a worker ends that runs the base revision

STAGES = {
    "import": as_fact("importing"),
    "accuracy": as_fact("accuracy"),
    "suites": as_fact("suites"),
    "prepare": as_fact("preparing"),
    "smoke": as_fact("one launch of the performance suite"),
    "peers": as_fact("calling peers"),
    "measure": as_fact("measuring"),
    "counters": as_fact("reading counters"),
    "static": as_fact("compiling"),
    "coverage": as_fact("looking through launches"),
}

PLACE = as_fact("{stage} of {case}")
"""A stage at one of its cases"""
