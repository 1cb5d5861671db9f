"""A merge request of an author who means harm: what its text, files and workers may do to readers of the results.

One run of a hostile project on the fake device is shared by all tests that look at what it left.
"""

import gzip
import hashlib
import importlib.util
import json
import os
import py_compile
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest
import yaml

from perfci.cli.demo import write_project
from perfci.ops.fingerprint.tree import Tree
from perfci.store import signature
from perfci.worker.confine import landlock_version
from tests.flow.conftest import QUICK, write_quick
from tests.git_repositories import commit_all, git
from tests.program import COMMAND, Said, call

TESTS = Path(__file__).parent
CANARY = "c4n4ry-Secret_Value.9"

STRINGS = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "[x](http://evil.example/x) ![y](http://evil.example/y.png)",
    "| a | `b` ``` |",
    "@all @group/sub",
    "#1 !1 $1 &1 ~bug %1 [label]",
    "/close",
    "::include{file=x}",
    ":tada: deadbeef",
    "::set-output name=x::y",
    "::add-mask::x",
    "::error file=a::x",
    "::stop-commands::x",
    "##[error]x",
    "##vso[task.setvariable variable=x]y",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http://evil.example\x07l\x1b]8;;\x07",
    "\u202egnp.exe\u200b\u2066",
    "!!python/object/apply:os.system ['x']",
    "&a [*a]: - ? {x: y}",
    "x' $(touch pwned) `touch pwned` ; touch pwned",
    "a\nb\r\nc\u2028d\n/close\n::error::z",
    "nul\x00x",
    "\ufffe\x0b\x0c",
    "{x} {0.__class__} %s {{ 7*7 }} {% raw %}",
    "]]>&#64;all&lt;",
    "../../etc/passwd",
    "'\"\\",
    "-->",
    "[[ATTACHMENT|/etc/passwd]]",
    "section_start:1:x\r\x1b[0K",
)
"""The text in case ids, exceptions, output and messages of the ops."""

TAGS = tuple("".join(pair) for pair in zip(STRINGS[::3], STRINGS[1::3], STRINGS[2::3], strict=True))
"""The same in the ids of fewer cases, each of which takes its time."""

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
WORKFLOW = re.compile(r"(?m)^\s*::|##\[|##vso\[")
"""What a GitHub runner, or one of Azure's, obeys in the output of a step."""

RAISES = """
import os, stat, sys
from pathlib import Path
from perfci.device import fake

STRINGS = {strings!r}
for text in STRINGS:
    print(text)
    print(text, file=sys.stderr)
sys.stdout.flush()
os.write(1, b"x" * (3 << 20) + b"\\n")


class Evil(Exception):
    pass


Evil.__name__ = "Ev<script>\\x1b[31m::error::@all"


def pipes():
    for number in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                yield number
        except OSError:
            pass


def forge():
    import json
    for text in STRINGS:
        reason = {{"kind": text, "facts": {{"why": text}}}}
        bodies = {{
            "Step": {{"stage": text, "op": text, "case": text, "done": 0, "total": 3}},
            "Waiting": {{"holder": text}},
            "AccuracyCase": {{"case": text, "inputs": "normal", "failure": reason}},
            "PlannedOp": {{"op": text, "performance": [text]}},
            "Gone": {{"x": text}},
        }}
        for kind, body in bodies.items():
            line = json.dumps({{"kind": kind, "body": body}}, separators=(",", ":")).encode()
            for number in pipes():
                os.write(number, b"\\n" + line + b"\\n")
    for number in pipes():
        os.write(number, b'\\n{{"kind":"Step","body":' + b"[" * 100_000 + b"\\n")
        os.write(number, b"\\n\\xff\\xfe no JSON\\n")


def spoil():
    reports = Path(__file__).parents[2] / "reports"
    (reports / "report.md").write_text("forged")
    for name in ("junit.xml", "metrics.txt", "report.html", "changes-scale.png"):
        (reports / name).symlink_to(OUTSIDE)


OUTSIDE = {outside!r}
forge()


def relu(x):
    fake.work(1.0)
    if not (Path(__file__).parents[2] / "reports" / "junit.xml").is_symlink():
        spoil()
        forge()
    raise Evil("\\n".join(STRINGS) + "A" * 2_000_000)
"""

DIES = """
import os
from perfci.device import fake


def row_sum(x):
    os.write(2, {text!r}.encode())
    os._exit(7)
"""
LAST_WORDS = "\x1b[31m::error::<script>@all\u202e\n/close\n##[error]x\n"


SCRIPT = Path(sys.executable).with_name("perfci")
PROGRAM = [str(SCRIPT)] if SCRIPT.is_file() else [sys.executable, "-P", "-m", "perfci"]
"""What jobs call; `python -m perfci` without -P looks into the current folder first, as Python does."""


