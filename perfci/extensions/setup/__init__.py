"""A repository is set up for perfci: `perfci init`.

plan      folders, settings, files for git, owners
gitlab    the jobs of a merge request
github    the jobs of a pull request
texts     files that are there, and what is added to them
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.setup"

EXTENSION = Extension(
    commands={
        "init": CommandLine(
            f"{HERE}.commands", "Start", "Set a repository up: folders, thresholds, settings, CI jobs."
        ),
    },
)
