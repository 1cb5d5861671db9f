"""One process an op: user code, torch and the device live there; a crash or a hang costs that op and nothing else.

protocol    what the two sides say to each other
parent      starts the process, watches its time, gathers what it says
pair        two such processes, one a revision, that take turns block by block
gather      what a process said so far, as the record of its op
log         what a process prints, its beginning and its end
child       the process: one job, and the task that it asks for
load        imports an op's files and holds them to the contract
apart       the base revision's files beside head's
work        the task of a check: verifies, then measures
static chains soak tuning sketch    the other tasks
"""
