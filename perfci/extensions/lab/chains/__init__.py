"""Chains of ops: kernels are at fault if they are further from float64 than PyTorch in the case's dtype is."""
