"""GitHub's action and GitLab's component with `device: npu`: their own lines of shell, on the test device.

What a runner for an NPU needs beside its packages is nothing that these files would have to say.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfci import load
from tests.git_repositories import alone, commit_all, git
from tests.program import COMMAND
from tests.test_github_action import ACTION, Job

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[4]
PROJECT = Path(__file__).parent / "project"
SPEC, COMPONENT = yaml.safe_load_all((ROOT / "templates" / "check.yml").read_text("utf-8"))
INPUTS = {name: given.get("default", "") for name, given in SPEC["spec"]["inputs"].items()}


@pytest.fixture
def runner(npu, tmp_path, monkeypatch):
    """A runner's machine with the chip: the project on a branch beside main, and a perfci on the PATH."""
    root = tmp_path / "work"
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("reports", "__pycache__"))
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    alone(monkeypatch, tmp_path)
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "update-ref", "refs/remotes/origin/main", "main")
    git(root, "checkout", "-q", "-b", "topic")
    kernel = root / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text(kernel.read_text() + "\n# another line\n")
    commit_all(root)
    programs = tmp_path / "job" / "bin"
    programs.mkdir(parents=True)
    path = os.pathsep.join([npu["PYTHONPATH"], str(ROOT)])
    for name, command in (("perfci", COMMAND), ("python3", [sys.executable])):
        (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.join(map(str, command))} "$@"\n')
        (programs / name).chmod(0o755)
    for name, value in npu.items():
        monkeypatch.setenv(name, f"{programs}{os.pathsep}{value}" if name == "PATH" else value)
    return root


def test_githubs_action_checks_on_an_npu(runner):
    defaults = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
    given = defaults | {"install": "none", "device": "npu", "budget": "0.05", "html": "false"}
    inputs = {name: value for name, value in given.items() if name in ACTION["inputs"]}
    done = Job(runner, runner.parent / "job", runner.parent / "kept", inputs, "main").run()

    assert done.result == 0, done.printed
    assert "Ascend910B2" in (done.kept / "perfci-report" / "report.md").read_text("utf-8")
    assert load(done.kept / "perfci-report").run.environment.device.kind == "npu"


def fill(value, **inputs):
    """A part of the component with its inputs in their places."""
    if isinstance(value, dict):
        return {fill(name, **inputs): fill(content, **inputs) for name, content in value.items()}
    if isinstance(value, list):
        return [fill(item, **inputs) for item in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: str((INPUTS | inputs)[match[1]]), value)


def test_gitlabs_component_plans_measures_and_judges_on_an_npu(runner):
    jobs = fill(COMPONENT, device="npu", budget="0.05", html="false")
    variables = {
        **os.environ, **{name: str(value) for name, value in jobs[".perfci"]["variables"].items()},
        "CI_PIPELINE_SOURCE": "merge_request_event", "CI_DEFAULT_BRANCH": "main", "CI_NODE_INDEX": "1",
        "CI_NODE_TOTAL": "1", "CI_JOB_URL": "none", "CI_JOB_TOKEN": "none", "CI_API_V4_URL": "http://127.0.0.1:9",
        "CI_PROJECT_ID": "1", "PERFCI_SHARDS": "1", "PERFCI_BUDGET": "0.05", "PERFCI_HTML": "false",
    }  # fmt: skip
    for name in ("perfci-plan", "perfci-check", "perfci-merge"):
        script = "\n".join(jobs[name]["script"])
        own = {key: str(value) for key, value in jobs[name].get("variables", {}).items()}
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=runner, env=variables | own, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    run = load(runner / "reports").run
    assert (run.environment.device.kind, run.environment.timer) == ("npu", "activity")
    assert {op.op for op in run.ops} == {"scale", "row_sum"}
