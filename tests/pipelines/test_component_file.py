"""What the component's file promises, read off the file itself; its scripts run with stand-ins for the programs."""

import json
import os
import re
import subprocess
import sys
from typing import get_args

import pytest
import yaml

from perfci.cli.options import DeviceKind
from perfci.core.wording import LANGUAGES
from perfci.extensions.setup import hosts
from tests.pipelines.conftest import COMPONENT, ROOT

INPUTS = hosts.list_inputs()


def extended(values):
    """The jobs with what they extend, as GitLab merges it: entries of hashes one by one, all else as a whole."""
    every = yaml.safe_load(hosts.fill_jobs(values))

    def merged(name):
        blocks = {}
        for part in [*map(merged, as_list(every[name].get("extends", []))), every[name]]:
            blocks |= {
                key: {**blocks.get(key, {}), **new} if isinstance(new, dict) else new for key, new in part.items()
            }
        return blocks

    return {name: merged(name) for name in every if not name.startswith(".")}


def as_list(value):
    return value if isinstance(value, list) else [value]


JOBS = extended({})
BASE = yaml.safe_load(hosts.fill_jobs({}))[".perfci"]
LOCKED = (ROOT / "perfci" / "gitlab" / "requirements.txt").read_text()
WITH_TOKEN = {"perfci-note", "perfci-propose"}

HARMLESS = {
    "CI_API_V4_URL", "CI_DEFAULT_BRANCH", "CI_JOB_TOKEN", "CI_JOB_URL", "CI_NODE_INDEX", "CI_NODE_TOTAL",
    "CI_PIPELINE_SOURCE", "CI_PROJECT_ID",
}  # fmt: skip
"""Of GitLab's variables those whose text no author of a merge request chooses."""


SCRIPTS = {"before": "\n".join(BASE["before_script"])} | {name: "\n".join(job["script"]) for name, job in JOBS.items()}


HEADER = COMPONENT.read_text().partition("\n---\n")[0]
FILLED = hosts.fill_jobs({})
OTHERWISE = hosts.fill_jobs({"suffix": "-h200", "device": "fake", "pipelines": "branches", "shards": 4, "strict": True})


@pytest.mark.parametrize("text", [HEADER, FILLED, OTHERWISE], ids=["header", "filled", "otherwise"])
def test_it_fits_gitlabs_schema(tmp_path, text):
    path = tmp_path / ".gitlab-ci.yml"
    path.write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_input_is_used_described_and_has_a_default_that_it_allows():
    body = COMPONENT.read_text().partition("\n---\n")[2]

    assert set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", body)) == INPUTS.keys()
    for name, given in INPUTS.items():
        assert given["description"].endswith(".") or ";" in given["description"] or "," in given["description"], name
        assert given["default"] in given.get("options", [given["default"]])
        if "regex" in given:
            assert re.search(given["regex"], given["default"])


def test_texts_stand_in_quotes_and_cannot_leave_them():
    """GitLab puts them into the file's text: what could end a quoted text must not be in them."""
    free = {name for name, it in INPUTS.items() if it.get("type", "string") == "string" and "options" not in it}
    for name in free:
        pattern = INPUTS[name]["regex"]
        assert not any(re.search(pattern, f"a{letter}b") for letter in '"\\'), name
    body = COMPONENT.read_text().partition("\n---\n")[2]
    for line in body.splitlines():
        bare = re.sub(r'"[^"]*"', "", line)
        names = set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", bare))
        assert names <= {"suffix", "pipelines", "ranks", "tags", "shards"}, line


def test_devices_and_languages_are_those_of_the_commands():
    assert set(INPUTS["device"]["options"]) == set(get_args(DeviceKind))
    assert re.fullmatch(INPUTS["language"]["regex"], "")
    assert all(re.fullmatch(INPUTS["language"]["regex"], language) for language in LANGUAGES)


