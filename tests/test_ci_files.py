"""The files that machines read: the pipeline's, make's, the project's check."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from perfci.core import VERSION
from perfci.extensions.setup import hosts

ROOT = Path(__file__).parents[1]
PIPELINE = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text())
SETUP = ROOT / "requirements" / "setup.sh"
EVERYTHING = [".venv/.ready-all", "--jobs 2 lint docs", "test"]


def test_the_pipeline_fits_gitlabs_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", ".gitlab-ci.yml"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kernels_are_checked_by_the_component_that_others_include():
    (included,) = PIPELINE["include"]

    assert (ROOT / included["local"]).is_file()
    assert included["inputs"].keys() <= hosts.list_inputs().keys()
    assert included["inputs"]["stage"] in PIPELINE["stages"]


def test_beside_a_token_runs_no_perfci_of_the_merge_request():
    """pip would run the change's build and code there."""
    included = hosts.fill_jobs(PIPELINE["include"][0]["inputs"])
    jobs = yaml.safe_load(included)
    with_token = [name for name, job in jobs.items() if "environment" in job]

    assert with_token
    assert all(PIPELINE[name]["variables"]["PERFCI"].endswith("@$CI_DEFAULT_BRANCH") for name in with_token)


def test_what_the_components_jobs_install_and_run_in_is_what_this_repository_does():
    inputs = {name: given["default"] for name, given in hosts.list_inputs().items()}
    pins = [line.split(";")[0].strip() for line in (ROOT / "requirements" / "cpu.txt").read_text().splitlines()]

    assert set(inputs["cpu_packages"].split()) <= set(pins)
    assert inputs["cpu_image"] == PIPELINE["default"]["image"]


def test_the_components_jobs_compile_with_the_torch_and_the_triton_that_those_on_the_device_have():
    """The image has the Triton that its torch asks for, by the table of docs/versions.md."""
    inputs = {name: given["default"] for name, given in hosts.list_inputs().items()}
    image = re.fullmatch(r"pytorch/pytorch:(\d+\.\d+)\.\d+-cuda\d+\.\d+-cudnn\d+-devel", inputs["image"])
    elsewhere = dict(re.findall(r"(torch|triton)==(\d+\.\d+)", inputs["cpu_packages"]))
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    brought = dict(re.findall(r"torch (\d+\.\d+) brings Triton (\d+\.\d+)", page))

    assert elsewhere == {"torch": image[1], "triton": brought[image[1]]}
    assert set(brought) >= {"2.13", "2.14", "2.15"}


def test_nothing_that_a_merge_request_could_write_is_cached():
    assert not any("cache" in job for job in PIPELINE.values() if isinstance(job, dict))


def test_the_history_is_there_to_find_the_base():
    assert PIPELINE["variables"]["GIT_DEPTH"] == 0


def test_make_help_lists_every_target():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    done = subprocess.run(["make", "help"], cwd=ROOT, env=outside(), capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in done.stdout.splitlines()} == targets


