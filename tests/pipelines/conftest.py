"""Pipelines of a throw-away repository, run for real by gitlab-ci-local from the component's file."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.flow.conftest import write_quick
from tests.git_repositories import commit_all, git
from tests.gitlab.gitlab_server import GitLab
from tests.program import COMMAND

ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "templates" / "check.yml"
LOCAL = "gitlab-ci-local"
NAMED = "PERFCI_GITLAB_CI_LOCAL"
TOKEN = "glpat-Secret_of-the-tests.42"
SHELL = ("--force-shell-executor", "--shell-isolation", "--no-artifacts-to-source")
"""Without Docker, each job in its copy, and nothing written into the work tree."""

_OUTCOME = re.compile(r"^ (PASS|FAIL|WARN)  (\S+(?: \[\d+/\d+\])?)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@functools.cache
def program() -> str | None:
    """gitlab-ci-local, if it starts here; one that was named has to."""
    named = os.environ.get(NAMED)
    program = named or shutil.which(LOCAL)
    if not program or not shutil.which("rsync"):
        return None
    done = subprocess.run([program, "--version"], capture_output=True, check=bool(named))
    return program if done.returncode == 0 else None


@dataclass(frozen=True)
class Done:
    """A pipeline that ran."""

    outcomes: dict[str, str]
    """job -> PASS, FAIL, or WARN if it may fail; as printed, since the exit code does not show it"""
    output: str
    artifacts: Path

    def log(self, job: str) -> str:
        """What a job printed."""
        lines = self.output.splitlines()
        return "\n".join(line.partition(" > ")[2] for line in lines if line.startswith(f"{job} ") and " > " in line)

    def kept(self, job: str) -> Path:
        """A job's artefacts."""
        return self.artifacts / job


class Repository:
    """The demo's three ops in git, with the component, an origin, and a branch that a merge request would come from."""

    def __init__(self, folder: Path, inputs: dict) -> None:
        self.root = folder / "demo"
        self.seen = folder / "seen.txt"
        """commands that jobs ran, each with the secrets that it was given"""
        self._folder = folder
        write_quick(self.root)
        (self.root / ".gitignore").write_text("reports/\n__pycache__/\n")
        shutil.copy(COMPONENT, self.root / "check.yml")
        given = {"device": "fake", "shards": 2, "tags": ["any"], **inputs}
        pipeline = {"include": [{"local": "check.yml", "inputs": given}]}
        (self.root / ".gitlab-ci.yml").write_text(yaml.safe_dump(pipeline))
        self._share()
        self._stand_in("perfci", f'exec {shlex.join(COMMAND)} "$@"')
        self._stand_in("python3", f'exec "{sys.executable}" "$@"')

    def _share(self) -> None:
        git(self.root, "init", "-q", "-b", "main")
        commit_all(self.root)
        git(self._folder, "clone", "-q", "--bare", str(self.root), "origin.git")
        git(self.root, "remote", "add", "origin", "../origin.git")
        git(self.root, "remote", "add", "gcl-origin", "https://gitlab.example.org/kernels/demo.git")
        git(self.root, "fetch", "-q", "origin")
        git(self.root, "remote", "set-head", "origin", "main")
        git(self.root, "checkout", "-q", "-b", "topic")

    def _stand_in(self, name: str, does: str) -> None:
        """A program before the real one, which notes that it was called."""
        path = self._folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $* ${{PERFCI_GITLAB_TOKEN:+TOKEN}}" >> "{self.seen}"\n{does}\n')
        path.chmod(0o755)

    def broken(self, where: str) -> None:
        """Makes perfci fail if its arguments contain this text."""
        path = self._folder / "bin" / "perfci"
        path.write_text(path.read_text().replace("exec", f'case "$*" in *"{where}"*) exit 1;; esac\nexec'))

    def change(self, op: str, us: float) -> None:
        path = self.root / "kernels" / op / f"{op}_triton.py"
        text = path.read_text()
        assert "US_PER_MEGABYTE = 320.0" in text
        path.write_text(text.replace("US_PER_MEGABYTE = 320.0", f"US_PER_MEGABYTE = {us}"))

    def run(self, *jobs: str, token: str = "", **variables: str) -> Done:
        """A pipeline of some jobs and their needs; of a merge request unless the variables change that.

        A token is given as GitLab would by the docs: to the environments perfci/note and perfci/propose alone.
        """
        variables = {"CI_API_V4_URL": "http://127.0.0.1:9", **variables}
        secrets = self._folder / "variables.yml"
        scoped = {"values": {"perfci/note": token, "perfci/propose": token}}
        secrets.write_text(yaml.safe_dump({"PERFCI_GITLAB_TOKEN": scoped} if token else {}))
        output = self._ci("--needs", "--variables-file", "../variables.yml", *jobs, variables=variables)
        outcomes = {job: told for told, job in _OUTCOME.findall(output)}
        return Done(outcomes, output, self._folder / "state" / "artifacts")

    def jobs(self, **variables: str) -> set[str]:
        """What the pipeline would have, without the names' beginning."""
        output = self._ci("--list-csv", variables=variables)
        return set(re.findall(r"^perfci-(\w+)", output, re.MULTILINE))

    def _ci(self, *options: str, variables: dict[str, str]) -> str:
        """The output of gitlab-ci-local. Its exit code means little."""
        variables = {"CI_PIPELINE_SOURCE": "merge_request_event", **variables}
        command = [program(), *SHELL, "--no-color", "--state-dir", "../state", *options]
        command += ["--ignore-predefined-vars", ",".join(variables)]
        for name, value in variables.items():
            command += ["--variable", f"{name}={value}"]
        done = subprocess.run(
            command, cwd=self.root, env=self._environment(), capture_output=True, text=True, check=False, timeout=300
        )
        return _COLOUR.sub("", done.stdout + done.stderr)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith("GIT_") or name == "TERM"}
        path = os.pathsep.join([str(self._folder / "bin"), os.environ["PATH"]])
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        return {**kept, "PATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


@pytest.fixture
def repository(tmp_path):
    """Returns a function that makes the repository from inputs of the component."""
    if program() is None:
        pytest.skip(f"{LOCAL} and rsync are not both here; {NAMED} may name the former")
    return lambda **inputs: Repository(tmp_path, inputs)


@pytest.fixture
def server():
    made = GitLab(TOKEN)
    yield made
    made.close()