class Flow:
    """What one hostile merge request left: output by command, and files."""

    def __init__(self, folder: Path, *, pictures: bool = False) -> None:
        self.folder = folder
        self.pictures = pictures
        self.root = folder / "project"
        self.outside = folder / "outside"
        self.reports = self.root / "reports"
        self.said: dict[str, Said] = {}
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CI", "GIT", "PERFCI"))},
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CEILING_DIRECTORIES": str(folder),
            **{f"GIT_{role}_{what}": "@all <b>" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "PERFCI_GITLAB_TOKEN": CANARY,
            "CI_JOB_TOKEN": CANARY,
            "AWS_SECRET_ACCESS_KEY": CANARY,
            "TORCH_INDEX": f"https://user:{CANARY}@index.example/simple",
            "TRITON_SERVER": f"https://{CANARY}@cache.example",
            "TRITON_WORDS": STRINGS[15] + STRINGS[0],
            "CI_MERGE_REQUEST_TITLE": "/close @all",
            "GITHUB_ACTIONS": "true",
            "PERFCI_WRITABLE": str(self.root),  # what kernels do if the machine cannot keep them from it
        }

    def perfci(self, name: str, *arguments: str, **more: str) -> str:
        """Run a command in this process; its standard output."""
        with mock.patch.dict(os.environ, {**self.variables, **more}, clear=True):
            said = call(name, *arguments, "--project", str(self.root), pictures=self.pictures)
        label = arguments[0] if name == "ci" else name
        self.said[label if label not in self.said else f"{label} {len(self.said)}"] = said
        return said.out

    def posted(self, run: str) -> None:
        """Post the note on a server that behaves as GitLab."""
        self.server = load("gitlab_server", TESTS / "gitlab" / "gitlab_server.py").GitLab(CANARY)
        try:
            variables = {
                "CI_API_V4_URL": self.server.api,
                "CI_MERGE_REQUEST_PROJECT_ID": "7",
                "CI_MERGE_REQUEST_IID": "3",
                "NO_PROXY": "127.0.0.1",
                "GITHUB_ACTIONS": "",  # of the two servers it is GitLab's turn
            }
            self.perfci("ci", "note", run, **variables)
            wrong = {**variables, "PERFCI_GITLAB_TOKEN": f"{CANARY}x"}
            self.perfci("ci", "note", run, **wrong)
        finally:
            self.server.close()

    @property
    def files(self) -> dict[str, bytes]:
        """What perfci made, by name."""
        paths = (path for path in self.root.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}


