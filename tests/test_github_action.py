"""The composite action: valid, no input in a line of shell, and its steps run as a runner of GitHub's runs them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from perfci import store
from perfci.cli.demo import write_project
from tests.git_repositories import alone, commit_all, git
from tests.program import COMMAND

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
WORKFLOWS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "github.md").read_text(encoding="utf-8"), re.DOTALL)
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def validated(path: Path, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_fits_githubs_schema():
    validated(ROOT / "action.yml", "vendor.github-actions")


@pytest.mark.parametrize("text", WORKFLOWS, ids=["one job", "shards"])
def test_the_workflows_of_its_page_fit_githubs_schema_and_give_inputs_that_there_are(text, tmp_path):
    (tmp_path / "workflow.yml").write_text(text)
    validated(tmp_path / "workflow.yml", "vendor.github-workflows")

    workflow = yaml.safe_load(text)
    used = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(set(step["with"]) <= set(ACTION["inputs"]) for step in used if "perfci" in step["uses"])
    assert all(step["with"]["fetch-depth"] == 0 for step in used if "checkout" in step["uses"])
    assert not any(step["with"]["persist-credentials"] for step in used if "checkout" in step["uses"])
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text


def test_no_input_stands_in_a_line_that_a_shell_reads():
    assert [step["name"] for step in STEPS if "${{" in step.get("run", "")] == []
    assert {step["shell"] for step in STEPS if "run" in step} == {"bash"}


def test_what_it_uses_is_pinned_to_commits():
    used = [step["uses"] for step in STEPS if "uses" in step]

    assert used and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", each) for each in used)
    assert set(used) == {each.split(" #")[0] for each in re.findall(r"uses: (.*)", (ROOT / "action.yml").read_text())}


def test_every_input_is_told_on_its_page():
    page = (ROOT / "docs" / "github.md").read_text(encoding="utf-8")
    told = set(
        re.findall(r"`([a-z]+)`", " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `")))
    )

    assert told == set(ACTION["inputs"])


# --- a runner, as small as these steps need ---------------------------------------------------------------------------


@dataclass
class Job:
    """One job in a fresh checkout: inputs, what its steps printed, and which artifacts they would upload."""

    root: Path
    scratch: Path
    kept: Path
    """folders of artifacts"""
    inputs: dict[str, str]
    base_ref: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    printed: str = ""
    result: int = 0

    @property
    def summary(self) -> str:
        path = self.scratch / "summary"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def value(self, expression: str) -> object:
        """An expression of GitHub's, of the kinds that the action has."""
        names = {
            "inputs": SimpleNamespace(**self.inputs),
            "github": SimpleNamespace(base_ref=self.base_ref),
            "steps": SimpleNamespace(perfci=SimpleNamespace(outputs=_Outputs(self.outputs))),
            "always": lambda: True,
        }
        text = expression.replace("&&", " and ").replace("||", " or ").replace("exit-code", "exit_code")
        return eval(text, {"__builtins__": {}}, names)

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda found: str(self.value(found[1])), text)

    def run(self) -> Job:
        for step in STEPS:
            condition = step.get("if", "")
            if (self.result and "always()" not in condition) or (condition and not self.value(condition)):
                continue
            if "run" in step:
                code = self._shell(step)
            else:
                code = (self._upload if "upload" in step["uses"] else self._download)(step["with"])
            self.result = self.result or code
        return self

    def _shell(self, step: dict) -> int:
        self.scratch.mkdir(exist_ok=True)
        script = self.scratch / "script.sh"
        script.write_text(step["run"])
        files = {"GITHUB_OUTPUT": "output", "GITHUB_PATH": "path", "GITHUB_STEP_SUMMARY": "summary"}
        own = {name: self.filled(str(text)) for name, text in step.get("env", {}).items()}
        variables = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("CI", "GITHUB", "PERFCI"))},
            "PATH": f"{self.scratch / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "RUNNER_TEMP": str(self.scratch),
            **{name: str(self.scratch / file) for name, file in files.items()},
            **own,
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(command, cwd=self.root, env=variables, capture_output=True, text=True, check=False)
        self.printed += done.stdout + done.stderr
        output = self.scratch / "output"
        lines = output.read_text().splitlines() if output.exists() else []
        self.outputs |= {line.partition("=")[0].replace("-", "_"): line.partition("=")[2] for line in lines}
        return done.returncode

    def _upload(self, given: dict) -> int:
        place = self.kept / self.filled(given["name"])
        paths = self.filled(given["path"]).splitlines()
        (path,) = [self.root / each for each in paths if not each.startswith("!")]
        left = {(self.root / each[1:]).name for each in paths if each.startswith("!")}
        if not path.exists():
            return int(given.get("if-no-files-found") == "error")
        if path.is_dir():
            shutil.copytree(path, place, ignore=lambda _, names: left & set(names), dirs_exist_ok=True)
        else:
            place.mkdir(parents=True)
            shutil.copy(path, place)
        return 0

    def _download(self, given: dict) -> int:
        target = self.root / self.filled(given["path"])
        if "name" in given:
            source = self.kept / self.filled(given["name"])
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            return int(not source.is_dir())
        for source in self.kept.glob(self.filled(given["pattern"])):
            shutil.copytree(source, target / source.name)
        return 0


