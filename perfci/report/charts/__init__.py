"""Charts by matplotlib: each function takes plain data and returns a Figure, which is saved as a PNG or as SVG.

style      colours, panels, axes, PNG and SVG
cases      blocks, launches, changes and speedups of cases
device     the roofline
trends     what was accepted run by run, and errors of what is stored in low precision
"""
