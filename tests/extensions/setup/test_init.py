"""A set-up adds what is missing and nothing else, whatever is there."""

import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import perfci
from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.settings import KEYS
from perfci.extensions.setup import hosts, plan
from perfci.extensions.setup.texts import template
from perfci.scaffold import edits
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load
from tests.git_repositories import begin_empty, git

ROOT = Path(__file__).parents[3]
SPEC = "git+https://example.org/perfci.git@v1"
MADE = {
    ".gitignore",
    ".gitlab-ci.yml",
    "CODEOWNERS",
    "baselines/.gitattributes",
    "kernels/.gitattributes",
    "baselines/README.md",
    "kernels/README.md",
    "pyproject.toml",
    "reports/README.md",
    "thresholds/default.yaml",
    "thresholds/schema.json",
}


@pytest.fixture
def repository(tmp_path) -> Path:
    """A git repository with nothing in it."""
    return begin_empty(tmp_path / "repository")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def files(folder: Path) -> dict[str, bytes]:
    """Every file but git's own, by its path."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def set_up(folder: Path, *named: str, install: str | None = SPEC) -> plan.Setup:
    """Set a folder up, and see that a second time changes nothing."""
    setup = plan.plan(folder, named, install)
    edits.write(setup.edits)
    assert plan.plan(folder, named, install).edits == ()
    return setup


def kinds(setup: plan.Setup) -> list[str]:
    return [note.reason.kind for note in setup.notes]


def fits_gitlab(*paths: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- an empty repository ----------------------------------------------------------------------------------------------


def test_an_empty_repository_gets_everything_and_a_second_time_nothing(repository):
    setup = set_up(repository, "@kernels")

    assert set(files(repository)) == MADE
    assert (setup.root, setup.top, setup.notes) == (repository, repository, ())


def test_the_default_thresholds_are_the_built_in_ones(repository):
    set_up(repository)

    assert load(repository / "thresholds", ops=[]) == Thresholds()


def test_the_settings_made_are_the_defaults_and_every_commented_line_is_one(repository):
    before = settings.at(repository)
    set_up(repository)
    path = repository / "pyproject.toml"

    assert settings.load(repository) == before

    shown = [line.removeprefix("# ") for line in path.read_text().splitlines() if " = " in line]
    write(path, "\n".join(["[tool.perfci]", *shown]))
    loaded = settings.load(repository)
    assert {line.split(" = ")[0] for line in shown} <= set(KEYS)
    assert dataclasses.replace(loaded, environment=()) == before


def test_git_passes_over_reports_but_not_over_the_rest(repository):
    set_up(repository, "@kernels")
    for name in ("reports/run.json", "reports/static/report.md", "kernels/a/__pycache__/x.pyc", "baselines/d/op.json"):
        write(repository / name, "")

    git(repository, "add", "--all")

    assert set(git(repository, "ls-files").splitlines()) == MADE | {"baselines/d/op.json"}


def test_git_passes_over_environments_and_files_that_are_being_written(repository):
    set_up(repository, "@kernels")
    for name in (".venv/pyvenv.cfg", "baselines/d/.op.json.0a1b2c3d.perfci", "kernels/a/.a.json.ffffffff.perfci"):
        write(repository / name, "")

    git(repository, "add", "--all")

    assert set(git(repository, "ls-files").splitlines()) == MADE


# --- GitHub or GitLab -------------------------------------------------------------------------------------------------

WORKFLOW = ".github/workflows/perfci.yml"


def uses(path: Path, job: str = "check") -> tuple[str, dict[str, str]]:
    """The action that a job of a workflow calls, and its inputs."""
    step = yaml.safe_load(path.read_text())["jobs"][job]["steps"][-1]
    return step["uses"], step["with"]


def test_on_github_the_workflow_is_that_of_its_page(repository):
    git(repository, "remote", "add", "origin", "git@github.com:me/mylib.git")
    page = (ROOT / "docs" / "github.md").read_text(encoding="utf-8")

    set_up(repository, install=None)

    shown = re.search(rf"```yaml\n# {WORKFLOW}\n(.*?)```", page, re.DOTALL)[1]
    assert (repository / WORKFLOW).read_text().partition("\n")[2] == shown


@pytest.mark.parametrize(
    ("remote", "folder", "file"),
    [
        ("git@github.com:me/mylib.git", "", WORKFLOW),
        ("https://github.example.org/me/mylib", "", WORKFLOW),
        ("https://gitlab.com/github/mylib.git", ".github", ".gitlab-ci.yml"),
        ("ssh://git@code.example.org:2222/gitlab/mylib.git", "", ".gitlab-ci.yml"),
        ("ssh://git@code.example.org:2222/me/mylib.git", ".github", WORKFLOW),
        (None, ".github", WORKFLOW),
        (None, "", ".gitlab-ci.yml"),
    ],
)
def test_the_jobs_are_those_of_the_server(repository, remote, folder, file):
    if remote:
        git(repository, "remote", "add", "upstream", remote)
    (repository / folder).mkdir(exist_ok=True)

    set_up(repository)

    assert set(files(repository)) & {WORKFLOW, ".gitlab-ci.yml"} == {file}


def test_on_github_the_workflow_fits_its_schema_and_calls_the_action_with_inputs_that_it_has(repository):
    git(repository, "remote", "add", "origin", "git@github.com:me/mylib.git")

    setup = set_up(repository, "@me/kernels", install=None)

    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", WORKFLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    action, inputs = uses(repository / WORKFLOW)
    assert (action, kinds(setup)) == (f"OWNER/perfci@v{perfci.__version__}", ["init_action_open"])
    assert inputs.keys() <= yaml.safe_load((ROOT / "action.yml").read_text())["inputs"].keys()
    assert "/thresholds/ @me/kernels" in (repository / ".github" / "CODEOWNERS").read_text().splitlines()


def test_on_github_the_action_is_what_perfci_was_installed_from_and_the_branch_the_servers_default(repository):
    git(repository, "remote", "add", "origin", "git@github.com:me/mylib.git")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")

    setup = set_up(repository, "@me", install="git+https://github.com/them/perfci.git@v2")

    assert uses(repository / WORKFLOW)[0] == "them/perfci@v2"
    assert yaml.safe_load((repository / WORKFLOW).read_text())[True]["push"]["branches"] == ["trunk"]
    assert setup.notes == ()


def test_on_github_a_project_in_a_folder_has_a_workflow_of_its_own_beside_the_others(repository):
    git(repository, "remote", "add", "origin", "git@github.com:me/mylib.git")
    set_up(repository)
    folder = repository / "ops" / "fast"
    folder.mkdir(parents=True)
    write(folder / "pyproject.toml", "[tool.perfci]\n")

    set_up(folder, install="git+https://example.org/perfci.git@v1")

    action, inputs = uses(repository / ".github" / "workflows" / "perfci-ops-fast.yml")
    assert action.startswith("OWNER/")
    more = {"project": "ops/fast", "suffix": "-ops-fast", "reports": "ops/fast/reports"}
    more |= {"install": "git+https://example.org/perfci.git@v1"}
    assert inputs == {"device": "cuda", "packages": "nvidia-ml-py", **more}
    assert uses(repository / ".github" / "workflows" / "perfci-ops-fast.yml", "note")[1] == {"command": "note", **more}


@pytest.mark.parametrize("text", ["      - uses: me/perfci@v1\n", "      - run: perfci check --strict\n"])
def test_on_github_a_workflow_that_runs_perfci_already_is_left_alone(repository, text):
    write(repository / ".github" / "workflows" / "ci.yaml", f"jobs:\n  a:\n    steps:\n{text}")

    set_up(repository)

    assert not (repository / WORKFLOW).exists()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"url": "https://host/g/perfci.git", "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "c"}},
         "git+https://host/g/perfci.git@v1"),
        ({"url": "https://host/g/perfci.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
         "git+https://host/g/perfci.git@c0ffee"),
        ({"url": "https://me:secret@host/g/perfci.git", "vcs_info": {"vcs": "git", "commit_id": "c"}}, None),
        ({"url": "file:///home/me/perfci", "dir_info": {"editable": True}}, None),
        (None, None),
    ],
)  # fmt: skip
def test_what_runners_install_is_what_pip_installed_here(repository, monkeypatch, record, expected):
    text = json.dumps(record) if record else None
    installed = SimpleNamespace(read_text=lambda name: text if name == "direct_url.json" else None)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)

    setup = set_up(repository, "@me", install=None)

    assert ("init_install_open" in kinds(setup)) is (expected is None)
    assert set(re.findall(r"^ +PERFCI: (.*)", (repository / ".gitlab-ci.yml").read_text(), re.MULTILINE)) == {
        json.dumps(expected or "")
    }


# --- pyproject.toml ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_an_existing_pyproject_keeps_its_text_and_line_ends(repository, end, last):
    lines = ["# ours", "[project]", "name = 'x'  # first", "[tool.black]", "line-length = 99"]
    text = end.join(lines) + last.replace("\n", end)
    path = write(repository / "pyproject.toml", text)

    set_up(repository)

    after = path.read_bytes().decode()
    assert after.startswith(text)
    assert after.count("\r\n") == (after.count("\n") if end == "\r\n" else 0)
    assert tomllib.loads(after)["tool"] == {"black": {"line-length": 99}, "perfci": {}}


def test_a_table_that_is_there_is_left_alone_and_its_folders_are_used(repository):
    text = '[tool.perfci]\nkernels = "src/ops"\nbaselines = "perf/baselines"\nthresholds = "perf"\nreports = "out"\n'
    path = write(repository / "pyproject.toml", text)

    set_up(repository, "@kernels")

    assert path.read_text() == text
    made = {"src/ops/README.md", "perf/baselines/README.md", "perf/default.yaml", "perf/schema.json", "out/README.md"}
    made |= {"perf/baselines/.gitattributes", "src/ops/.gitattributes"}
    assert set(files(repository)) == made | {"pyproject.toml", ".gitignore", ".gitlab-ci.yml", "CODEOWNERS"}
    assert (repository / ".gitignore").read_text().splitlines()[:2] == ["/out/*", "!/out/README.md"]
    assert (repository / "CODEOWNERS").read_text().splitlines()[1:] == ["/perf/ @kernels", "/perf/baselines/ @kernels"]
    jobs = yaml.safe_load((repository / ".gitlab-ci.yml").read_text())
    assert jobs["perfci-merge"]["artifacts"]["paths"] == ["out/"]


# --- CI ---------------------------------------------------------------------------------------------------------------


def test_the_pipeline_made_fits_gitlabs_schema_and_is_the_component_filled_in(repository):
    set_up(repository)
    path = repository / ".gitlab-ci.yml"
    pipeline = yaml.safe_load(path.read_text())

    fits_gitlab(path)
    assert {name: pipeline[".perfci"]["variables"][name] for name in ("PERFCI", "PERFCI_PROJECT")} == {
        "PERFCI": SPEC,
        "PERFCI_PROJECT": ".",
    }
    jobs = {name for name in pipeline if name.startswith("perfci-")}
    assert {"perfci-static", "perfci-plan", "perfci-check", "perfci-merge", "perfci-note"} <= jobs
    assert pipeline[".perfci:device"]["tags"] == ["gpu"]
    assert pipeline | yaml.safe_load(hosts.fill_jobs({"install": SPEC})) == pipeline


def as_gitlab(values):
    """GitLab's way: into the text before it is YAML; texts as they are, other values as JSON."""
    inputs = {name: given["default"] for name, given in hosts.list_inputs().items()} | values
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()}
    body = template("jobs.yml").partition("\n---\n")[2]
    return yaml.safe_load(re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: texts[match[1]], body))


