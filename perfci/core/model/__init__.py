"""The nouns of perfci: frozen records that flow from measuring to reports.

Times are microseconds (`_us`), shifts are natural logarithms of a ratio (0.01 is about +1 %), sizes are bytes.
A missing number is None, never 0 or infinity. Every record is stored as JSON by `perfci.store`.

    basics      reasons, verdicts, intervals, errors, bounds of numbers
    place       device, environment, ceilings
    compiled    what a call does, and what its kernels compile to
    stored      tensors in low precision
    measured    cases as verified and measured
    run         what there is to measure, the plan, its shards, the run
    baseline    what is stored
    decision    comparisons, judgements
"""

from perfci.core.model.baseline import *
from perfci.core.model.basics import *
from perfci.core.model.compiled import *
from perfci.core.model.decision import *
from perfci.core.model.measured import *
from perfci.core.model.place import *
from perfci.core.model.run import *
from perfci.core.model.stored import *