def load(name: str, path: Path):
    """A helper module by its path."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def project(root: Path) -> None:
    write_project(root)
    (root / "pyproject.toml").write_text(QUICK)
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    for path in root.glob("kernels/*/*_accuracy.py"):
        path.write_text(path.read_text().replace("rows=[1, 7, 64], cols=[1, 31, 128]", "rows=[7], cols=[31]"))
    suite = root / "kernels" / "scale" / "scale_performance.py"
    suite.write_text(
        suite.read_text()
        .replace(
            "cases=perfci.grid(",
            f"cases=[dict(rows=256, cols=128, dtype='float32', tag=tag) for tag in {TAGS!r}] + list(perfci.grid(",
        )
        .replace('dtype=["float32"]),', 'dtype=["float32"])),')
        .replace("make_inputs=make_inputs", "make_inputs=lambda tag='', **known: make_inputs(**known)")
        .replace("lambda rows, cols, dtype:", "lambda rows, cols, dtype, tag='':")
    )


@pytest.fixture(scope="module")
def flow(tmp_path_factory):
    """A base with baselines, and a branch of somebody who means harm, checked and shown in every way there is."""
    flow = Flow(tmp_path_factory.mktemp("hostile"), pictures=True)
    root = flow.root
    flow.outside.write_text("precious")
    project(root)
    with mock.patch.dict(os.environ, flow.variables, clear=True):
        git(root, "init", "-q", "-b", "main")
        git(root, "remote", "add", "origin", f"https://gitlab-ci-token:{CANARY}@gitlab.invalid/a/b.git")
        git(root, "add", "--all")
        git(root, "commit", "-q", "-m", "base")
        git(root, "checkout", "-q", "-b", "topic/<b>@all;`x`$(y)")
        plant(flow)
        git(root, "add", "--all")
        git(root, "commit", "-q", "-m", "/close @all\n\n<script>")
    run = str(flow.reports)
    flow.perfci("check", "--device", "fake", "--seed", "7", "--budget", "0.2", "--html", "--against", "main")
    flow.perfci("compare", run, "--format", "json")
    flow.perfci("accept", run)
    flow.perfci("show", run)
    flow.perfci("show", run, "--format", "json")
    flow.perfci("list", "--device", "fake")
    flow.perfci("ci", "note", run, "--dry-run")
    flow.perfci("ci", "note", run, GITHUB_STEP_SUMMARY=str(flow.reports / "summary.md"), PERFCI_GITLAB_TOKEN="")
    flow.posted(run)
    flow.perfci(
        "ci", "plan", "--device", "fake", "--shards", "2", "--against", "main", "--out", str(flow.folder / "plan.json")
    )
    flow.perfci("init", "--owners", "@team/kernels", "--install", "perfci==1")
    return flow


def plant(flow: Flow) -> None:
    kernels = flow.root / "kernels"
    path = kernels / "scale" / "scale_triton.py"
    path.write_text(path.read_text().replace("US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 344.0"))
    (kernels / "scale" / "![x](y)@all<b>`$(id)`.py").write_text("x = 1\n")
    (kernels / "relu" / "relu_triton.py").write_text(RAISES.format(strings=STRINGS, outside=str(flow.outside)))
    (kernels / "row_sum" / "row_sum_triton.py").write_text(DIES.format(text=LAST_WORDS))


def everything(flow) -> dict[str, str]:
    """Everything that was printed, by place."""
    parts = (
        (name, where, text)
        for name, (_, *both) in flow.said.items()
        for where, text in zip(("out", "err"), both, strict=True)
    )
    return {f"{name}: {where}": text for name, where, text in parts}


def matching(texts: dict[str, str], pattern: re.Pattern[str]) -> dict[str, str]:
    return {name: match.group() for name, text in texts.items() if (match := pattern.search(text))}


# --- what is printed --------------------------------------------------------------------------------------------------


def test_what_a_merge_request_does_is_its_own_verdict_and_no_traceback(flow):
    codes = {name: code for name, (code, _, _) in flow.said.items()}

    assert [name for name, text in everything(flow).items() if "Traceback" in text] == []
    # relu writes messages as it is imported, so that it cannot be listed.
    failed = {"check": 2, "compare": 2, "list": 1, "accept": 2}
    assert {name: code for name, code in codes.items() if code} == failed
    rows = json.loads(flow.said["compare"][1])["verdicts"]
    assert {row["op"] for row in rows} == {"relu", "row_sum", "scale"}
    assert {row["verdict"] for row in rows if row["op"] == "scale" and row["suite"] == "performance"} == {"REGRESSED"}
    assert {row["verdict"] for row in rows if row["op"] != "scale"} == {"ERROR"}


def test_a_terminal_gets_no_escape_no_control_and_no_turned_text(flow):
    assert matching(everything(flow), UNSEEN) == {}


def test_a_log_holds_no_command_of_a_workflow(flow):
    assert matching(everything(flow), WORKFLOW) == {}


def test_programs_get_what_was_there(flow):
    """Escaped in JSON, not left out."""
    rows = json.loads(flow.said["compare"][1])["verdicts"]

    tags = {row["case"].partition(",tag=")[2] for row in rows if row["case"]}
    assert {tag.replace(" ", "").replace(",", ";") for tag in TAGS} <= tags


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_secret_appears_in_what_is_printed_or_written(flow):
    assert [name for name, text in everything(flow).items() if CANARY in text] == []
    assert [name for name, data in flow.files.items() if CANARY.encode() in data] == []


def test_the_token_goes_to_its_server_in_a_header_and_nowhere_else(flow):
    told = [call for call in flow.server.calls if call.headers.get("private-token") == CANARY]

    assert told
    for asked in flow.server.calls:
        others = {name: text for name, text in asked.headers.items() if name != "private-token"}
        assert CANARY not in f"{asked.path} {asked.query} {others}" and CANARY.encode() not in asked.body
    assert flow.server.notes and CANARY not in json.dumps(flow.server.notes)


def test_a_worker_starts_without_secrets_and_a_run_records_none(flow):
    recorded = json.loads(flow.files["reports/run.json"])["environment"]["variables"]

    assert "TRITON_WORDS" in recorded
    assert {"TORCH_INDEX", "TRITON_SERVER"}.isdisjoint(recorded)


# --- files that people and machines read ------------------------------------------------------------------------------


def test_the_note_and_the_summary_are_text_and_nothing_else(flow):
    reader = load("gitlab_markdown", TESTS / "gitlab" / "gitlab_markdown.py")

    (posted,) = flow.server.notes
    for note in (flow.said["note"][1], flow.files["reports/summary.md"].decode(), posted["body"]):
        assert reader.findings(note) == []
        assert reader.read(note).addresses == []
        assert not UNSEEN.search(note)


def test_the_markdown_report_has_no_html_and_links_to_its_own_pictures_alone(flow):
    from markdown_it import MarkdownIt

    text = flow.files["reports/report.md"].decode()
    flat = [
        part
        for token in MarkdownIt("commonmark").enable("table").parse(text)
        for part in (token, *(token.children or ()))
    ]
    html = " ".join(token.content for token in flat if token.type in {"html_block", "html_inline"})

    assert set(re.findall(r"<(/?\w+)", html)) <= {"details", "/details", "summary", "/summary", "a", "/a", "br"}
    assert not re.search(r"\bon\w+=|javascript:|evil", html)
    addresses = {
        str(token.attrs.get("src") or token.attrs.get("href")) for token in flat if token.type in {"image", "link_open"}
    }
    assert {address for address in addresses if not re.fullmatch(r"[\w-]+\.png|#[\w-]+", address)} == set()
    assert not UNSEEN.search(text)


def test_a_test_report_is_xml_and_names_no_attachment(flow):
    text = flow.files["reports/junit.xml"].decode()
    root = ElementTree.fromstring(text)

    assert {"relu", "row_sum", "scale"} == {suite.get("name") for suite in root}
    assert "[[ATTACHMENT" not in text
    assert not UNSEEN.search(text)
    assert len({(test.get("classname"), test.get("name")) for test in root.iter("testcase")}) == len(
        list(root.iter("testcase"))
    )


def test_every_picture_is_one(flow):
    from PIL import Image

    pictures = [name for name in flow.files if name.endswith(".png")]
    assert "reports/changes-scale.png" in pictures
    for name in pictures:
        assert not (flow.root / name).is_symlink()
        with Image.open(flow.root / name) as picture:
            assert picture.format == "PNG"


def test_the_entries_to_paste_are_yaml_that_names_their_cases_and_no_more(flow):
    rows = json.loads(flow.said["compare"][1])["verdicts"]
    suggested = {row["case"]: row["suggested"]["line"] for row in rows if row["suggested"]}

    assert len(suggested) > len(TAGS) / 2  # of the others no pattern can name the case
    for case, line in suggested.items():
        assert "\n" not in line and not UNSEEN.search(line)
        assert yaml.safe_load(f"expected:\n{line}")["expected"][0]["case"] == case
    file = flow.root / "thresholds" / "scale.yaml"
    file.write_text("\n".join(("expected:", *suggested.values(), "")))
    try:
        flow.perfci("compare", str(flow.reports), "--format", "json")
        code, out, _ = flow.said.popitem()[1]
    finally:
        file.unlink()
    assert code == 2
    assert {
        row["verdict"]
        for row in json.loads(out)["verdicts"]
        if row["case"] in suggested and row["suite"] == "performance"
    } == {"EXPECTED"}


def test_what_init_writes_holds_nothing_of_the_project_but_names_of_folders(flow):
    jobs = yaml.safe_load(flow.files[".gitlab-ci.yml"])
    owners = flow.files["CODEOWNERS"].decode()

    assert "perfci-check" in jobs
    assert set(re.findall(r"(?m)^[^#\s].*$", owners)) == {"/thresholds/ @team/kernels", "/baselines/ @team/kernels"}


def test_a_plan_holds_the_ops_of_the_project_alone_whatever_their_worker_wrote(flow):
    plan = json.loads((flow.folder / "plan.json").read_text())

    assert {op["op"] for op in plan["plan"]["ops"]} == {"relu", "row_sum", "scale"}


def test_files_elsewhere_stay_as_they_are(flow):
    assert flow.outside.read_text() == "precious"
    assert list(flow.folder.rglob("pwned")) == []
    assert flow.files["reports/report.md"] != b"forged"


browsers = load("perfci_test_browser", TESTS / "extensions" / "pictures" / "browser.py")


@pytest.mark.slow
@pytest.mark.skipif(browsers.executable() is None, reason="chromium is not installed here")
def test_the_page_runs_nothing_and_asks_nothing_of_a_network(flow, tmp_path):
    browser = browsers.Browser(tmp_path)
    try:
        browser.open(flow.reports / "report.html")
        browser.js("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        browser.js("document.querySelectorAll('button').forEach((each) => each.click())")
        title = browser.js("document.title")
        fetched = browser.js("performance.getEntriesByType('resource').map((each) => each.name)")
        loading = "script:not([src]), img, iframe, object, base, link"
        elements = browser.js(f"[...document.querySelectorAll('{loading}')].map((each) => each.outerHTML.slice(0, 80))")
        links = browser.js("[...document.querySelectorAll('a[href]')].map((each) => each.getAttribute('href'))")
        names = "[...document.querySelectorAll('*')].flatMap((each) => each.getAttributeNames())"
        handlers = browser.js(f"{names}.filter((name) => name.startsWith('on'))")
        problems = browser.problems
    finally:
        browser.close()

    assert "owned" not in title
    assert [address for address in fetched if not address.startswith("data:")] == []
    assert [element for element in elements if "evil" in element or "owned" in element] == []
    assert [link for link in links if not link.startswith("#")] == []
    assert handlers == []
    assert problems == []


# --- files that a job finds: shards, launches, links -----------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A plan with the runs of its two shards, as jobs of a merge request leave them for the job that merges."""
    flow = Flow(tmp_path_factory.mktemp("shards"))
    write_quick(flow.root)
    flow.perfci(
        "ci", "plan", "--device", "fake", "--shards", "2", "--budget", "0.05", "--out", str(flow.reports / "plan.json")
    )
    for index in (1, 2):
        flow.perfci("check", "--plan", str(flow.reports / "plan.json"), "--shard", f"{index}/2")
    assert {code for code, _, _ in flow.said.values()} == {0}
    return flow