NASTY = {
    "suffix": "-h200-2",
    "project": "ops/Small Önes: #1 'a' [b]",
    "install": "git+https://u:$CI_JOB_TOKEN@example.org/perfci.git@v1 # no comment",
    "tags": ["gpu h200", "yes", "a, b", "1", "@a"],
    "shards": 12,
    "budget": 0.5,
    "strict": True,
    "stage": "null",
    "expiry": "2024-01-01",
}


@pytest.mark.parametrize("values", [{}, NASTY])
def test_the_component_filled_in_means_what_gitlab_makes_of_it(values):
    text = hosts.fill_jobs(values)

    assert "$[[" not in text
    assert yaml.safe_load(text) == as_gitlab(values)


PIPELINES = {
    "nothing": "",
    "a comment": "# soon\n",
    "no include": "stages: [build, deploy]\nbuild:\n  script: make # it\n",
    "no last line end": "build:\n  script: make",
    "a list": "include:\n  - local: a.yml\n  - template: T.yml # the last\n\n# then\nbuild:\n  script: make\n",
    "a list at the end": "build: {script: make}\ninclude:\n  - 'a.yml'\n"
    "  - project: g/p\n    ref: main\n    file:\n      - b.yml",
    "a flat list": "include:\n- a.yml\nbuild:\n  script: make\n",
    "inputs": "spec:\n  inputs:\n    job: {default: x}\n---\ninclude:\n  - a.yml\n",
    "references": "include:\n  - a.yml\n.b: &b [make]\nbuild:\n  script: [*b, !reference [.b, script]]\n",
    "windows": "include:\r\n  - local: a.yml\r\n\r\nbuild:\r\n  script: make\r\n",
}
OURS = {"local": ".gitlab/perfci.yml"}


