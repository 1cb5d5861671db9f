"""The command line: the one place that prints and exits.

main        entry point: runs a command, turns what it raised into one sentence and an exit code
app         the commands in their order
commands    their options, by job
options     options that several of them share
answers     what the commands do, in terms of the pipeline
progress    what is shown while a run is under way
tables      what is shown of its result
exports     its numbers as CSV or Parquet
demo        a project with planted mistakes
workflow    nothing that is printed commands the runner of a job
"""

from perfci.cli.main import main, run_file

__all__ = ["main", "run_file"]
