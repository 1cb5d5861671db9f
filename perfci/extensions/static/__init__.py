"""What is known of kernels without a device: what they compile to, and which launches accuracy never makes.

compiling   ops compiled for targets, a worker for each, and the cache of what was compiled
compiled    the worker's part
judge       what grew, beside the base's binaries
tables      of the report
kind        what the gate asks for
covered     the worker's part
dry_launch  one launch looked through
tasks       of both workers, and what is reported of launches
flow        both experiments, a worker for each op
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.static"

EXTENSION = Extension(
    commands={
        "static": CommandLine(
            f"{HERE}.commands.static", "Every day", "Compile kernels without a device, and judge what changed."
        )
    },
    provides={
        "compile": (f"{HERE}.flow:add_compiled",),
        "compiled": (f"{HERE}.kind:Compiled",),
        "static": (f"{HERE}.flow:compile_and_judge",),
        "task": (f"{HERE}.tasks:Compile", f"{HERE}.tasks:Cover"),
    },
)
