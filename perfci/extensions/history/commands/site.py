"""`perfci report --to site`: the kept history as pages."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_lines, relative
from perfci.cli.results import ReportAsked
from perfci.core.errors import GitError
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.history import site
from perfci.extensions.history.alerts import list_alerts
from perfci.extensions.history.commands.history import load_stores
from perfci.extensions.history.commits import find_last_release, list_ancestors
from perfci.extensions.history.fitness import read_fitness
from perfci.extensions.history.heat import Release
from perfci.report.text import plain


class SiteFormat:
    """The site as a format of `perfci report`."""

    name = "site"

    @staticmethod
    def build(asked: ReportAsked) -> int:
        """Build the site. What it is compared with is the release, None for the newest tag before HEAD."""
        where = language.load(asked.project or options.HERE)
        return build_site(where, asked.runs, asked.out, asked.store, asked.against)


def build_site(where: Settings, runs: Sequence[Path], out: Path | None, url: str | None, release: str | None) -> int:
    """Build the site. Exit code 3 if a history is damaged or there is none."""
    folder = out or Path("public")
    since = None
    try:
        last_release = find_last_release(where.root, where.release_tags, release)
        since = Release(last_release.name, list_ancestors(where.root, last_release.commit))
    except GitError:
        if release:  # without one the heat map is about all kept runs
            raise
    folders = [run if run.is_dir() else run.parent for run in runs] or [where.reports]
    fitness, judged = read_fitness(where, folders)
    with load_stores()(url) if url else contextlib.nullcontext() as kept:
        seen = list_alerts(judged, kept.read_verdicts() if kept else ())
        built = site.build(where.baselines, where.root, folder, kept=kept, release=since, alerts=seen, fitness=fitness)
    print_lines(*(plain(sentence(note)) for note in built.notes))
    path, pages = relative(built.index.resolve()), say("{count:page|pages}", count=len(built.pages))
    print_lines(say("Site: {path} and {pages}.", path=path, pages=pages))
    if built.gone:
        print_lines(say("Taken away, since what it showed is gone: {names}", names=", ".join(built.gone)))
    return Exit.WARNINGS if built.notes else Exit.OK
