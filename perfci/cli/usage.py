"""Usage errors of typer in the reader's language. It knows English alone: a message is known by its form."""

import functools
import re
import sys

from perfci.core.model import as_fact
from perfci.core.wording import fill, translate

_MESSAGES = (
    as_fact("Usage: {words}"),
    as_fact("Try '{command}' for help."),
    as_fact("Error: {why}"),
    as_fact("Invalid value for {name}: {why}"),
    as_fact("{value} is not one of {known}."),
    as_fact("Input should be a valid number, unable to parse string as a number"),
    as_fact("Input should be a valid integer, unable to parse string as an integer"),
    as_fact("Input should be greater than or equal to {least}"),
    as_fact("Input should be less than or equal to {most}"),
    as_fact("{value} is not a valid {kind}."),
    as_fact("{value} is not in the range {range}."),
    as_fact("Missing option {name}."),
    as_fact("Missing argument {name}."),
    as_fact("Option {name} requires an argument."),
    as_fact("Option {name} does not take a value."),
    as_fact("Got unexpected extra argument(s) ({words})"),
    as_fact("Got unexpected extra argument ({words})"),
    as_fact("Got unexpected extra arguments ({words})"),
)
"""typer's message about a wrong command, in its versions. Anything else stays in English."""


def print_usage(told: str) -> None:
    """Print typer's error about a wrong command."""
    print("\n".join(map(write_line, told.splitlines())), file=sys.stderr)


def write_line(line: str) -> str:
    """Returns a line of typer in the reader's language, as it is if its form is unknown.

    >>> write_line("Error: Missing option '--against'.")
    "Error: Missing option '--against'."
    """
    for english in _MESSAGES:
        if match := _compile(english).fullmatch(line):
            facts = match.groupdict()
            return fill(
                translate(english), facts | {name: write_line(text) for name, text in facts.items() if name == "why"}
            )
    return line


@functools.cache
def _compile(english: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.*)", re.escape(english)))