def copied(flow: Flow, folder: Path) -> Flow:
    found = Flow(folder)
    shutil.copytree(flow.root, found.root)
    found.outside.write_text("precious")
    return found


@pytest.fixture
def given(shards, tmp_path):
    """A copy of them, in which a test may do as it likes."""
    return copied(shards, tmp_path)


def merged(flow: Flow, *arguments: str) -> tuple[int, str, str]:
    flow.perfci("ci", "merge", str(flow.reports / "shards"), "--plan", str(flow.reports / "plan.json"), *arguments)
    return list(flow.said.values())[-1]


@pytest.mark.parametrize(
    "name", ["../../../outside", "/etc/passwd", "x; touch pwned", "<b>@all", "\x1b[31m", "a" * 5000]
)
def test_a_shard_that_speaks_of_other_ops_is_refused_in_a_sentence(given, name):
    path = given.reports / "shards" / "1" / "run.json"
    run = json.loads(path.read_text())
    run["ops"][0]["op"] = name
    path.write_text(json.dumps(run))

    code, out, err = merged(given)

    assert code == 1 and err.startswith("perfci: ") and "Traceback" not in err
    assert not UNSEEN.search(out + err)
    assert given.outside.read_text() == "precious"
    assert not (given.reports / "run.json").exists()


@pytest.mark.parametrize(
    "data",
    [b'{"format": 1, "ops": ' + b"[" * 200_000, b"\x80\x04\x95.", b"", b"\xff\xfe", b'{"format": 1e999}'],
    ids=["deep", "pickle", "empty", "binary", "infinite"],
)
def test_a_shard_that_is_no_run_is_refused_in_a_sentence(given, data):
    (given.reports / "shards" / "2" / "run.json").write_bytes(data)

    code, _, err = merged(given)

    assert code == 1 and err.startswith("perfci: ") and err.count("\n") == 1


def test_launches_that_are_a_link_publish_no_other_file(given):
    secret = given.folder / "environ"
    secret.write_bytes(f"PERFCI_GITLAB_TOKEN={CANARY}\0PATH=/bin\0".encode())
    path = given.reports / "shards" / "1" / "launches.jsonl.gz"
    path.unlink()
    path.symlink_to(secret)

    merged(given)

    assert CANARY.encode() not in gzip.decompress((given.reports / "launches.jsonl.gz").read_bytes())
    assert secret.read_bytes().startswith(b"PERFCI_GITLAB_TOKEN")


