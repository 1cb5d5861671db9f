"""Chains of ops: the whole, and at which stage an error or a NaN came in.

A chain is computed three times from the same inputs: by the kernels in the case's dtype, by PyTorch in that dtype, and
by PyTorch in float64, which is right. If the first is off by more than the second, the kernels did it.
"""
