"""`perfci report --to site`, `csv` and `parquet`: the kept history as pages, and what was measured as a flat table."""

import sys
from contextlib import nullcontext
from pathlib import Path

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_lines, relative
from perfci.cli.results import ReportAsked
from perfci.core.model import Judgements
from perfci.core.wording import say, sentence
from perfci.extensions.history import site, tables
from perfci.extensions.history.commands.history import load_stores
from perfci.report.text import plain
from perfci.runs.decide import narrow
from perfci.store.files import write_atomically


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


class CsvFormat:
    """Comma-separated values."""

    name = "csv"
    encode = staticmethod(tables.to_csv)

    @classmethod
    def build(cls, asked: ReportAsked) -> int:
        """Write one table of all runs, by default to standard output. Each run is judged by the project around it."""
        paths = asked.runs or [language.load(asked.project or options.HERE).reports]
        read = [tables.read(path, asked.project) for path in paths]
        none = Judgements(())
        kept = [narrow(one.run, one.judgements if asked.verdicts else none, asked.ops, asked.case) for one in read]
        text = cls.encode(tables.tabulate([(run, judged if asked.verdicts else None) for run, judged in kept]))
        if asked.out:
            write_atomically(asked.out, text)
        else:
            sys.stdout.buffer.write(text)
        return Exit.OK


class ParquetFormat(CsvFormat):
    """Parquet, which needs pyarrow."""

    name = "parquet"
    encode = staticmethod(tables.to_parquet)
