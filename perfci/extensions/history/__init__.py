"""Views over many runs: the commit that brought a loss, steps and drift, boards, tighter thresholds, a site.

bisect revisions commits        the search for the commit that made a kernel slower
series                          the cases of a history in their order
changepoints                    steps in the history of a case
past histories charts           the History section of a report
boards                          boards that stand out from others of their model
site                            pages over all kept runs
database                        copies in a store
tables                          runs as flat tables, and what `perfci.load` gives
origins                         where thresholds come from, and entries that loosen them for a time
ratchet tightening              thresholds that tighten by what accepted runs have earned
accepting                       what an accepted run leaves in a history, and losses that no one agreed on
rebaseline                      baselines measured anew when what surrounds the kernels changed
groups retry creep              cases beside commits of their own: what a run left open, or all beside the last release
proposal propose                baselines and thresholds proposed from a pipeline
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.history"

EXTENSION = Extension(
    commands={
        "bisect": CommandLine(
            f"{HERE}.commands.bisect",
            "Every day",
            "Find the commit that made an op slower, or wrong.",
            "device timer project",
        ),
        "history": CommandLine(
            f"{HERE}.commands.history", "History", "Show accepted runs over time, drift and boards."
        ),
        "thresholds": CommandLine(
            f"{HERE}.commands.thresholds", "History", "Show, tighten or relax what every case is judged by."
        ),
    },
    provides={
        "accepting": (f"{HERE}.accepting:accept_all",),
        "boards": (f"{HERE}.boards:find_sick",),
        "creep": (f"{HERE}.creep:compare_with_release",),
        "environment": (f"{HERE}.commands.environment:rebaseline",),
        "load": (f"{HERE}.tables:read",),
        "retry": (f"{HERE}.retry:retry",),
        "propose": (f"{HERE}.commands.propose:propose_files",),
        "report": (
            f"{HERE}.commands.formats:CsvFormat",
            f"{HERE}.commands.formats:ParquetFormat",
            f"{HERE}.commands.formats:SiteFormat",
        ),
        "sections": (f"{HERE}.histories:read_sections",),
    },
)
