"""Chains of ops: each stage by itself, the whole, and where an error or a NaN came in.

A chain is computed three times from the same inputs: by the kernels in the case's dtype, by PyTorch in that dtype, and
by PyTorch in float64, which is right. What the first is off by more than the second is the kernels' doing.

files     which chains a project has
records   what was found out about a case, stage by stage
state     what stages take and give, by name
runs      the three runs, and each stage by itself on exact inputs
verdicts  is the whole right, and if not, whose fault is it
"""
