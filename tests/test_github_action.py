"""The composite action: valid, no input in a line of shell, and its steps run as a runner of GitHub's runs them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import yaml

from perfci import store
from perfci.cli.options import DeviceKind
from perfci.extensions.note.text import marker
from tests.flow.conftest import write_quick
from tests.git_repositories import commit_all, git
from tests.gitlab.github_server import OTHER, OWN, GitHub
from tests.gitlab.server import Fault
from tests.program import COMMAND

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
WORKFLOWS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "github.md").read_text(encoding="utf-8"), re.DOTALL)
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
TOKEN = "ghs_Secret_of-the-tests.42"


def validated(path: Path, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_fits_githubs_schema():
    validated(ROOT / "action.yml", "vendor.github-actions")


@pytest.mark.parametrize("text", WORKFLOWS, ids=["one job", "shards", "night"])
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
    for job in workflow["jobs"].values():
        comments = any(step["with"].get("command") == "note" for step in job["steps"])
        assert job.get("permissions") == ({"contents": "read", "pull-requests": "write"} if comments else None)
        assert not comments or (len(job["steps"]) == 2 and "self-hosted" not in job["runs-on"])


def test_the_token_reaches_the_step_that_comments_and_no_other():
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    with_token = [step["name"] for step in STEPS if any("token" in str(text) for text in step.get("env", {}).values())]

    assert with_token == ["Comment on the pull request"]
    assert len(re.findall(r"github\.token|secrets\.", text)) == 1
    (step,) = (step for step in STEPS if step["name"] in with_token)
    assert step["if"] == "inputs.command == 'note'"
    (called,) = (line for line in step["run"].splitlines() if " perfci ci note " in line)
    assert called.startswith("python3 -I -m perfci ") and 'cd "$(mktemp -d)"' in step["run"]


def test_its_devices_are_those_of_the_commands():
    assert set(re.findall(r"\w+", ACTION["inputs"]["device"]["description"].split(".")[0])) - {"or"} == {
        *get_args(DeviceKind)
    }


def test_no_input_stands_in_a_line_that_a_shell_reads():
    assert [step["name"] for step in STEPS if "${{" in step.get("run", "")] == []
    assert {step["shell"] for step in STEPS if "run" in step} == {"bash"}


def test_what_it_uses_is_pinned_to_commits():
    used = [step["uses"] for step in STEPS if "uses" in step]

    assert used and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name) for name in used)
    assert set(used) == {use.split(" #")[0] for use in re.findall(r"uses: (.*)", (ROOT / "action.yml").read_text())}


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
    variables: dict[str, str] = field(default_factory=dict)
    """what GitHub sets beside what every job here gets"""
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
            "github": SimpleNamespace(base_ref=self.base_ref, token=TOKEN),
            "runner": SimpleNamespace(temp=str(self.scratch)),
            "steps": SimpleNamespace(perfci=SimpleNamespace(outputs=_Outputs(self.outputs))),
            "always": lambda: True,
        }
        text = expression.replace("&&", " and ").replace("||", " or ").replace("exit-code", "exit_code")
        return eval(text, {"__builtins__": {}}, names)

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: str(self.value(match[1])), text)

    def run(self) -> Job:
        for step in STEPS:
            condition = step.get("if", "")
            if (self.result and "always()" not in condition) or (condition and not self.value(condition)):
                continue
            if "run" in step:
                code = self._shell(step)
            else:
                code = (self._upload if "upload" in step["uses"] else self._download)(step["with"])
            self.result = self.result or (0 if step.get("continue-on-error") else code)
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
            **self.variables,
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
        (path,) = [self.root / path for path in paths if not path.startswith("!")]
        left = {(self.root / path[1:]).name for path in paths if path.startswith("!")}
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
def repository(tmp_path):
    """The demo project on a branch beside main, and a perfci on the PATH."""
    root = tmp_path / "work"
    write_quick(root)
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "update-ref", "refs/remotes/origin/release", "main")
    git(root, "checkout", "-q", "-b", "topic")
    program = tmp_path / "job" / "bin" / "perfci"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    python = program.with_name("python3")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return root


def job(repository: Path, base_ref: str = "release", variables: dict[str, str] | None = None, **inputs: str) -> Job:
    defaults = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
    given = {**defaults, "install": "none", "device": "fake", "budget": "0.1", "html": "false", **inputs}
    folder = repository.parent
    for name in ("output", "summary"):
        (folder / "job" / name).unlink(missing_ok=True)
    return Job(repository, folder / "job", folder / "kept", given, base_ref, variables or {}).run()


def edit(repository: Path, op: str, before: str, after: str) -> None:
    path = repository / "kernels" / op / f"{op}_triton.py"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    commit_all(repository)


@pytest.mark.nightly  # a slower kernel takes the same steps below, and what each input becomes is tested alone
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
    assert "none of check, plan, shard, confirm, merge, chain, ranks, soak, thorough and note" in done.printed


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


@pytest.mark.nightly  # it makes an environment with pip
def test_perfci_is_installed_beside_the_packages_of_the_virtual_environment_whose_python3_runs(repository, tmp_path):
    venv.create(tmp_path / "outer")
    (place,) = (tmp_path / "outer").glob("lib/python3*/site-packages")
    (place / "of_the_runner.py").touch()
    with zipfile.ZipFile(tmp_path / "empty-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("empty-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: empty\nVersion: 1\n")
        wheel.writestr("empty-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("empty-1.dist-info/RECORD", "")
    python3 = repository.parent / "job" / "bin" / "python3"
    python3.write_text(f'#!/bin/sh\nexec {tmp_path}/outer/bin/python3 "$@"\n')

    done = job(repository, install=str(tmp_path / "empty-1-py3-none-any.whl"))

    (tools,) = (repository.parent / "job" / "path").read_text().split()
    ask = [f"{tools}/python3", "-P", "-c", "import of_the_runner"]
    assert subprocess.run(ask, cwd=tmp_path, check=False).returncode == 0, done.printed


HOSTILE = "x; touch pwned; $(touch pwned) `touch pwned` \"' --help"


TEXTS = ("project", "reports", "device", "budget", "strict", "html", "language", "shards", "shard")


@pytest.mark.parametrize(
    "command", ["check", "plan", "shard", "confirm", "merge", "chain", "ranks", "soak", "thorough", "note"]
)
def test_an_input_is_one_argument_whatever_it_holds(repository, command):
    told = repository.parent / "told"
    for program in ("perfci", "python3"):
        (repository.parent / "job" / "bin" / program).write_text(
            f'#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "$each"; done >> {told}\necho "$PERFCI_LANG" >> {told}\n'
        )
    for artifact in ("plan", "report"):
        (repository.parent / "kept" / f"perfci-{artifact}").mkdir(parents=True)
    (repository.parent / "kept" / "perfci-report" / "run.json").touch()

    done = job(repository, command=command, base_ref=HOSTILE, **dict.fromkeys(TEXTS, HOSTILE))

    assert not list(repository.parent.rglob("pwned"))
    arguments = told.read_text().splitlines() if told.exists() else []
    assert command == "confirm" or any(HOSTILE in argument for argument in arguments)
    assert all(HOSTILE in argument for argument in arguments if "touch" in argument)
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
        f'#!/bin/sh\nfor last; do :; done\ncase "$last" in *purelib*) echo {repository.parent}; exit;; esac\n'
        'mkdir -p "$last/bin"\ncp "$0" "$last/bin/python3"\n'
        f'printf \'#!/bin/sh\\nprintf "<%%s>" "$@" > {told}\\n\' > "$last/bin/pip"\nchmod +x "$last/bin/pip"\n'
    )
    stub.chmod(0o755)

    done = job(repository, install="perfci @ git+https://x/$(touch pwned)", packages="nvidia-ml-py>=12 $(touch *")
    given = told.read_text()
    result = job(repository, install="", packages="")

    assert "<perfci @ git+https://x/$(touch pwned)><nvidia-ml-py>=12><$(touch><*>" in given
    assert f"<{ROOT}>" in told.read_text()
    assert (done.scratch / "path").read_text().splitlines() == [str(done.scratch / "perfci" / "bin")] * 2
    assert not list(repository.parent.rglob("pwned")) and result.root == repository


@pytest.mark.slow
@pytest.mark.nightly
def test_one_check_over_several_jobs(repository):
    edit(repository, "scale", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 344.0")
    edit(repository, "relu", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 320.0  # as before")

    planned = job(repository, command="plan", shards="2")
    shutil.rmtree(repository / "reports")
    calls = []
    for index in (1, 2):
        calls.append(job(repository, command="shard", shard=f"{index}/2"))
        shutil.rmtree(repository / "reports")
    merged = job(repository, command="merge")

    assert [job.result for job in (planned, *calls)] == [0, 0, 0], calls[0].printed
    assert {path.name for path in merged.kept.iterdir()} == {
        "perfci-plan", "perfci-shard-of-1", "perfci-shard-of-2", "perfci-report",
    }  # fmt: skip
    assert (merged.result, merged.outputs["exit_code"]) == (2, "2"), merged.printed
    assert "REGRESSED" in merged.summary
    assert not (merged.kept / "perfci-report" / "shards").exists()

    shutil.rmtree(merged.kept / "perfci-shard-of-2")
    shutil.rmtree(repository / "reports")
    assert job(repository, command="merge").result == 2


# --- the comment ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    made = GitHub(TOKEN)
    yield made
    made.close()


def comment(repository: Path, server: GitHub, ref: str = "refs/pull/3/merge", **inputs: str) -> Job:
    variables = {
        "GITHUB_API_URL": server.api, "GITHUB_REPOSITORY": "team/kernels", "GITHUB_REF": ref,
        "GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "9",
    }  # fmt: skip
    return job(repository, command="note", variables=variables, **inputs)


@pytest.mark.slow
def test_a_slower_kernel_is_red_and_its_report_becomes_a_comment_that_is_updated_in_place(repository, server):
    """By the checkout and the artifact alone, both as data; the summary is left to the job that judges."""
    foreign = server.add(f"{marker('check-fake')}\nmine", OTHER)
    edit(repository, "scale", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 344.0")

    done = job(repository, suffix="-fake")

    assert (done.result, done.outputs["exit_code"]) == (2, "2")
    assert "REGRESSED" in done.summary and "`scale`" in done.summary
    kept = done.kept / "perfci-report-fake"
    assert {"run.json", "report.md", "junit.xml", "metrics.txt"} <= {path.name for path in kept.iterdir()}
    assert store.read_run(kept).plan.base.name == "origin/release"
    shutil.rmtree(repository / "reports")

    first = comment(repository, server, suffix="-fake")
    second = comment(repository, server, suffix="-fake", language="zh")

    assert (first.result, first.summary, second.result) == (0, "", 0), first.printed
    assert [(note["id"], note["user"]["login"]) for note in server.notes] == [(1000, OTHER), (1001, OWN)]
    body = server.notes[1]["body"]
    assert body.startswith(f"{marker('check-fake')}\n") and "REGRESSED" in body and "`scale`" in body
    assert re.search("[\u4e00-\u9fff]", body) and "https://github.com/team/kernels/actions/runs/9#artifacts" in body
    assert foreign["body"].endswith("mine")
    assert not (repository / "reports").exists()
    assert TOKEN not in first.printed + second.printed


@pytest.mark.slow
@pytest.mark.nightly  # tests/extensions/note/test_posting.py has each refusal
def test_a_comment_that_cannot_be_posted_fails_nothing(repository, server):
    job(repository)
    refused = Fault(status=403, body=b'{"message": "Resource not accessible by integration"}')
    server.plan(server.CREATE, refused)

    fork, pushed = comment(repository, server), comment(repository, server, ref="refs/heads/main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "another")
    other = comment(repository, server)

    assert (fork.result, pushed.result, other.result, server.notes) == (0, 0, 0, [])
    assert "pull-requests: write" in fork.printed and "Resource not accessible by integration" in fork.printed
    assert "GITHUB_REF names no pull request" in pushed.printed
    assert "no note was written" in other.printed


def test_without_a_report_there_is_no_comment_and_no_call(repository, server):
    done = comment(repository, server)

    assert (done.result, server.calls) == (0, [])
    assert "There is no report of this workflow" in done.printed


def test_beside_the_token_all_is_installed_by_its_digest_and_nothing_of_the_runner_is_seen(repository):
    told = repository.parent / "told"
    stub = repository.parent / "job" / "bin" / "python3"
    stub.write_text(
        f'#!/bin/sh\necho "python3 $*" >> {told}\nfor last; do :; done\nmkdir -p "$last/bin"\n'
        f'printf \'#!/bin/sh\\necho "pip $* in $PWD" >> {told}\\n\' > "$last/bin/pip"\nchmod +x "$last/bin/pip"\n'
    )
    tools = repository.parent / "job" / "perfci"

    job(repository, command="note", install="perfci @ git+https://x/$(touch pwned)", packages="evil")
    job(repository, command="note", install="")

    listed = f"--require-hashes --only-binary :all: -r {ROOT}/perfci/gitlab/requirements.txt"
    quiet = "pip install --quiet --disable-pip-version-check --no-deps"
    made = f"python3 -I -m venv {tools}"
    assert told.read_text().splitlines() == [
        made, f"{quiet} {listed} in {tools}",
        f"{quiet} --no-build-isolation perfci @ git+https://x/$(touch pwned) in {tools}",
        made, f"{quiet} {listed} in {tools}", f"{quiet} --no-build-isolation {ROOT} in {tools}",
    ]  # fmt: skip
    assert not list(repository.parent.rglob("pwned"))


# --- the night, and NPUs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["chain", "soak"])
def test_chains_and_soak_run_by_their_commands_and_soaking_keeps_what_it_found(repository, command):
    told = repository.parent / "told"
    (repository.parent / "job" / "bin" / "perfci").write_text(
        f'#!/bin/sh\necho "$*" >> {told}\nmkdir -p reports/soak; touch reports/soak/soak.json\nexit 3\n'
    )

    done = job(repository, command=command)

    assert told.read_text().splitlines() == [f"{command} --device fake --project ."]
    assert (done.result, done.outputs["exit_code"], done.summary) == (0, "3", "")
    kept = {path.name for path in done.kept.rglob("*.json")} if done.kept.exists() else set()
    assert kept == ({"soak.json"} if command == "soak" else set())


@pytest.mark.parametrize(
    ("device", "given", "found"), [("npu", "", "/cann"), ("npu", "/given", "/given"), ("cuda", "", "")]
)
def test_on_an_npu_the_environment_of_cann_is_set_where_the_runner_does_not(tmp_path, device, given, found):
    (step,) = (step for step in STEPS if step.get("id") == "perfci")
    toolkit = tmp_path / "ascend-toolkit"
    toolkit.mkdir()
    (toolkit / "set_env.sh").write_text("export ASCEND_HOME_PATH=/cann\nfalse\n")
    (tmp_path / "perfci").write_text('#!/bin/sh\necho "<$ASCEND_HOME_PATH>"\n')
    (tmp_path / "perfci").chmod(0o755)
    script = step["run"].replace("/usr/local/Ascend", str(tmp_path))
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "COMMAND": "check", "PROJECT": ".", "REPORTS": "reports",
        "DEVICE": device, "ASCEND_HOME_PATH": given, "GITHUB_OUTPUT": str(tmp_path / "output"),
    }  # fmt: skip

    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 0 and f"<{found}>" in done.stdout.splitlines(), done.stdout + done.stderr


def test_thorough_checks_every_op_beyond_its_suites_and_sums_it_up(repository):
    told = repository.parent / "told"
    program = repository.parent / "job" / "bin" / "perfci"
    program.write_text(f'#!/bin/sh\necho "$*" >> {told}\nexit 2\n')

    done = job(repository, command="thorough")

    assert done.result == 2
    first, summed = told.read_text().splitlines()
    assert first.startswith("check --device fake --suite accuracy --thorough --sanitize")
    assert summed.startswith("ci note reports")
