"""Which language the commands speak: that of --lang, else PERFCI_LANG, else the project's settings, else English."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from perfci.core import commands, settings
from perfci.core.errors import UsageError
from perfci.core.settings import Settings
from perfci.core.wording import LANGUAGES, speak

VARIABLE = "PERFCI_LANG"


_CHOSEN: ContextVar[bool] = ContextVar("language_chosen", default=False)


def choose(language: str | None) -> None:
    """Speak what the user asked for. The project's settings no longer matter then."""
    if language:
        speak(language)
        _CHOSEN.set(True)


def choose_by_words(arguments: Sequence[str]) -> None:
    """Speak the language of --lang before the command is parsed, so that a mistake in it is reported in that language.

    Commands that are printed then ask for it too. A language that perfci does not have is refused with the command.
    """
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        asked = after if word == "--lang" else word.removeprefix("--lang=") if word.startswith("--lang=") else None
        if asked in LANGUAGES:
            choose(asked)
            commands.read_by(dataclasses.replace(commands.get_reader(), lang=asked))


def choose_by_environment(variables: Mapping[str, str] = os.environ) -> None:
    """Speak the language of PERFCI_LANG, if it is set. Raises UsageError for a language that perfci does not have."""
    asked = variables.get(VARIABLE)
    if asked and asked not in LANGUAGES:
        raise UsageError("language_unknown", where=VARIABLE, language=asked, known=", ".join(LANGUAGES))
    choose(asked)


def load(project: Path) -> Settings:
    """Returns the project's settings. From here on its language is spoken, unless the user asked for another.

    Printed commands are for the folder where this one was typed.
    """
    where = settings.load(project)
    named = None if project == Path() else str(project)
    commands.read_by(dataclasses.replace(commands.get_reader(), project=named, reports=where.reports))
    if not _CHOSEN.get():
        speak(where.language)
    return where
