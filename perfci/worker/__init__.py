"""One process an op: user code, torch and the device live there. A crash or a hang costs that op and nothing else.

protocol    jobs and messages
parent      starts the process, watches its time, keeps its output
pair        two such processes, one a revision, that take turns block by block
gather      a process's messages so far, as the record of its op
child       the process: one job, and the task that it asks for
load        imports an op's files and checks the contract
apart       the base revision's files beside head's
work        the task of a check: verifies, then measures
static chains soak tuning sketch    the other tasks
"""
