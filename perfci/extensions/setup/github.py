"""The check of pull requests on GitHub: a workflow that calls perfci's action."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfci.core import VERSION
from perfci.core.model import Reason, as_fact
from perfci.extensions.setup.texts import Note, read, template
from perfci.scaffold.edits import Edit

FOLDER = ".github/workflows"

_CHECKS = re.compile(r"\bperfci@|\bperfci check\b")
_ACTION = re.compile(r"git\+https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?@([\w./-]+)")


@dataclass(frozen=True)
class Workflow:
    """The workflow of a project that is to be checked."""

    top: Path  # of the repository
    folder: str  # of the project, from there. Empty for the repository's
    reports: str  # from the top
    branch: str  # the default one
    install: str | None  # what pip installs perfci from, if known

    def plan(self) -> Iterator[Edit | Note]:
        """Yields what has to be done so that a pull request is checked. Nothing if a workflow does it."""
        workflows = [*self.top.glob(f"{FOLDER}/*.yml"), *self.top.glob(f"{FOLDER}/*.yaml")]
        texts = [read(path) or "" for path in workflows]
        if any(_CHECKS.search(text) and self.folder in text for text in texts):
            return
        slug = re.sub(r"[^a-z0-9]+", "-", self.folder.lower()).strip("-")
        path = self.top / FOLDER / (f"perfci-{slug}.yml" if slug else "perfci.yml")
        if read(path) is not None:
            return
        match = _ACTION.fullmatch(self.install or "")
        action = f"{match[1]}@{match[2]}" if match else f"OWNER/perfci@v{VERSION}"
        inputs = {"install": "" if match else self.install or ""}
        if self.folder:
            inputs |= {"project": self.folder, "suffix": f"-{slug}"}
        if self.reports != "reports":
            inputs |= {"reports": self.reports}
        more = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in inputs.items() if value]
        filled = {"BRANCH": self.branch, "ACTION": action}
        filled |= {
            "LINES": "".join(f"          {line}\n" for line in more),
            "WORDS": "".join(f", {word}" for word in more),
        }
        text = re.sub("|".join(filled), lambda match: filled[match[0]], template("workflow.yml"))
        yield Edit(path, None, text, as_fact("the jobs of a pull request"))
        if not match:
            yield Note(Reason("init_action_open", {"path": path.relative_to(self.top).as_posix()}))