class Loose(yaml.SafeLoader):
    """Reads GitLab's tags too."""


Loose.add_constructor("!reference", lambda loader, node: loader.construct_sequence(node))


@pytest.mark.parametrize("text", PIPELINES.values(), ids=PIPELINES)
def test_an_existing_pipeline_keeps_its_text_and_includes_the_jobs(repository, text):
    path = write(repository / ".gitlab-ci.yml", text)

    setup = set_up(repository, "@kernels")

    after = path.read_bytes().decode()
    before = (list(yaml.load_all(text, Loose)) or [None])[-1] or {}
    now = list(yaml.load_all(after, Loose))[-1]
    old = before.get("include", [])
    assert now == {**before, "include": [OURS, *(old if isinstance(old, list) else [old])]}
    assert setup.notes == ()
    letters = iter(after)
    assert all(letter in letters for letter in text), "every letter of it, in order"
    assert after.count("\r\n") == (after.count("\n") if "\r\n" in text else 0)


@pytest.mark.parametrize(
    "text",
    [
        "include: [a.yml, b.yml] # both\nbuild:\n  script: make\n",
        "include: 'a.yml'\nbuild:\n  script: make\n",
        "include: {local: a.yml}\nbuild:\n  script: make\n",
        "build:\n  script: make\n...\n",
        "- a\n- b\n",
        "include: &b [x.yml]\nother: *b\n",
        "build: [\n",
    ],
)
def test_a_pipeline_that_cannot_be_extended_stays_as_it_is_and_the_lines_are_given(repository, text):
    path = write(repository / ".gitlab-ci.yml", text)

    setup = set_up(repository, "@kernels")

    assert path.read_text() == text
    assert kinds(setup) == ["init_include_by_hand"]
    assert yaml.safe_load(setup.notes[0].lines) == {"include": [OURS]}
    assert (repository / ".gitlab" / "perfci.yml").is_file()