def test_links_in_the_places_of_reports_leave_what_they_point_at(given):
    temporary = f".run.json.{os.getpid()}.tmp"
    for name in ("report.md", "report.html", "junit.xml", "metrics.txt", "launches.jsonl.gz", temporary):
        (given.reports / name).symlink_to(given.outside)

    code, _, _ = merged(given, "--html")

    assert given.outside.read_text() == "precious"
    assert code in {0, 2, 3}


def test_a_link_in_the_place_of_the_run_leaves_what_it_points_at(given):
    (given.reports / "run.json").symlink_to(given.outside)

    code, _, err = merged(given)

    assert given.outside.read_text() == "precious"
    assert code in {0, 2, 3} or err.startswith("perfci: ")


def test_a_link_in_the_place_of_the_lock_is_not_followed(given):
    (given.reports / ".lock").unlink(missing_ok=True)
    (given.reports / ".lock").symlink_to(given.outside)

    code, _, err = merged(given)

    assert code == 1 and err.startswith("perfci: ")
    assert given.outside.read_text() == "precious"


@pytest.fixture(scope="module")
def joined(shards, tmp_path_factory):
    """The same shards merged."""
    shards_copy = copied(shards, tmp_path_factory.mktemp("joined"))
    merged(shards_copy)
    return shards_copy


@pytest.mark.parametrize("name", [*TAGS, "/close", "", "a" * 5000])
def test_whatever_a_plan_and_its_shards_hold_is_shown_as_text(joined, tmp_path, name):
    """A job that imported ops could write all of it as it likes, one fitting the other."""
    given = copied(joined, tmp_path)
    plan, path = given.reports / "plan.json", given.reports / "run.json"
    base = {"commit": name, "how": name, "name": name, "rules": True, "changed_rules": [name], "changed_pins": [name]}
    run = renamed(json.loads(path.read_text()), "relu", name)
    run["plan"]["base"], run["created"], run["command"] = base, name, name
    path.write_text(json.dumps(run))
    forged = renamed(json.loads(plan.read_text()), "relu", name)
    forged["plan"]["base"] = base
    plan.write_text(json.dumps(forged))

    given.perfci("report", str(given.reports), "--to", "md,junit")
    shown = given.said["report"][0]
    note = given.perfci("ci", "note", str(given.reports), "--dry-run")
    refused, _, err = merged(given)

    assert (shown, refused) == (0, 1)
    assert err.startswith("perfci: ") and "Traceback" not in err
    assert matching(everything(given), UNSEEN) == matching(everything(given), WORKFLOW) == {}
    assert load("gitlab_markdown", TESTS / "gitlab" / "gitlab_markdown.py").findings(note) == []
    assert given.outside.read_text() == "precious"
    ElementTree.parse(given.reports / "junit.xml")


def renamed(tree, before: str, after: str):
    """The same with another text in the place of one."""
    if isinstance(tree, dict):
        return {renamed(key, before, after): renamed(value, before, after) for key, value in tree.items()}
    if isinstance(tree, list):
        return [renamed(item, before, after) for item in tree]
    return after if tree == before else tree


def test_a_key_of_a_note_that_could_end_its_comment_is_refused(given):
    given.perfci("ci", "note", str(given.reports / "shards" / "1"), "--dry-run", "--name", "x --> @all")

    code, out, err = given.said["note"]
    assert (code, out) == (1, "") and err.startswith("perfci: The option --name")


def test_baselines_that_are_links_are_told_by_name_and_not_by_content(given):
    secret = given.folder / "secret"
    secret.write_text(f"token: {CANARY}\n")
    folder = given.root / "baselines" / "fake-one"
    folder.mkdir(parents=True)
    (folder / "relu.json").symlink_to(secret)

    code, out, err = merged(given)

    assert code == 1 and err.startswith("perfci: ")
    assert CANARY not in out + err


def test_an_op_that_writes_without_end_into_the_pipe_of_results_costs_itself_alone(given, monkeypatch):
    from perfci.worker import answers

    monkeypatch.setattr(answers, "LONGEST", 1 << 20)
    path = given.root / "kernels" / "relu" / "relu_triton.py"
    path.write_text(
        "import os, stat\n"
        "def relu(x):\n"
        "    for number in range(3, 64):\n"
        "        try:\n"
        "            while stat.S_ISFIFO(os.fstat(number).st_mode):\n"
        "                os.write(number, b'[' * 65536)\n"
        "        except OSError:\n"
        "            pass\n"
    )

    out = given.perfci("check", "--device", "fake", "--suite", "accuracy", "--format", "json")

    rows = json.loads(out)["verdicts"]
    assert {row["verdict"] for row in rows if row["op"] == "relu"} == {"ERROR"}
    assert "without a line's end" in out
    assert {row["verdict"] for row in rows if row["op"] != "relu"} == {"PASS"}


# --- what a kernel can reach -----------------------------------------------------------------------------------------


