"""What is kept of accepted runs, as numbers: pure, without a device and without torch.

lines    one accepted run of an op as the line that is kept
series   each case, and each stored tensor, over the runs, with changes, epochs and steps of the environment
"""
