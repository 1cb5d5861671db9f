"""Performance thresholds: `default.yaml` and one `<op>.yaml` an op, with strict keys, case patterns and units.

    margin: 2 %              # allowed slow-down against the baseline
    speedup: 1.2             # target: reference time / kernel time
    cases:
      dtype=float32:         # any --case pattern; of several that match, the last wins
        margin: 4 %
    expected:                # slow-downs that were agreed on
      - {case: "rows=4096", up_to: 6 %, why: "float32 accumulation, see !42", until: 2027-01-31}

Values fall through: built in, then `default.yaml`, then `<op>.yaml`, then its cases. `alpha` belongs to the run as a
whole and stands in `default.yaml` only, `cases` and `expected` in an op's file only.

limits      what a case is judged by
place       YAML in which every value knows its line
read        keys and values
expected    entries of slow-downs that were agreed on, and the lines that make one
"""

from perfci.thresholds.expected import suggestion
from perfci.thresholds.limits import CaseThresholds, Listed, OpThresholds, Thresholds
from perfci.thresholds.read import DEFAULT, TIMERS, load

__all__ = ["DEFAULT", "TIMERS", "CaseThresholds", "Listed", "OpThresholds", "Thresholds", "load", "suggestion"]
