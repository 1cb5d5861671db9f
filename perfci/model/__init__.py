"""The nouns of perfci: frozen records that flow from measuring to reports.

Times are microseconds (`_us`), shifts are natural logarithms of a ratio (0.01 is about +1 %), sizes are bytes.
A missing number is None, never 0 or infinity. Every record is stored as JSON by `perfci.store`.

    verdict     verdicts, reasons
    place       device, environment, ceilings
    measured    cases as verified and measured
    run         plan and run
    baseline    what is stored
    decision    comparisons, judgements
"""

from perfci.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.model.decision import Comparison, Interval, Judgement, Judgements, Need, Screen
from perfci.model.measured import (
    AccuracyCase,
    ArmBlock,
    Block,
    CompiledKernel,
    ErrorStats,
    OpRun,
    PerformanceCase,
    Summary,
)
from perfci.model.place import Device, DeviceState, Environment, Limits
from perfci.model.run import FORMAT, Plan, PlannedOp, Run
from perfci.model.verdict import Fact, Gate, Reason, Suite, Verdict

__all__ = [
    "FORMAT",
    "AccuracyCase",
    "ArmBlock",
    "Baseline",
    "BaselineBlock",
    "BaselineCase",
    "BaselineRun",
    "Block",
    "Comparison",
    "CompiledKernel",
    "Device",
    "DeviceState",
    "Environment",
    "ErrorStats",
    "Fact",
    "Gate",
    "Interval",
    "Judgement",
    "Judgements",
    "Limits",
    "Need",
    "OpRun",
    "PerformanceCase",
    "Plan",
    "PlannedOp",
    "Reason",
    "Run",
    "Screen",
    "Suite",
    "Summary",
    "Verdict",
]