def test_no_text_that_an_author_chooses_reaches_a_job():
    text = COMPONENT.read_text().partition("\n---\n")[2]
    lines = [line for line in text.splitlines() if not re.match(r"\s*(- if:|resource_group:|#)", line)]

    assert set(re.findall(r"\$\{?(CI_\w+)", "\n".join(lines))) <= HARMLESS


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_variable_in_a_script_is_quoted(script):
    """All but the packages, which are split at spaces with file names left alone."""
    code = re.sub(r"(^|\s)#.*$", "", script, flags=re.MULTILINE)
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", '""', code)

    assert "$[[" not in script
    assert re.findall(r"\$[\w{@*#?]+", bare) in ([], ["$PERFCI_PACKAGES"])
    assert "eval" not in bare


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_script_parses(shell, script):
    assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0


def test_a_token_comes_to_few_jobs_which_run_nothing_of_the_merge_request():
    assert {name for name, job in JOBS.items() if "environment" in job} == WITH_TOKEN
    for job in (JOBS[name] for name in WITH_TOKEN):
        (script,) = job["script"]
        assert job["environment"]["action"] == "access"
        assert job["variables"]["GIT_STRATEGY"] == "clone"
        assert job["variables"]["PYTHONNOUSERSITE"] == "1"
        assert 'cd "$(mktemp -d)"' in script
        assert script.startswith("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.bareRepository ")
        called = [line.split()[:4] for line in script.splitlines() if " perfci " in line]
        assert called and all(words == ["python3", "-I", "-m", "perfci"] for words in called)
    assert not any("PERFCI_GITLAB_TOKEN" in script for script in SCRIPTS.values())


def test_no_job_sets_variables_of_another():
    """LD_PRELOAD, BASH_ENV and their like would come with them, from a file that a merge request may bring along."""
    assert not any("dotenv" in job.get("artifacts", {}).get("reports", {}) for job in JOBS.values())


def test_nothing_is_cached_and_nothing_but_tags_is_inherited():
    assert not any("cache" in job for job in (BASE, *JOBS.values()))
    assert BASE["inherit"] == {"default": ["tags"]}


def test_merge_alone_decides_and_runs_whatever_came_before():
    merge = JOBS["perfci-merge"]

    assert (merge["when"], merge["allow_failure"]) == ("always", {"exit_codes": [3]})
    assert merge["artifacts"]["when"] == "always" and merge["artifacts"]["expose_as"] == "Kernel report"
    assert {"junit", "metrics"} <= merge["artifacts"]["reports"].keys()
    assert "allow_failure" not in JOBS["perfci-check"]
    assert JOBS["perfci-note"]["allow_failure"] is True


def test_chains_soak_and_thorough_run_when_all_is_timed_whatever_came_of_it_and_hold_no_baseline_up():
    timed = {"perfci-again", "perfci-creep"}

    for name in ("perfci-chain", "perfci-soak", "perfci-thorough"):
        assert (set(JOBS[name]["needs"]), JOBS[name]["when"]) == (timed, "always")
        assert not any(name in job["needs"] for job in JOBS.values())


def test_every_job_ends_and_no_cause_is_left_out():
    """Jobs that need others are in one pipeline with them: what is needed is there wherever the job is."""
    for name, job in JOBS.items():
        assert job["timeout"] and "rules" in job, name
        assert all(needed in JOBS for needed in job["needs"] if isinstance(needed, str))
    # Of a job that a pipeline may lack no one waits.
    (lacking,) = (need for job in JOBS.values() for need in job["needs"] if isinstance(need, dict))
    assert lacking == {"job": "perfci-confirm", "optional": True} and JOBS["perfci-confirm"]["allow_failure"] is True
    nightly = {name for name, job in JOBS.items() if any("schedule" in rule.get("if", "") for rule in job["rules"])}
    on_device = {"perfci-again", "perfci-creep", "perfci-chain", "perfci-soak", "perfci-thorough"}
    assert nightly == {*on_device, "perfci-accept", "perfci-propose"}


# --- the scripts, with stand-ins --------------------------------------------------------------------------------------


