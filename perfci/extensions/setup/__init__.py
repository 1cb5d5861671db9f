"""A repository is set up for perfci: `perfci init`.

plan      folders, settings, files for git, owners
hosts     the jobs of a merge request of GitLab, and of a pull request of GitHub
texts     files that are there, and what is added to them
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.setup"

EXTENSION = Extension(
    commands={
        "init": CommandLine(f"{HERE}.commands", "Start", "Set a repository up: folders, thresholds, settings, CI jobs.")
    }
)