RUNNING = {
    "a job": "speed:\n  script:\n    - .venv/bin/perfci check --device cuda\n",
    "a file": "include: /ci/speed.yml\n",
    "the component": "include:\n  - component: $CI_SERVER_FQDN/tools/perfci/check@1\n    inputs: {shards: 2}\n",
    "the component's file": "include:\n  - project: tools/perfci\n    ref: v1\n    file: /templates/check.yml\n",
}


@pytest.mark.parametrize("text", RUNNING.values(), ids=RUNNING)
def test_a_pipeline_that_runs_perfci_already_is_left_alone(repository, text):
    write(repository / "ci" / "speed.yml", RUNNING["a job"])
    write(repository / ".gitlab-ci.yml", text)

    setup = set_up(repository, "@kernels")

    assert not any(".gitlab" in str(edit.path) for edit in setup.edits)


# --- owners -----------------------------------------------------------------------------------------------------------


def test_without_owners_it_says_so_and_owners_given_later_are_added(repository):
    first = set_up(repository)

    assert kinds(first) == ["init_owners_open"]
    assert not (repository / "CODEOWNERS").exists()

    second = set_up(repository, "@perf/kernels", "ann@example.org")
    lines = (repository / "CODEOWNERS").read_text().splitlines()
    assert lines[1:] == [f"/{name}/ @perf/kernels ann@example.org" for name in ("thresholds", "baselines")]
    assert second.notes == ()


@pytest.mark.parametrize("place", plan.OWNER_FILES["gitlab"])
def test_an_existing_codeowners_is_extended_where_gitlab_finds_it(repository, place):
    path = write(repository / place, "* @all\r\n")

    set_up(repository, "@kernels")

    text = path.read_bytes().decode()
    assert text.startswith("* @all\r\n\r\n# ")
    assert text.endswith("/thresholds/ @kernels\r\n/baselines/ @kernels\r\n")
    assert [name for name in plan.OWNER_FILES["gitlab"] if (repository / name).exists()] == [place]