REACHES = """
import os, pathlib

ROOT = pathlib.Path({root!r})
BASE = pathlib.Path(__file__).parents[2]
OWN = pathlib.Path(os.environ["TRITON_CACHE_DIR"]).parent
for path in (
    ROOT / "kernels" / "scale" / "scale_triton.py",
    ROOT / "thresholds" / "scale.yaml",
    ROOT / "baselines" / "new.json",
    ROOT / "reports" / "run.json",
    ROOT / "reports" / "logs" / "relu.log",
    ROOT / ".git" / "config",
    BASE / "kernels" / "scale" / "scale_triton.py",
    pathlib.Path(fake.__file__).parents[1] / "forged.py",
    OWN.parents[1] / "package" / "new.py",
    OWN.parent / "scale" / "triton" / "new",
    OWN.parent / "new",
    pathlib.Path({outside!r}),
    pathlib.Path.home() / ".perfci-was-here",
):
    try:
        with path.open("ab") as file:
            file.write(b"# forged")
        print("REACHED", path, flush=True)
    except OSError as error:
        print("refused", path, flush=True)
"""


def check_alone(flow: Flow, *arguments: str) -> str:
    """A check as on a machine that opens no folder to kernels."""
    flow.variables.pop("PERFCI_WRITABLE", None)
    return flow.perfci("check", "--device", "fake", "--seed", "7", "--budget", "0.05", *arguments)


def commit(flow: Flow, message: str) -> None:
    with mock.patch.dict(os.environ, flow.variables, clear=True):
        git(flow.root, "add", "--all", "--force")
        git(flow.root, "commit", "-q", "-m", message)


@pytest.fixture
def branch(tmp_path):
    """A project on a topic branch, with nothing changed yet."""
    flow = Flow(tmp_path)
    flow.outside.write_text("precious")
    project(flow.root)
    with mock.patch.dict(os.environ, flow.variables, clear=True):
        git(flow.root, "init", "-q", "-b", "main")
    commit(flow, "base")
    with mock.patch.dict(os.environ, flow.variables, clear=True):
        git(flow.root, "checkout", "-q", "-b", "topic")
    return flow


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_kernel_writes_neither_checkout_nor_base_nor_reports_nor_git_nor_the_judge(branch):
    path = branch.root / "kernels" / "relu" / "relu_triton.py"
    path.write_text(path.read_text() + REACHES.format(root=str(branch.root), outside=str(branch.outside)))
    commit(branch, "reach out")
    before = {name: data for name, data in branch.files.items() if not name.startswith("reports/")}
    config = (branch.root / ".git" / "config").read_bytes()

    out = check_alone(branch, "relu", "--format", "json")

    logs = {name: data.decode() for name, data in branch.files.items() if name.startswith("reports/logs/")}
    assert "refused" in logs["reports/logs/relu.log"]
    assert not [line for text in logs.values() for line in text.splitlines() if line.startswith("REACHED")]
    assert {name: data for name, data in branch.files.items() if not name.startswith("reports/")} == before
    assert (branch.root / ".git" / "config").read_bytes() == config
    assert branch.outside.read_text() == "precious"
    assert {row["verdict"] for row in json.loads(out)["verdicts"]} <= {"PASS", "NEW", "UNCHANGED"}


EDITS = """    import os, pathlib
    rules = {place} / "thresholds" / "relu.yaml"
    rules.parent.mkdir(exist_ok=True)
    rules.write_text("tau: {{0: 50 %}}\\n")
    fake.work("""


