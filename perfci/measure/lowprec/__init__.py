"""Storage in low precision: declared by an op, recorded in a run, compared with limits. See docs/low-precision.md.

declared    calls the op's declaration and checks it
storage     number formats, and the figures of one stored tensor
advice      limits, the likely cause of a figure beyond its limit, and a better way of storing the tensor
"""
