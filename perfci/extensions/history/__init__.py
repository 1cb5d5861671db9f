"""Views over many runs: the commit that brought a loss, steps and drift, boards, tighter thresholds, a site.

bisect revisions bisection      the search for the commit that made a kernel slower
commits                         of a repository's history, by git
changepoints                    steps in the history of a case
past histories charts           the History section of a report
boards sick                     boards that stand out from others of their model
site site_op                    pages over all kept runs
archive database                copies in a store
tables results                  runs as flat tables, and what `perfci.load` gives
ratchet tightening              thresholds that tighten by what accepted runs have earned
origins relaxing                where thresholds come from, and entries that loosen them for a time
rebaseline                      baselines measured anew when what surrounds the kernels changed
groups retry creep              cases beside commits of their own: what a run left open, or all beside the last release
proposal propose                baselines and thresholds proposed from a pipeline
accepting lines                 what an accepted run leaves in a history, and losses that no one agreed on
series                          the cases of a history in their order
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
        "boards": (f"{HERE}.sick:find_sick",),
        "creep": (f"{HERE}.creep:compare_with_release",),
        "environment": (f"{HERE}.commands.environment:rebaseline",),
        "load": (f"{HERE}.results:read",),
        "retry": (f"{HERE}.retry:retry",),
        "propose": (f"{HERE}.commands.propose:propose_files",),
        "report": (
            f"{HERE}.commands.export:CsvFormat",
            f"{HERE}.commands.export:ParquetFormat",
            f"{HERE}.commands.site:SiteFormat",
        ),
        "sections": (f"{HERE}.histories:read_sections",),
    },
)
