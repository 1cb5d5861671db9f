"""The command line: the one place that prints and exits.

main        entry point: runs a command, turns what it raised into one sentence and an exit code
app         the commands in their order. Each is imported when it is called
options     options that several commands share, and which of them go together
output      printing: paragraphs, grids, verdicts, JSON
progress    what is shown while a run is under way
workflow    nothing that is printed commands the runner of a job
"""

from perfci.cli.main import main, run_file

__all__ = ["main", "run_file"]