class Shell:
    """Runs a job's script in an empty folder; each program there records its arguments and ends as planned."""

    def __init__(self, folder):
        self._folder, self._log = folder, folder / "calls"
        self.work = folder / "work"
        self.work.mkdir()

    def program(self, name, does="exit 0"):
        path = self._folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nprintf "%s\\037" {name} "$@" >> "{self._log}"; echo >> "{self._log}"\n{does}\n')
        path.chmod(0o755)

    def run(self, script, *, shell="sh", **variables):
        """Arguments of all calls, and the exit code. `sh -e`, as runners have it."""
        self._log.write_text("")
        environment = {"PATH": f"{self._folder / 'bin'}:/usr/bin:/bin", **variables}
        done = subprocess.run(
            [shell, "-ec", script], cwd=self.work, env=environment, capture_output=True, text=True, check=False
        )
        calls = [line.split("\037")[:-1] for line in self._log.read_text().splitlines()]
        return calls, done


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    made.program("perfci")
    made.program("curl", "cat >/dev/null; exit 22")
    return made


def job(name, **values):
    """A job's script and its variables, with GitLab's own."""
    job = extended(values)[name]
    gitlab = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_JOB_TOKEN": "secret", "CI_JOB_URL": "https://x/-/jobs/1"}
    return "\n".join(job["script"]), {**gitlab, **job["variables"]}


@pytest.mark.parametrize(
    ("device", "given", "found"), [("npu", "", "/cann"), ("npu", "/own", "/own"), ("cuda", "", "")]
)
def test_on_an_npu_the_environment_of_cann_is_set_where_the_image_does_not(shell, tmp_path, device, given, found):
    script = next(step for step in BASE["before_script"] if "set_env.sh" in step)
    toolkit = tmp_path / "ascend-toolkit"
    toolkit.mkdir()
    (toolkit / "set_env.sh").write_text("export ASCEND_HOME_PATH=/cann\nfalse\n")
    script = script.replace("/usr/local/Ascend", str(tmp_path)) + 'perfci "$ASCEND_HOME_PATH"\n'

    calls, done = shell.run(script, PERFCI_DEVICE=device, ASCEND_HOME_PATH=given)

    assert (calls, done.returncode) == ([["perfci", found]], 0), done.stderr


def test_the_jobs_on_an_npu_run_on_its_runners_with_what_the_image_brings():
    jobs = extended({"device": "npu", "tags": ["npu"], "image": "cann", "packages": "pybind11"})

    on_device = {name for name, job in jobs.items() if job.get("tags") == ["npu"]}
    assert on_device == {
        "perfci-check",
        "perfci-confirm",
        "perfci-again",
        "perfci-creep",
        "perfci-chain",
        "perfci-soak",
        "perfci-thorough",
    }
    for name in on_device:
        assert (jobs[name]["image"], jobs[name]["variables"]["PERFCI_PACKAGES"]) == ("cann", "pybind11")
        assert jobs[name]["variables"]["PERFCI_DEVICE"] == "npu"


@pytest.mark.parametrize(("where", "device", "tags"), [("device", "cuda", ["gpu"]), ("cpu", "cpu", None)])
def test_groups_run_on_the_device_or_on_a_cpu_where_the_input_says_so(shell, where, device, tags):
    job = extended({"ranks": where})["perfci-ranks"]
    calls, _ = shell.run(job["script"][0], **job["variables"])

    assert calls == [["perfci", "ranks", "--project", ".", "--device", device]]
    assert (job.get("tags"), job["rules"]) == (tags, JOBS["perfci-static"]["rules"])
    assert job["allow_failure"] == {"exit_codes": [3]}
    assert JOBS["perfci-ranks"]["rules"] == [{"when": "never"}]


@pytest.mark.parametrize("path", ["reports", "a b/$(touch pwned)`touch pwned`/*"])
def test_a_plan_without_an_earlier_run_is_made_all_the_same(shell, path):
    script, variables = job("perfci-plan", shards=4, budget=0.5)

    calls, done = shell.run(script, **{**variables, "PERFCI_REPORTS": path, "PERFCI_PROJECT": path})

    options = ["--project", path, "--device", "cuda", "--shards", "4", "--budget", "0.5", "--out", f"{path}/plan.json"]
    assert calls[-1] == ["perfci", "ci", "plan", *options]
    assert done.returncode == 0
    assert not list(shell.work.rglob("pwned"))
    assert "secret" not in json.dumps(calls), "a command line is seen by all processes of a machine"


