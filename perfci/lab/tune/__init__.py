"""Searching for an op's configurations: what may be tried, what comes next, what wins. Measures nothing itself.

space        an op's tuned/space.json: lists of values, entries, rules
search       coarse grid, steps around the best, the decision
tuned_file   the file that ops read
state        what is known so far, on disk
devices      kernels/_devices: each device's numbers with their sources
model        a time for devices that are not here
"""
