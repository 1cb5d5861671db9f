"""The nouns of perfci: frozen records that flow from measuring to reports.

Times are microseconds (`_us`), shifts are natural logarithms of a ratio (0.01 is about +1 %), sizes are bytes.
A missing number is None, never 0 or infinity. Every record is stored as JSON by `perfci.store`.

    verdict     verdicts, reasons
    place       device, environment, ceilings
    closeness   errors against the float64 reference
    measured    cases as verified and measured
    lowprec     tensors that ops store in low precision
    planned     what there is to measure of each op
    run         plan and run
    shards      a plan whose ops are shared out over several runners
    baseline    what is stored
    history     what is kept of accepted runs
    estimates   intervals, and where a duel stands
    decision    comparisons, judgements
    expected    slow-downs that were agreed on
    identity    what a call does, and what compilers make of it
"""

from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun, Step, StepCase, StepSide
from perfci.core.model.closeness import ErrorStats
from perfci.core.model.decision import Comparison, Judgement, Judgements, Need, PeerFigure, Screen
from perfci.core.model.estimates import Interval, Look
from perfci.core.model.expected import Expected, Suggestion
from perfci.core.model.history import (
    BoardCounts,
    Epoch,
    HistoryAccuracy,
    HistoryCase,
    HistoryRun,
    HistoryStored,
    Spread,
)
from perfci.core.model.identity import Identity, KernelBinary, LaunchIdentity, Static, StaticCase, StaticOp
from perfci.core.model.lowprec import AcceptedStorage, Channels, ErrorHistogram, Extent, StoredTensor
from perfci.core.model.measured import (
    PEER,
    AccuracyCase,
    ArmBlock,
    BaseArm,
    Block,
    Cache,
    CompiledKernel,
    OpRun,
    PeerArm,
    PerformanceCase,
    Summary,
    is_peer,
    peer_arm,
)
from perfci.core.model.place import UNTIMED, Bearing, Device, DeviceState, Difference, Environment, Limits, board_key
from perfci.core.model.planned import DuelWhat, PlannedBase, PlannedOp
from perfci.core.model.run import FORMAT, Again, AgainCase, Base, Deadline, Joined, Plan, Run, Shard, UsedBoard
from perfci.core.model.shards import ShardedOp, ShardPlan
from perfci.core.model.verdict import Fact, Gate, Reason, Suite, Verdict
