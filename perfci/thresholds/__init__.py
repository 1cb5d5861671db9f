"""Performance thresholds: `default.yaml` and one `<op>.yaml` an op, with strict keys, case patterns and units.

    margin: 2 %              # allowed slow-down against the baseline
    speedup: 1.2             # target: reference time / kernel time
    cases:
      dtype=float32:         # any --case pattern. Of several that match, the last wins
        margin: 4 %
    expected:                # slow-downs that were agreed on
      - {case: "rows=4096", up_to: 6 %, why: "float32 accumulation, see !42", until: 2027-01-31}
    relaxed:                 # thresholds that are looser for a time
      - {key: tau, case: "rows=7,*", to: 3 %, why: "noisy since the new driver, see !43", until: 2027-01-31}

`alpha` stands in `default.yaml` only, `cases`, `expected` and `relaxed` in an op's file only. `layers` has their order.
"""
