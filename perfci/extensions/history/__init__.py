"""What many runs show together: the commit that brought a loss, steps and drift, boards, tighter thresholds, a site.

bisect revisions bisection      the search for the commit that made a kernel slower
"""

from perfci.core.extensions import CommandLine, Extension

COMMANDS = "perfci.extensions.history.commands"

EXTENSION = Extension(
    commands={
        "bisect": CommandLine(f"{COMMANDS}.bisect", "Every day", "Find the commit that made an op slower, or wrong."),
    },
)
