"""One process an op: user code, torch and the device live there; a crash or a hang costs that op and nothing else.

protocol    what the two sides say to each other
parent      starts the process, watches its time, gathers what it says
child       the process: loads the op, verifies, measures
load        imports an op's files and holds them to the contract
"""
