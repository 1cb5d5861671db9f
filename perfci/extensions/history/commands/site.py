"""`perfci report --to site`: the kept history as pages."""

from contextlib import nullcontext
from pathlib import Path

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_lines, relative
from perfci.cli.results import ReportAsked
from perfci.core.wording import say, sentence
from perfci.extensions.history import site
from perfci.extensions.history.commands.history import load_stores
from perfci.report.text import plain


class SiteFormat:
    """The site as a format of `perfci report`."""

    name = "site"

    @staticmethod
    def build(asked: ReportAsked) -> int:
        """Build the site. Exit code 3 if a history is damaged or there is none."""
        where, folder = language.load(asked.project or options.HERE), asked.out or Path("public")
        with load_stores()(asked.store) if asked.store else nullcontext() as store:
            built = site.build(where.baselines, where.root, folder, store)
        print_lines(*(plain(sentence(note)) for note in built.notes))
        path, pages = relative(built.index.resolve()), say("{count:page|pages}", count=len(built.pages))
        print_lines(say("Site: {path} and {pages}.", path=path, pages=pages))
        if built.gone:
            print_lines(say("Taken away, since what it showed is gone: {names}", names=", ".join(built.gone)))
        return Exit.WARNINGS if built.notes else Exit.OK
