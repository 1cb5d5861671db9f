"""Thresholds that tighten themselves: what the history of accepted runs has earned, and only that. Pure.

tau comes from A/A duels (`noise`), every other threshold from a bound for the next accepted run (`prediction`,
`figures`). docs/how-thresholds-tighten.md has how often that errs, and benchmarks/ratchet.py makes its tables.
"""