@pytest.fixture
def bare(tmp_path):
    """Runs .ci/run's copy on a machine that has only make, git and Python; returns what was made."""
    folder, programs = tmp_path / "clone", tmp_path / "bin"
    for path in (folder / ".ci", programs):
        path.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    for name in ("bash", "dirname", "id", "mktemp", "rm", "git", "python3"):
        (programs / name).symlink_to(shutil.which(name))
    log = tmp_path / "made"
    (programs / "make").write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    (programs / "make").chmod(0o755)

    def run(*targets: str, **others: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
        for name, does in others.items():
            (programs / name.replace("_", "-")).write_text(f"#!/bin/sh\n{does}\n")
            (programs / name.replace("_", "-")).chmod(0o755)
        command = [str(folder / ".ci" / "run"), *targets]
        environment = {"PATH": str(programs), "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return log.read_text().splitlines() if log.exists() else [], done

    return run


def test_the_projects_own_check_lints_builds_the_site_and_tests_on_a_bare_machine(bare):
    made, done = bare()

    assert (made, done.returncode) == (EVERYTHING, 0), done.stderr
    said = done.stderr.replace(" python3-dev", "")  # which some Pythons bring
    assert said.splitlines()[0].startswith("Not here: chromium g++ rsync nodejs npm;")
    assert "Not here: gitlab-ci-local; the tests that need it skip." in done.stderr


def test_the_projects_own_check_makes_the_targets_that_are_named(bare):
    assert bare("test")[0] == ["test"]


def test_packages_that_cannot_be_had_stop_nothing(bare):
    made, done = bare(id="echo 0", apt_get="exit 100", npm="exit 1")

    assert (made, done.returncode) == (EVERYTHING, 0), done.stderr
    assert "Not here: chromium g++ rsync;" in done.stderr.replace(" python3-dev", "")


def test_a_gitlab_ci_local_that_is_brought_along_is_found_by_the_tests(bare, tmp_path):
    does = 'mkdir -p "$3/node_modules/.bin"; : > "$3/node_modules/.bin/gitlab-ci-local"'
    made, done = bare(npm=does.replace("mkdir", shutil.which("mkdir")), make=f'echo "$PATH" > {tmp_path}/made')

    assert done.returncode == 0, done.stderr
    assert made[0].split(":")[0].endswith("/node_modules/.bin")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp.")], "it cleans up behind itself"


def set_up(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHON": python, "VENV": str(folder / "venv")}
    return subprocess.run(["sh", SETUP], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def stand_in(folder: Path, refuses: str) -> str:
    """An interpreter that fails checks that mention a word."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\ncase "$*" in *"{refuses}"*) exit 1;; *--version*) echo Python 3.9.2;; esac\n')
    path.chmod(0o755)
    return str(path)


def test_a_missing_interpreter_is_one_clear_sentence(tmp_path):
    done = set_up(tmp_path, "no-such-python")

    assert done.returncode == 1
    assert done.stderr == (
        "no-such-python was not found: install Python 3.11 or newer (Debian: apt install python3), "
        "or name one with PYTHON=.\n"
    )


def test_an_old_interpreter_is_one_clear_sentence(tmp_path):
    python = stand_in(tmp_path, "version_info")

    done = set_up(tmp_path, python)
    assert done.returncode == 1
    assert done.stderr == (
        f"{python} is Python 3.9.2, and perfci needs 3.11 or newer: install one, or name one with PYTHON=.\n"
    )


def test_a_missing_venv_module_names_debians_package(tmp_path):
    done = set_up(tmp_path, stand_in(tmp_path, "ensurepip"))

    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def outside() -> dict[str, str]:
    """The environment without the variables that an outer make, which may run these tests, sets for its children."""
    return {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}


def make_check(folder: Path, status: int) -> subprocess.CompletedProcess[str]:
    """`make check` with everything set up and perfci ending with a status."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    program = folder / ".venv" / "bin" / "perfci"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "$@"\nexit {status}\n')
    program.chmod(0o755)
    (folder / ".venv" / ".ready").touch()
    command = ["make", "check", "OP=softmax"]
    return subprocess.run(command, cwd=folder, env=outside(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("status", [0, 2, 3])
def test_make_check_ends_by_saying_how_to_go_on_even_when_it_fails(tmp_path, status):
    done = make_check(tmp_path, status)

    assert done.stdout.splitlines() == [
        "check --op softmax",
        "To go on: source .venv/bin/activate, then perfci --help or perfci check --op softmax",
    ]
    assert (done.returncode == 0) == (status == 0)
    assert status == 0 or f"Error {status}" in done.stderr


def test_pre_commit_runs_what_make_lint_runs():
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]

    tools = {hook["entry"].removeprefix(".venv/bin/").partition(" --force")[0] for hook in local["hooks"]}
    assert {line.strip().removeprefix("@$(BIN)/").removesuffix(" .") for line in lint.splitlines()} == tools


def test_the_tools_that_decide_whether_a_change_is_clean_have_one_version():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pinned = {re.split("[=~<>]=?|\\[", line)[0]: line for line in extras["dev"]}

    assert all("==" in pinned[tool] for tool in ("ruff", "mypy", "import-linter"))
    loose = {name for name, line in pinned.items() if "==" not in line and "~=" not in line and "<" not in line}
    assert loose == {"grafana-foundation-sdk", "setuptools", "types-jsonschema", "types-PyYAML"}


def test_the_changelog_and_the_docs_name_the_version():
    assert f"\n## [{VERSION}] - 20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pages = [
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/zh").glob("*.md"),
    ]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    assert {tag for text in texts for tag in re.findall(r"perfci[\w./]*@v(\d[\w.]*)", text)} == {VERSION}
