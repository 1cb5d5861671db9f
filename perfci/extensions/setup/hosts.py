"""The CI jobs of a repository: a workflow on GitHub, on GitLab those of templates/check.yml, in a file or included."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfci.core import VERSION
from perfci.core.model import Reason, as_fact
from perfci.extensions.setup.texts import Note, append_lines, read, template
from perfci.scaffold.edits import Edit

FOLDER = ".github/workflows"

_CHECK_STEPS = re.compile(r"\bperfci@|\bperfci check\b")
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
        if any(_CHECK_STEPS.search(text) and self.folder in text for text in texts):
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


FILE = ".gitlab-ci.yml"

_INPUT = re.compile(r"\$\[\[ inputs\.(\w+) \]\]")
_CHECKS = re.compile(r"\bperfci\b[^\n]*\bcheck\b|\bperfci/check@|perfci[\s\S]*templates/check\.yml")
_YAML_FILE = re.compile(r"[\w./-]+\.ya?ml")


def list_inputs() -> Mapping[str, Mapping[str, Any]]:
    """Returns the component's inputs by name, each with its description and default."""
    inputs: dict[str, dict[str, Any]] = yaml.safe_load(template("jobs.yml").partition("\n---\n")[0])["spec"]["inputs"]
    return inputs


def fill_jobs(values: Mapping[str, Any]) -> str:
    """Returns the component's jobs with these inputs, filled in as GitLab does. Raises KeyError for unknown ones."""
    defaults = {name: spec["default"] for name, spec in list_inputs().items()}
    if unknown := values.keys() - defaults.keys():
        raise KeyError(*sorted(unknown))
    every = {**defaults, **values}

    def put_in(match: re.Match[str]) -> str:
        value = every[match[1]]
        text = json.dumps(value, ensure_ascii=False)
        return text[1:-1] if isinstance(value, str) else text

    return _INPUT.sub(put_in, template("jobs.yml").partition("\n---\n")[2])


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a project that is to be checked."""

    top: Path  # of the repository
    folder: str  # of the project, from there. Empty for the repository's
    reports: str  # from the top
    install: str | None  # what pip installs perfci from, if known

    def plan(self) -> Iterator[Edit | Note]:
        """Yields what has to be done so that a pipeline checks the project. Nothing if one does."""
        path = self.top / FILE
        text = read(path)
        slug = re.sub(r"[^a-z0-9]+", "-", self.folder.lower()).strip("-")
        file = self.top / ".gitlab" / (f"perfci-{slug}.yml" if slug else "perfci.yml")
        if text is not None and self._is_checked(text):
            return
        made = file if text is not None else path
        if read(made) is None:
            jobs = (template("pipeline.yml") if text is None else "") + self._write_jobs(slug, text)
            yield Edit(made, None, jobs, as_fact("the jobs of a merge request"))
            if not self.install:
                yield Note(Reason("init_install_open", {"path": made.relative_to(self.top).as_posix()}))
        name = file.relative_to(self.top).as_posix()
        if text is not None and name not in text:
            if after := include_file(text, name):
                yield Edit(path, text, after, as_fact("includes these jobs"))
            else:
                yield Note(Reason("init_include_by_hand", {"path": FILE}), f"include:\n  - local: {name}\n")

    def _is_checked(self, text: str) -> bool:
        """Whether the pipeline, or a file of the repository that it names, checks this project."""
        named = {name.lstrip("/") for name in _YAML_FILE.findall(text)}
        if not self.folder:  # other projects of the repository have their files
            named = {name for name in named if not name.startswith(".gitlab/perfci-")}
        texts = [text, *(read(self.top / name) or "" for name in named if (self.top / name).is_file())]
        return any(_CHECKS.search(content) and self.folder in content for content in texts)

    def _write_jobs(self, slug: str, text: str | None) -> str:
        """Returns the jobs with what is known of the project, and of the pipeline that is there."""
        stages, pipelines = ["test"], "merge_requests"
        if text is not None:
            # Jobs that alone have a merge request's pipeline would hide the others' failures there.
            pipelines = "merge_requests" if re.search("merge_?request", text, re.IGNORECASE) else "branches"
            pipeline = _load(text)
            if isinstance(pipeline, dict) and isinstance(pipeline.get("stages"), list):
                stages = [str(stage) for stage in pipeline["stages"]] or stages
        values = {
            "suffix": f"-{slug}" if slug else "",
            "stage": "test" if "test" in stages else stages[0],
            "pipelines": pipelines,
            "install": self.install or "",
            "project": self.folder or ".",
            "reports": self.reports,
        }
        return fill_jobs(values)


def include_file(text: str, file: str) -> str | None:
    """Returns a pipeline's text that includes one more local file. None if that would change anything else."""
    before = _load(text) or {}
    if not isinstance(before, dict):
        return None
    after = append_lines(text, ["include:", f"  - local: {file}"])
    if "include" in before:
        # First in the list, since comments behind the last entry belong to what follows.
        after = re.sub(r"^include: *(\r?\n *- )", rf"\g<0>local: {file}\1", text, count=1, flags=re.MULTILINE)
    wanted = {**before, "include": [{"local": file}, *before.get("include", [])]}
    return after if _load(after) == wanted else None


class _Loader(yaml.BaseLoader):
    """Takes every scalar for text, and passes over GitLab's tags."""


_Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_sequence(node, deep=True))


def _load(text: str) -> Any:
    """The last of a pipeline's documents. None if it is empty, or no YAML."""
    try:
        return (list(yaml.load_all(text, _Loader)) or [None])[-1]
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
