"""What the terminal or a log shows of parts."""

import io

from rich.console import Console

from perfci.cli.output import print_parts


def text_of(parts, *, terminal=False, width=160):
    out = io.StringIO()
    print_parts(parts, Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False))
    return out.getvalue()


def lines_of(parts, **options):
    return [line.rstrip() for line in text_of(parts, **options).splitlines()]