@pytest.mark.parametrize("base", [False, True], ids=["change", "base"])
def test_rules_that_a_kernel_edits_while_it_runs_judge_nothing(branch, base):
    """As on a machine that cannot keep it from writing."""
    path = branch.root / "kernels" / "relu" / "relu_triton.py"
    # The base's files lie beside the folder that is the worker's own.
    beside = "pathlib.Path(os.environ['TMPDIR']).parents[2] / 'base'"
    place = beside if base else f"pathlib.Path({str(branch.root)!r})"
    (branch.root / "thresholds").mkdir(exist_ok=True)
    (branch.root / "thresholds" / "relu.yaml").write_text("tau: {0: 1 %}\n")
    path.write_text(path.read_text().replace("320.0", "328.0").replace("    fake.work(", EDITS.format(place=place)))
    commit(branch, "an edit at run time")
    with mock.patch.dict(os.environ, branch.variables, clear=True):
        git(branch.root, "update-ref", "refs/remotes/origin/main", "main")

    variables = {"PERFCI_WRITABLE": "/", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    branch.perfci("check", "relu", "--device", "fake", "--seed", "7", "--budget", "0.05", **variables)

    code, out, err = branch.said["check"]
    assert code == 1, out
    assert "edited while kernels ran" in err


SEEKS = """

import glob, os
KEY = {first!r} + {rest!r}
for place in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/task/*/environ")]:
    try:
        with open(place, "rb") as file:
            print("READ", flush=True)
            if KEY in file.read():
                print("LEAKED", place, flush=True)
    except OSError:
        pass
print("LEAKED" if KEY.decode() in str(os.environ) else "sought", flush=True)
"""


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_kernel_cannot_read_the_key_that_its_run_is_signed_with(branch):
    """Neither from its variables, nor from those of perfci, of its shell, or of any other process."""
    key = "k3y-" + "0123456789abcdef" * 3
    path = branch.root / "kernels" / "relu" / "relu_triton.py"
    path.write_text(path.read_text() + SEEKS.format(first=key[:4].encode(), rest=key[4:].encode()))
    commit(branch, "look for the key")
    variables = {**branch.variables, "PERFCI_SIGNING_KEY": key}
    variables.pop("PERFCI_WRITABLE")

    line = shlex.join(
        [*COMMAND, "check", "relu", "--device", "fake", "--budget", "0.05", "--project", str(branch.root)]
    )
    done = subprocess.run(["sh", "-c", f"{line}; exit $?"], env=variables, capture_output=True, text=True, check=False)

    log = branch.files["reports/logs/relu.log"].decode()
    assert done.returncode == 0, done.stderr
    assert "READ" in log and "sought" in log
    assert "LEAKED" not in log
    assert key.encode() not in b"".join(branch.files.values())
    with mock.patch.dict(os.environ, variables, clear=True):
        signature.check(branch.reports)


def test_a_run_of_another_commit_becomes_no_note(branch):
    """Such as one that was committed with the change: no file can name the commit that it is part of."""
    check_alone(branch, "relu")
    (branch.root / ".gitignore").unlink()
    commit(branch, "with reports")

    branch.posted(str(branch.reports))

    code, out, err = branch.said["note"]
    assert (code, out) == (1, "") and "this pipeline is of" in err
    assert branch.server.notes == []
    assert branch.perfci("ci", "note", str(branch.reports), GITHUB_STEP_SUMMARY=str(branch.outside)) == ""
    assert branch.outside.read_text() == "precious"


def test_a_shard_that_is_not_as_it_was_signed_is_not_merged(given):
    given.variables["PERFCI_SIGNING_KEY"] = "s" * 32
    plan, folder = str(given.reports / "plan.json"), given.reports / "shards" / "1"
    for index in (1, 2):
        given.perfci("check", "--plan", plan, "--shard", f"{index}/2")
    honest = merged(given)
    with mock.patch.dict(os.environ, given.variables, clear=True):
        signature.check(given.reports)

    others = {}
    for name in ("run.json", "launches.jsonl.gz", "run.json.sig"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data.replace(b'"relu"', b'"relu" ') if name == "run.json" else data[:-3])
        others[name] = merged(given)
        (folder / name).write_bytes(data)
    again = merged(given)
    (folder / "run.json.sig").unlink()
    missing = merged(given)

    assert honest[0] == again[0] in {0, 3}, honest
    assert missing[0] == 1
    for code, _, err in others.values():
        assert code == 1 and "not as they were signed" in err


def test_a_note_of_a_run_that_is_not_as_it_was_signed_is_not_written(given):
    merged(given)
    given.variables["PERFCI_SIGNING_KEY"] = "s" * 32

    given.posted(str(given.reports))

    code, _, err = given.said["note"]
    assert code == 1 and "has no signature" in err
    assert given.server.notes == []


def test_kernels_are_not_run_beside_a_key_that_they_could_read(branch, monkeypatch):
    monkeypatch.setattr("perfci.worker.confine.landlock_version", lambda: 0)
    branch.variables["PERFCI_SIGNING_KEY"] = "s" * 32

    check_alone(branch, "relu")

    code, _, err = branch.said["check"]
    assert code == 1 and "kernels could read it here" in err
    assert not (branch.reports / "run.json").exists()


def test_a_key_that_could_be_guessed_is_refused(given):
    given.variables["PERFCI_SIGNING_KEY"] = "short"

    code, _, err = merged(given)

    assert code == 1 and "fewer than 32 characters" in err


def test_what_python_compiled_into_a_checkout_is_neither_run_nor_written(branch):
    """A cache that names its source's content is believed by Python without a look at the source."""
    path = branch.root / "kernels" / "relu" / "relu_triton.py"
    sound = path.read_text()
    path.write_text("raise RuntimeError('compiled code is run')\n")
    cache = Path(importlib.util.cache_from_source(str(path)))
    py_compile.compile(str(path), cfile=str(cache), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text(sound)
    commit(branch, "with a cache")
    before = sorted(branch.root.rglob("*.pyc"))

    out = check_alone(branch, "relu", "scale", "--format", "json", "--against", "main")

    assert "compiled code" not in out
    assert {row["verdict"] for row in json.loads(out)["verdicts"]} <= {"PASS", "NEW", "UNCHANGED"}
    assert sorted(branch.root.rglob("*.pyc")) == before == [cache]


# --- code of the merge request ---------------------------------------------------------------------------------------


MODULES = (
    *("torch", "triton", "yaml", "msgspec", "numpy", "rich", "typer", "matplotlib", "jinja2", "gitlab", "requests"),
    *("sitecustomize", "usercustomize", "conftest", "json", "typing", "relu", "relu_triton", "kernels", "_launch"),
)
"""What a hostile checkout brings under the names of what might be imported."""


@pytest.fixture(scope="module")
def checkout(shards, tmp_path_factory):
    """The same project with modules that leave a mark when they are imported, wherever one might look for them."""
    flow = Flow(tmp_path_factory.mktemp("checkout"))
    shutil.copytree(shards.root, flow.root)
    mark = flow.folder / "imported"
    body = f"open({str(mark)!r}, 'a').write(__name__ + ' ' + __file__ + '\\n')\n"
    kernels = flow.root / "kernels"
    for name in MODULES:
        (flow.root / f"{name}.py").write_text(body)
        (kernels / f"{name}.py").write_text(body)
    for path in kernels.rglob("*_*.py"):
        path.write_text(body)
    (flow.root / "mark.pth").write_text(f"import os; {body}")
    (flow.root / "matplotlibrc").write_text("backend: module://torch\ntext.usetex: True\n")
    (flow.root / "perfci").mkdir()
    (flow.root / "perfci" / "__init__.py").write_text(body)
    (flow.root / "perfci" / "__main__.py").write_text(body)
    settings = '[tool.perfci]\nenvironment = ["HOME"]\n[tool.pytest.ini_options]\naddopts = "-p torch"\n'
    (flow.root / "pyproject.toml").write_text(settings)
    flow.outside = mark
    # As if they had been there when the plan was made.
    plan = flow.reports / "plan.json"
    stored_plan, tree = json.loads(plan.read_text()), Tree(flow.root, kernels)
    stored_plan["ops"] = [{**op, "files": tree.fingerprint(op["op"]).digest} for op in stored_plan["ops"]]
    plan.write_text(json.dumps(stored_plan))
    for path in flow.reports.glob("shards/*/run.json"):
        run = json.loads(path.read_text())
        run["shard"]["plan"] = hashlib.sha256(plan.read_bytes()).hexdigest()
        path.write_text(json.dumps(run))
    return flow


@pytest.mark.parametrize(
    "command",
    [
        ("ci", "merge", "reports/shards", "--plan", "reports/plan.json", "--html"),
        ("report", "reports/shards/1", "--to", "md,html"),
        ("ci", "note", "reports/shards/1"),
    ],
    ids=["merge", "report", "note"],
)
def test_jobs_that_judge_and_post_import_nothing_of_the_checkout(checkout, command):
    more = {"GITHUB_STEP_SUMMARY": str(checkout.folder / "summary.md"), "PYTHONPROFILEIMPORTTIME": "1"}
    variables = {**checkout.variables, **more, "HOME": str(checkout.root)}
    done = subprocess.run(
        [*PROGRAM, *command], cwd=checkout.root, env=variables, capture_output=True, text=True, check=False
    )

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode in {0, 2, 3}, done.stderr[-500:]
    assert "perfci.cli.app" in imported
    assert imported.isdisjoint({"torch", "triton", "relu_triton", "conftest", "_launch"})
    # What the jobs with a token do not install.
    assert command[1] != "note" or imported.isdisjoint({"matplotlib", "jinja2", "PIL"})
    assert not checkout.outside.exists(), checkout.outside.read_text()


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_names_the_jobs_with_a_token_and_no_others():
    """Its table against the jobs of the component, each with its suffix left out."""
    text = (TESTS.parent / "templates" / "check.yml").read_text(encoding="utf-8").replace("$[[ inputs.suffix ]]", "")
    jobs = {
        name: job for name, job in yaml.safe_load(text.partition("\n---\n")[2]).items() if name.startswith("perfci-")
    }
    given = {name for name, job in jobs.items() if ".perfci:token" in job["extends"]}
    page = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `perfci-")]
    told = {name: token.strip() for names, _, token in rows for name in re.findall(r"`(perfci-[a-z]+)`", names)}

    assert set(told) == set(jobs)
    assert {name for name, token in told.items() if token != "none of yours"} == given


ENVIRON, VICTIM = "/proc/self/environ", "victim"
LINKS = {
    **dict.fromkeys(("kernels/scale/data.txt", "kernels/scale/scale.md", "kernels/scale/optimization.jsonl"), ENVIRON),
    **dict.fromkeys(("kernels/scale/scale_baseline.py", "thresholds/scale.yaml", "requirements.txt"), ENVIRON),
    **dict.fromkeys(("baselines/fake-one/scale.json", "baselines/fake-one/scale.history.jsonl"), ENVIRON),
    **dict.fromkeys(("pyproject.toml", "kernels/_shared.txt", "kernels/scale/tuned/fake-one.json"), ENVIRON),
    **dict.fromkeys(("reports/report.md", "reports/run.json", "reports/.lock", "reports/logs/scale.log"), VICTIM),
    **dict.fromkeys(("reports/launches.jsonl.gz", "reports/changes-scale.png", "reports/metrics.txt"), VICTIM),
    **dict.fromkeys(("reports", "reports/logs", "thresholds", "baselines"), "."),
}
"""Where a merge request has a link -> where it leads: what perfci's process alone can read, a file or folder beside the
project."""

READS = """
from pathlib import Path
for path in Path(__file__).parents[1].rglob("*"):
    try:
        print(path, path.read_bytes())
    except OSError:
        pass
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("place", LINKS)
def test_a_link_leads_no_secret_into_an_artefact_and_no_writing_outside(place, tmp_path):
    """The kernel is slower, and prints all that it can read."""
    root, victim = tmp_path / "project", tmp_path / "beside" / VICTIM
    victim.parent.mkdir()
    victim.write_text("theirs")
    write_quick(root)
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "checkout", "-q", "-b", "topic")
    kernel = root / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text(kernel.read_text().replace("= 320.0", "= 448.0") + READS)
    link = root / place
    shutil.rmtree(link, ignore_errors=True)
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(LINKS[place] if LINKS[place] == ENVIRON else victim.parent / LINKS[place])
    git(root, "add", "--force", place)
    commit_all(root)

    asked = [*COMMAND, "check", "scale", "--device", "fake", "--budget", "0.05", "--project", root]
    done = subprocess.run(asked, env={**os.environ, "CI_JOB_TOKEN": CANARY}, capture_output=True, check=False)
    reports = [path.read_bytes() for path in (root / "reports").rglob("*") if path.is_file()]

    assert done.returncode in {1, 2} and b"Traceback" not in done.stderr
    assert not any(CANARY.encode() in content for content in (*reports, done.stdout, done.stderr))
    assert [(path.name, path.read_text()) for path in victim.parent.iterdir()] == [(VICTIM, "theirs")]