def test_a_plan_takes_the_times_of_the_last_run_and_does_without_where_they_are_no_use(shell):
    shell.program("curl", "cat >/dev/null; exit 0")
    script, variables = job("perfci-plan")

    calls, _ = shell.run(script, **variables)
    assert calls[-1][-2:] == ["--balance", "reports/last.json"] and len(calls) == 2

    shell.program("perfci", 'case "$*" in *--balance*) exit 1;; esac')
    calls, done = shell.run(script, **variables)
    assert "--balance" not in calls[-1] and done.returncode == 0

    shell.program("perfci", "exit 1")
    assert shell.run(script, **variables)[1].returncode == 1


def test_nightly_everything_is_planned(shell):
    script, variables = job("perfci-plan")

    calls, _ = shell.run(script, **{**variables, "CI_PIPELINE_SOURCE": "schedule"})

    assert calls[-1][-1] == "--all"


@pytest.mark.parametrize(("strict", "html"), [(False, False), (True, True)])
def test_merge_takes_its_options_and_says_where_the_report_will_be(shell, strict, html):
    script, variables = job("perfci-merge", strict=strict, html=html)
    shell.program("perfci", "exit 2")

    calls, done = shell.run(
        script, **{**variables, "PERFCI_STRICT": str(strict).lower(), "PERFCI_HTML": str(html).lower()}
    )

    options = ["reports/shards", "--project", ".", "--device", "cuda", "--plan", "reports/plan.json"]
    assert calls == [["perfci", "ci", "merge", *options, *["--html"] * html, *["--strict"] * strict]]
    assert done.returncode == 2
    page = "report.html" if html else "report.md"
    told = f"https://x/-/jobs/1/artifacts/file/reports/{page}\n"
    assert (shell.work / "reports" / "address.txt").read_text() == told


def test_beside_a_token_git_takes_no_configuration_from_a_folder_that_poses_as_a_repository(tmp_path):
    """A project in its folder: its committed files can look to git like a bare repository."""
    version = tuple(map(int, re.findall(r"\d+", subprocess.check_output(["git", "version"], text=True))[:2]))
    if version < (2, 38):
        pytest.skip("git knows no safe.bareRepository before 2.38")
    folder, owned = tmp_path / "ops", tmp_path / "owned"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    for key, value in (("bare", "false"), ("worktree", str(folder)), ("fsmonitor", f"touch {owned}; false")):
        subprocess.run(["git", "-C", folder, "config", f"core.{key}", value], check=True)
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def owned_by(script):
        owned.unlink(missing_ok=True)
        subprocess.run(["sh", "-c", f"{script}\ngit -C ops status"], cwd=tmp_path, env=environment, check=False)
        return owned.exists()

    assert owned_by("")
    assert not any(owned_by(SCRIPTS[name].splitlines()[0]) for name in WITH_TOKEN)


@pytest.mark.parametrize("address", [None, "https://x/-/jobs/1/artifacts/file/reports/report.html", "$(touch pwned)\n"])
def test_the_note_is_told_where_the_report_is_and_works_in_an_empty_folder(shell, address):
    script, variables = job("perfci-note", suffix="")
    (shell.work / "reports").mkdir()
    if address:
        (shell.work / "reports" / "address.txt").write_text(address)
    shell.program("python3", 'ls -A; echo "<$PERFCI_REPORT_URL>"')

    calls, done = shell.run(script, **variables)

    options = [f"{shell.work}/reports", "--project", f"{shell.work}/.", "--name", "check"]
    assert calls == [["python3", "-I", "-m", "perfci", "ci", "note", *options]]
    assert done.stdout == f"<{(address or '').strip()}>\n"
    assert not (shell.work / "pwned").exists()


