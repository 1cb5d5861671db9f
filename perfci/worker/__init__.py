"""One process an op: user code, torch and the device live there. A crash or a hang costs that op and nothing else."""
