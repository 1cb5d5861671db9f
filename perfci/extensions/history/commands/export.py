"""`perfci report --to csv` and `--to parquet`: what was measured as a flat table."""

import sys

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.results import ReportAsked
from perfci.core.model import Judgements
from perfci.extensions.history import results, tables
from perfci.runs.decide import narrow
from perfci.store.files import write_atomically


class CsvFormat:
    """Comma-separated values."""

    name = "csv"
    encode = staticmethod(tables.to_csv)

    @classmethod
    def build(cls, asked: ReportAsked) -> int:
        """Write one table of all runs, by default to standard output. Each run is judged by the project around it."""
        paths = asked.runs or [language.load(asked.project or options.HERE).reports]
        read = [results.read(path, asked.project) for path in paths]
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
