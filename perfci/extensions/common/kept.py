"""Answers of commands beside `check` where a pipeline finds them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfci import git
from perfci.core import codec
from perfci.core.model import Gate, Reason
from perfci.core.settings import Settings
from perfci.core.wording import sentence
from perfci.report.data import FORMAT, write_plain
from perfci.report.text import plain
from perfci.store.files import write_atomically


def keep_answer(
    where: Settings, name: str, gate: Gate | None, looked: Iterable[str], said: Iterable[str | Reason], answer: Any
) -> tuple[str, Path]:
    """Keeps an answer in `reports/NAME/NAME.json`, where a pipeline finds it.

    gate: None if nothing could be checked. looked: ops or chains that it is about. said: sentences about what
    failed, or what is fine. Returns its JSON and its path.
    """
    here = git.read(where.root)
    of: dict[str, Any] = {"commit": here.commit, "dirty": here.dirty} if isinstance(here, git.Revision) else {}
    of |= {"format": FORMAT, "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "looked": sorted({*looked})}
    of |= {"gate": gate, "said": [plain(line if isinstance(line, str) else sentence(line)) for line in said]}
    text, path = codec.encode(write_plain({**of, **answer})).decode(), where.reports / name / f"{name}.json"
    return text, write_atomically(path, text.encode() + b"\n")
