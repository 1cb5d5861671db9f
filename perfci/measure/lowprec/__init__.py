"""Storage in low precision under watch: what is recorded of a stored tensor, and what a bad figure comes from.

declared    what an op says that it stores, held to what it must be
formats     the low-precision formats: their range and their steps
storage     the figures of one stored tensor
histogram   errors in fixed bins, and how far two histograms are apart
accepted    a tensor beside what accepted runs had
causes      the likely cause of a figure beyond its limit
advice      which other way of storing the same tensor would keep the limits

docs/low-precision.md says what each figure means.
"""