def test_cases_that_are_refused_do_not_stop_the_night_and_a_failure_does(shell):
    script, variables = job("perfci-accept")
    shell.program("git")
    shell.program("perfci", '[ "$1" = thresholds ] || exit 2')

    calls, done = shell.run(script, **variables)
    runs = [call[2] for call in calls if call[:2] == ["perfci", "accept"]]
    assert (runs, done.returncode) == (["reports", "reports/again"], 0), done.stderr
    last = [call for call in calls if call[0] == "perfci"][-1]
    assert last == ["perfci", "thresholds", "tighten", "--write", "--project", "."]

    shell.program("perfci", "exit 1")
    assert shell.run(script, **variables)[1].returncode == 1


def test_a_run_that_lies_elsewhere_is_told(shell):
    script, variables = job("perfci-check")

    _, done = shell.run(script, **variables, CI_NODE_INDEX="1", CI_NODE_TOTAL="1")

    assert done.returncode == 1
    assert "set the input reports" in done.stdout


def test_targets_and_strictness_reach_static(shell):
    script, variables = job("perfci-static", targets="sm_80,sm_90", strict=True)

    calls, _ = shell.run(script, **variables)

    assert calls == [["perfci", "static", "--project", ".", "--target", "sm_80,sm_90", "--strict"]]


@pytest.mark.parametrize("name", ["sh", "bash"])
@pytest.mark.parametrize("spec", ["perfci @ git+https://example.org/p.git@v1; touch pwned", "./tools/perfci"])
def test_perfci_is_installed_outside_of_the_work_tree_and_nothing_of_that_is_imported(shell, name, spec):
    """Neither a venv.py, nor a folder with a name that is what pip is asked for, unless that is a path."""
    site = shell.work.parent / "site"
    site.mkdir()
    shell.program(
        "python3",
        f'case "$3" in venv) ;; *purelib*) echo "{site}"; exit;; *) exit;; esac; '
        'mkdir -p "$5/bin"; ln -s "$0" "$5/bin/python3"; '
        'printf "PATH=%s/bin:\\$PATH\\n" "$5" > "$5/bin/activate"',
    )
    shell.program("pip", "pwd")
    (shell.work / "b*").touch()
    temporary = shell.work.parent / "temporary"
    temporary.mkdir()

    calls, done = shell.run(
        f"{SCRIPTS['before']}\npwd",
        shell=name,
        PERFCI=spec,
        PERFCI_PACKAGES="torch==2.13.0+cpu b* triton>=3",
        TMPDIR=str(temporary),
    )

    assert done.returncode == 0, done.stderr
    _, venv, _, _, pip = calls
    assert (site / "outer.pth").read_text() == f"import site; site.addsitedir('{site}')\n"
    assert venv[:4] == ["python3", "-I", "-m", "venv"]
    assert pip[-4:] == [spec, "torch==2.13.0+cpu", "b*", "triton>=3"]
    for_pip, after = done.stdout.split()
    assert after == str(shell.work)
    assert for_pip == (after if spec.startswith(".") else venv[-1])
    assert list(temporary.iterdir()) == [], "it cleans up behind itself"


def test_beside_a_token_everything_is_installed_by_its_digest(shell):
    """But perfci itself, which the input install pins."""
    script = "\n".join(JOBS["perfci-note"]["before_script"])
    assert script == "\n".join(JOBS["perfci-propose"]["before_script"]) != SCRIPTS["before"]
    package = ROOT / "perfci"
    shell.program(
        "python3",
        f'case "$3" in venv) ;; *ensurepip) exit;; *) echo {package}; exit;; esac; '
        'mkdir -p "$4/bin"; printf "PATH=%s/bin:\\$PATH\\n" "$4" > "$4/bin/activate"',
    )
    shell.program("pip", 'for last; do :; done; case "$last" in *.txt) cat "$last";; esac')

    calls, done = shell.run(script, PERFCI="perfci @ git+https://example.org/p.git@v1", PERFCI_PACKAGES="x")

    assert done.returncode == 0, done.stderr
    _, venv, builder, perfci, _, locked = calls
    assert venv[:4] == ["python3", "-I", "-m", "venv"]
    assert perfci[-3:] == ["--no-deps", "--no-build-isolation", "perfci @ git+https://example.org/p.git@v1"]
    for call in (builder, locked):
        assert call[4:7] == ["--require-hashes", "--only-binary", ":all:"]
    pinned = re.findall(r"setuptools==\S+|sha256:\w+", done.stdout.splitlines()[0])
    assert len(pinned) > 1
    assert all(pin in LOCKED for pin in pinned), "perfci is built with the setuptools of the list"