class _Outputs(SimpleNamespace):
    def __init__(self, known: dict[str, str]) -> None:
        super().__init__(**known)

    def __getattr__(self, _: str) -> str:
        return ""


# --- jobs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The demo project on a branch beside main, and a perfci on the PATH."""
    alone(monkeypatch, tmp_path)
    root = tmp_path / "work"
    write_project(root)
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "update-ref", "refs/remotes/origin/release", "main")
    git(root, "checkout", "-q", "-b", "topic")
    program = tmp_path / "job" / "bin" / "perfci"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    return root


def job(repository: Path, base_ref: str = "release", **inputs: str) -> Job:
    defaults = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
    given = {**defaults, "install": "none", "device": "fake", "budget": "0.1", "html": "false", **inputs}
    folder = repository.parent
    for name in ("output", "summary"):
        (folder / "job" / name).unlink(missing_ok=True)
    return Job(repository, folder / "job", folder / "kept", given, base_ref).run()


def edit(repository: Path, op: str, before: str, after: str) -> None:
    path = repository / "kernels" / op / f"{op}_triton.py"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    commit_all(repository)


@pytest.mark.slow
def test_a_slower_kernel_is_red_with_its_report_and_summary(repository):
    edit(repository, "scale", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 344.0")

    done = job(repository)

    assert (done.result, done.outputs["exit_code"]) == (2, "2")
    assert "REGRESSED" in done.summary and "`scale`" in done.summary
    kept = {path.name for path in (done.kept / "perfci-report").iterdir()}
    assert {"run.json", "report.md", "junit.xml", "metrics.txt"} <= kept
    run = store.read_run(done.kept / "perfci-report")
    assert run.plan.base.name == "origin/release"


def test_a_comment_is_green_without_a_launch_and_writes_its_page(repository):
    edit(repository, "scale", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 320.0  # as measured")

    done = job(repository, html="true", language="zh")

    assert (done.result, done.outputs["exit_code"]) == (0, "0"), done.printed
    assert (done.kept / "perfci-report" / "report.html").is_file()
    assert "## perfci" in done.summary and re.search("[\u4e00-\u9fff]", done.summary)


WARNS = '#!/bin/sh\n[ "$1 $2" = "ci note" ] || exit 3\n'


def test_warnings_alone_succeed_with_an_annotation(repository):
    (repository.parent / "job" / "bin" / "perfci").write_text(WARNS)

    done = job(repository)

    assert (done.result, done.outputs["exit_code"]) == (0, "3")
    assert re.search(r"(?m)^::warning ", done.printed)


def test_strict_is_handed_on_and_fails_by_perfcis_own_code(repository):
    program = repository.parent / "job" / "bin" / "perfci"
    program.write_text('#!/bin/sh\ncase "$*" in *--strict*) exit 2;; esac\nexit 3\n')

    assert job(repository, strict="true").result == 2


def test_where_perfci_itself_fails_the_job_does_and_sums_nothing_up(repository):
    (repository / "pyproject.toml").write_text("[tool.perfci")

    done = job(repository)

    assert (done.result, done.outputs["exit_code"]) == (1, "1")
    assert done.summary == ""


def test_a_command_that_there_is_not_fails(repository):
    done = job(repository, command="chekc")

    assert done.result == 1
    assert "none of check, plan, shard, confirm and merge" in done.printed


def test_what_is_printed_stands_between_stop_and_go_and_commands_nobody(repository):
    (repository.parent / "job" / "bin" / "perfci").write_text(
        "#!/bin/sh\necho ::error::forged\nprintf '::set-env name=x::y'\n"
    )

    lines = job(repository).printed.splitlines()

    stops = [line.removeprefix("::stop-commands::") for line in lines if line.startswith("::stop-commands::")]
    places = [(lines.index(f"::stop-commands::{stop}"), lines.index(f"::{stop}::")) for stop in stops]
    forged = [place for place, line in enumerate(lines) if "forged" in line or "set-env" in line]
    assert len({*stops}) == 2 and len(forged) == 4
    assert all(any(start < place < end for start, end in places) for place in forged)


HOSTILE = "x; touch pwned; $(touch pwned) `touch pwned` \"' --help"


@pytest.mark.parametrize(
    "name", ["project", "reports", "device", "budget", "strict", "html", "language", "shards", "shard"]
)
@pytest.mark.parametrize("command", ["check", "plan", "shard", "confirm", "merge"])
def test_an_input_is_one_argument_whatever_it_holds(repository, name, command):
    told = repository.parent / "told"
    (repository.parent / "job" / "bin" / "perfci").write_text(
        f'#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "$each"; done >> {told}\necho "$PERFCI_LANG" >> {told}\n'
    )
    (repository.parent / "kept" / "perfci-plan").mkdir(parents=True)

    done = job(repository, command=command, base_ref=HOSTILE, **{name: HOSTILE})

    assert not list(repository.parent.rglob("pwned"))
    arguments = told.read_text().splitlines() if told.exists() else []
    assert all(HOSTILE in each for each in arguments if "touch" in each)
    assert done.outputs.get("shard", "") in {"", "xtouchpwnedtouchpwnedtouchpwnedhelp"}


def test_links_that_a_kernel_left_are_not_uploaded(repository):
    secret = repository.parent / "secret"
    secret.write_text("secret")
    (repository.parent / "job" / "bin" / "perfci").write_text(
        '#!/bin/sh\n[ "$1 $2" = "ci note" ] && exit\nmkdir -p reports/x\ntouch reports/run.json\n'
        f"ln -s {secret} reports/x/y\n"
    )

    done = job(repository)

    assert [path.name for path in (done.kept / "perfci-report").rglob("*") if path.is_file()] == ["run.json"]
    assert secret.read_text() == "secret"


def test_perfci_and_packages_are_installed_apart_each_as_one_argument(repository):
    told = repository.parent / "told"
    (repository.parent / "job" / "bin" / "perfci").write_text("#!/bin/sh\n")
    stub = repository.parent / "job" / "bin" / "python3"
    stub.write_text(
        f'#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/bin"\n'
        f'printf \'#!/bin/sh\\nprintf "<%%s>" "$@" > {told}\\n\' > "$last/bin/pip"\nchmod +x "$last/bin/pip"\n'
    )
    stub.chmod(0o755)

    done = job(repository, install="perfci @ git+https://x/$(touch pwned)", packages="nvidia-ml-py>=12 $(touch *")
    given = told.read_text()
    own = job(repository, install="", packages="")

    assert "<perfci @ git+https://x/$(touch pwned)><nvidia-ml-py>=12><$(touch><*>" in given
    assert f"<{ROOT}>" in told.read_text()
    assert (done.scratch / "path").read_text().splitlines() == [str(done.scratch / "perfci" / "bin")] * 2
    assert not list(repository.parent.rglob("pwned")) and own.root == repository


@pytest.mark.slow
def test_one_check_over_several_jobs(repository):
    edit(repository, "scale", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 344.0")
    edit(repository, "relu", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 320.0  # as before")

    planned = job(repository, command="plan", shards="2")
    shutil.rmtree(repository / "reports")
    found = []
    for index in (1, 2):
        found.append(job(repository, command="shard", shard=f"{index}/2"))
        shutil.rmtree(repository / "reports")
    merged = job(repository, command="merge")

    assert [each.result for each in (planned, *found)] == [0, 0, 0], found[0].printed
    assert {path.name for path in merged.kept.iterdir()} == {
        "perfci-plan", "perfci-shard-of-1", "perfci-shard-of-2", "perfci-report",
    }  # fmt: skip
    assert (merged.result, merged.outputs["exit_code"]) == (2, "2"), merged.printed
    assert "REGRESSED" in merged.summary
    assert not (merged.kept / "perfci-report" / "shards").exists()

    shutil.rmtree(merged.kept / "perfci-shard-of-2")
    shutil.rmtree(repository / "reports")
    assert job(repository, command="merge").result == 2