@pytest.mark.parametrize("name", ["kernels", "@", "@a @", "", "@a b"])
def test_what_is_no_owner_is_refused(repository, name):
    with pytest.raises(UsageError) as caught:
        plan.plan(repository, [name])

    assert caught.value.reason.kind == "init_owner"
    assert files(repository) == {}


# --- the folder of the call -------------------------------------------------------------------------------------------


def test_a_folder_of_a_repository_with_no_project_becomes_one_of_its_own(repository):
    write(repository / ".gitlab-ci.yml", "build: {script: make}\n")
    for name in ("ops/fast", "ops/Small Ones"):
        (repository / name).mkdir(parents=True)
        set_up(repository / name, "@kernels")

    included = yaml.safe_load((repository / ".gitlab-ci.yml").read_text())["include"]
    places = [repository / file["local"] for file in included]
    assert [path.name for path in places] == ["perfci-ops-small-ones.yml", "perfci-ops-fast.yml"]
    jobs = [yaml.safe_load(path.read_text()) for path in places]
    assert jobs[1][".perfci-ops-fast"]["variables"]["PERFCI_PROJECT"] == "ops/fast"
    assert jobs[0]["perfci-merge-ops-small-ones"]["artifacts"]["paths"] == ["ops/Small Ones/reports/"]
    assert "/ops/Small\\ Ones/baselines/ @kernels" in (repository / "CODEOWNERS").read_text()
    assert (repository / "ops" / "fast" / ".gitignore").is_file()
    fits_gitlab(*places)


def test_outside_of_git_it_says_so(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()

    setup = set_up(folder, "@kernels")

    assert set(files(folder)) == MADE
    assert kinds(setup) == ["no_repository"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_everything_and_writes_nothing(repository, capsys):
    write(repository / ".gitignore", "*.log\n")

    assert run(["init", "--dry-run", "--project", str(repository)]) == 0

    out = capsys.readouterr().out
    assert set(files(repository)) == {".gitignore"}
    assert "--- a/.gitignore\n+++ b/.gitignore\n@@ -1 +1,7 @@\n *.log\n+\n+/reports/*" in out
    assert "--- /dev/null\n+++ b/thresholds/default.yaml" in out
    assert re.search(r"^\.gitignore +lines added +git passes over reports", out, re.MULTILINE)
    assert re.search(r"^thresholds/default\.yaml +new +every threshold", out, re.MULTILINE)
    assert "Nothing was written" in out


@pytest.mark.parametrize("dry", [True, False])
def test_programs_get_every_file_and_what_is_left_to_do(repository, capsys, dry):
    assert run(["init", "--format", "json", "--owners", "@a", "--project", str(repository), *["--dry-run"][:dry]]) == 0

    answer = json.loads(capsys.readouterr().out)
    paths = {Path(load["path"]).relative_to(repository).as_posix(): load["text"] for load in answer["files"]}
    assert set(paths) == MADE
    assert answer["written"] is not dry
    assert set(files(repository)) == (set() if dry else MADE)
    assert all(note["reason"]["sentence"] for note in answer["notes"])
    assert all(load["purpose"] for load in answer["files"])


def test_an_editor_finds_the_schema_of_thresholds_beside_them(repository):
    set_up(repository)
    write(repository / "thresholds" / "schema.json", "{}")  # of an earlier perfci

    set_up(repository)

    first = (repository / "thresholds" / "default.yaml").read_text().splitlines()[0]
    schema = repository / "thresholds" / first.partition("$schema=")[2]
    assert "tau" in json.loads(schema.read_text())["properties"]


def test_the_command_shows_and_writes_and_then_has_nothing_left(repository, capsys, monkeypatch):
    monkeypatch.chdir(repository)

    assert run(["init", "--owners", "@kernels", "--install", SPEC]) == 0
    first = capsys.readouterr().out
    assert run(["init"]) == 0
    second = capsys.readouterr().out

    assert set(files(repository)) == MADE
    assert len(first.splitlines()) < 24
    assert {line.split()[0] for line in first.splitlines() if line.split()[1:2] == ["new"]} == MADE
    assert "+" not in {line[:1] for line in first.splitlines()}
    assert second.splitlines() == [f"Project: {repository}", "", "Everything is set up: nothing is left to do."]