@pytest.mark.parametrize("job", ["perfci-check", "perfci-note"])
@pytest.mark.parametrize(("perfci", "lacks", "installs"), [("x", "ensurepip", 1), ("x", "nothing", 0), ("", "all", 0)])
def test_what_makes_a_venv_is_installed_where_the_image_lacks_it(shell, job, perfci, lacks, installs):
    """Ubuntu's Python lacks ensurepip, and images of torch 2.10 and newer have Ubuntu's."""
    (script,) = (step for step in JOBS[job]["before_script"] if "ensurepip" in step)
    shell.program("git")
    shell.program("python3", f'case "$*" in *{lacks}*) exit 1;; esac')
    shell.program("apt-get")

    calls, done = shell.run(script, PERFCI=perfci)

    assert done.returncode == 0, done.stderr
    assert [call[-2:] for call in calls if call[:2] == ["apt-get", "install"]] == [["git", "python3-venv"]] * installs


def test_the_list_of_a_job_with_a_token_is_small_and_has_digests():
    pins = re.findall(r"^([\w.-]+)==([\w.]+)(.*?)(?=^\w|\Z)", LOCKED, re.MULTILINE | re.DOTALL)

    assert all("--hash=sha256:" in rest for _, _, rest in pins)
    names = {name for name, _, _ in pins}
    assert {"msgspec", "numpy", "scipy", "pyyaml"} <= names
    assert names.isdisjoint({"torch", "triton", "matplotlib", "pillow", "jinja2", "pyarrow"})


LISTED_ALONE = """
import re, sys
from importlib import metadata
from importlib.machinery import PathFinder

listed = {re.sub("[-_.]+", "-", name).lower() for name in sys.argv[1].split()}
lacking = {
    package
    for package, names in metadata.packages_distributions().items()
    if package != "perfci" and listed.isdisjoint(re.sub("[-_.]+", "-", name).lower() for name in names)
}

class Listed(PathFinder):
    @classmethod
    def find_spec(cls, name, *more):
        if name.partition(".")[0] in lacking:
            raise ModuleNotFoundError(f"{name} is not on the list")

sys.meta_path.insert(0, Listed)
import perfci.extensions.history.propose
from perfci.cli.main import run
sys.exit(run(["ci", "note", sys.argv[2], "--dry-run"]))
"""


def test_a_job_with_a_token_needs_nothing_that_is_not_on_its_list():
    names = re.findall(r"^([\w.-]+)==", LOCKED, re.MULTILINE)
    stored = ROOT / "tests/stored/format-1/reports/run.json"

    done = subprocess.run(
        [sys.executable, "-c", LISTED_ALONE, " ".join(names), stored], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert (done.returncode, "<!-- perfci:note:check -->" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("has_perfci", [False, True])
def test_without_a_word_on_what_to_install_the_image_has_to_bring_perfci(shell, has_perfci, tmp_path):
    if not has_perfci:
        (tmp_path / "bin" / "perfci").unlink()

    calls, done = shell.run("\n".join(BASE["before_script"]), PERFCI="", PERFCI_PACKAGES="x")

    assert (calls, done.returncode) == ([], 0 if has_perfci else 1)
    assert has_perfci or "Set PERFCI" in done.stdout


def test_each_night_every_op_is_checked_beyond_its_suites(shell):
    script, variables = job("perfci-thorough")

    calls, done = shell.run(script, **{**variables, "PERFCI_PROJECT": "a b"})

    assert done.returncode == 0, done.stderr
    assert calls == [[
        "perfci", "check", "--project", "a b", "--device", "cuda", "--suite", "accuracy", "--thorough", "--sanitize",
    ]]  # fmt: skip
