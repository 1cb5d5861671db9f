import json
import logging
from dataclasses import replace

import pytest

from perfci.core import wording
from perfci.core.model import Reason
from perfci.extensions.note import posting
from perfci.extensions.note.posting import append_summary, find_target, post
from perfci.extensions.note.text import Links, marker
from tests.extensions.note.conftest import TOKEN
from tests.gitlab.github_server import GitHub
from tests.gitlab.gitlab_server import GitLab
from tests.gitlab.server import Fault

MARKER = marker("check")
REFUSED = {GitLab: "note_refused", GitHub: "comment_refused"}
HEADER = {GitLab: "private-token", GitHub: "authorization"}


@pytest.fixture
def waits():
    return []


@pytest.fixture
def send(examples, environ, waits, monkeypatch):
    """Post the note of an example; waiting takes no time."""
    monkeypatch.setattr(posting.time, "sleep", waits.append)

    def send(name="small", **changes):
        run, judgements = getattr(examples, name)()
        return post(run, judgements, replace(find_target(environ), **changes), Links())

    return send


def kinds(posted):
    return [problem.kind for problem in posted.problems]


# --- one note, updated in place ---------------------------------------------------------------------------------------


def test_the_first_run_creates_a_note(server, send):
    posted = send()

    assert (posted.created, posted.problems) == (True, ())
    assert [note["id"] for note in server.notes] == [posted.note]
    assert server.notes[0]["body"].startswith(MARKER)


def test_the_second_run_updates_the_same_note(server, send):
    first, second = send(), send(name="full")

    assert (second.note, second.created, second.problems) == (first.note, False, ())
    assert len(server.notes) == 1
    assert "matmul" in server.notes[0]["body"]


def test_an_unchanged_note_is_not_written_again(server, send):
    send()

    assert send().problems == ()
    assert server.count(server.UPDATE.split()[0], "") == 0


def test_a_foreign_note_with_the_marker_is_never_touched(server, send):
    foreign = server.add(f"{MARKER}\nmine")

    posted = send()

    assert foreign["body"] == f"{MARKER}\nmine"
    assert posted.created
    assert posted.note != foreign["id"]


def test_own_notes_without_the_marker_and_quotations_of_it_are_not_touched(server, send):
    others = [
        server.add("a word of the bot", server.OWN),
        server.add(f"> {MARKER}\nquoted", server.OWN),
        server.add(f"see\n{MARKER}", server.OWN),
        server.add(f"{marker('other')}\nanother note of perfci", server.OWN),
        server.add_of_nobody(f"{MARKER}\nsystem"),
    ]
    before = [note["body"] for note in others]

    assert send().created
    assert [note["body"] for note in others] == before


def test_a_long_note_is_cut_to_what_the_server_takes(examples, server, environ):
    posted = post(*examples.large(20, 50), find_target(environ), Links())

    assert (posted.created, posted.problems) == (True, ())


# --- what goes wrong is a reason --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 404, 422])
@pytest.mark.parametrize("call", ["USER", "LIST", "CREATE"])
def test_what_will_not_get_better_is_a_reason_at_once(server, send, waits, call, status):
    server.plan(getattr(server, call), Fault(status=status, body=b'{"message": "no @all"}'))

    posted = send()

    assert kinds(posted) == [REFUSED[type(server)]]
    assert (posted.problems[0].facts["status"], posted.problems[0].facts["told"]) == (status, "no @all")
    assert (posted.note, waits) == (None, [])


@pytest.mark.parametrize("status", [429, 500, 502, 503])
@pytest.mark.parametrize("call", ["USER", "LIST", "CREATE"])
def test_a_fault_of_the_server_is_tried_again(server, send, call, status):
    server.plan(getattr(server, call), Fault(status=status, body=b"<html>Bad Gateway</html>"))

    posted = send()
    assert posted.created
    assert posted.problems == ()
    assert len(server.notes) == 1


@pytest.mark.parametrize("lost", [{"status": 502}, {"status": 201, "cut": True}])
def test_no_note_is_written_twice_if_the_answer_was_lost(server, send, lost):
    server.plan(server.CREATE, Fault(done=True, **lost))

    posted = send()
    assert posted.problems == ()
    assert [note["id"] for note in server.notes] == [posted.note]


def test_a_server_that_does_not_answer_or_is_not_there_is_a_reason(server, send, monkeypatch, waits):
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(posting, "WAITS_S", (1.0,))
    server.plan(server.USER, Fault(hang=True), Fault(hang=True))

    assert kinds(send()) == ["note_failed"]
    assert waits == [1.0]
    posted = send(api="http://127.0.0.1:9/api/v3")
    assert (kinds(posted), posted.problems[0].facts["api"]) == (["note_failed"], "http://127.0.0.1:9/api/v3")


# --- the token --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("call", ["USER", "CREATE"])
def test_no_redirect_is_followed_and_the_token_stays(server, elsewhere, send, call, status):
    server.plan(getattr(server, call), Fault(status=status, headers={"Location": f"{elsewhere.url}/api/v4/user"}))

    assert kinds(send()) == [REFUSED[type(server)]]
    assert elsewhere.calls == []


def test_the_token_goes_in_the_header_alone(server, send, environ):
    token = TOKEN
    send()

    for call in server.calls:
        assert token not in call.path + repr(call.query) + call.body.decode("latin-1")
        assert [name for name, value in call.headers.items() if token in value] == [HEADER[type(server)]]


FAULTS = [{"status": 401}, {"status": 429}, {"status": 500}, {"status": 302}, {"body": b"{"}, {"cut": True}]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_token_is_in_no_message_exception_or_log(server, send, environ, monkeypatch, caplog, capfd, fault):
    token = TOKEN
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(posting, "WAITS_S", ())
    body = json.dumps({"message": f"the token {token} is bad", "error": token}).encode()
    headers = {"Location": f"http://evil.invalid/?token={token}", "Retry-After": "1"}
    server.plan(server.USER, Fault(**{"body": body, "headers": headers, **fault}))

    posted = send()

    assert len(posted.problems) == 1
    shown = [repr(posted), *map(wording.sentence, posted.problems), caplog.text, *capfd.readouterr()]
    assert [text for text in shown if token in text] == []


# --- where the note goes ----------------------------------------------------------------------------------------------

GIVEN = {
    "PERFCI_GITLAB_TOKEN": "glpat-Secret_of-the-tests.42",
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
    "CI_PROJECT_ID": "7",
    "CI_MERGE_REQUEST_IID": "3",
}


def test_a_forks_note_goes_to_the_project_of_the_merge_request():
    fork = {"CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99", "CI_MERGE_REQUEST_PROJECT_ID": "7"}

    assert find_target(GIVEN | fork).project == "7"


@pytest.mark.parametrize("token", ["", "  "])
def test_without_a_token_nothing_is_posted_even_if_the_job_has_its_own(token):
    target = find_target({**GIVEN, "CI_JOB_TOKEN": "glcbt-1234567890", "PERFCI_GITLAB_TOKEN": token})

    assert target == Reason("note_no_token")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("CI_MERGE_REQUEST_IID", "3/../4"),
        ("CI_MERGE_REQUEST_IID", "0"),
        ("CI_PROJECT_ID", ""),
        ("CI_PROJECT_ID", "group/project"),
        ("CI_MERGE_REQUEST_PROJECT_ID", "-1"),
        ("CI_API_V4_URL", ""),
        ("CI_API_V4_URL", "gitlab.example.com/api/v4"),
        ("CI_API_V4_URL", "https://gitlab.example.com@evil.example/api/v4"),
        ("CI_API_V4_URL", "https://gitlab.example.com/api/v4?x=1"),
        ("CI_API_V4_URL", "https://gitlab.example.com/api/v4#"),
        ("CI_API_V4_URL", "https://gitlab.example.com/api/v3"),
        ("CI_API_V4_URL", "https://gitlab.example.com:port/api/v4"),
        ("CI_API_V4_URL", "file:///api/v4"),
    ],
)
def test_a_variable_that_is_none_of_gitlabs_is_named_with_its_value(name, found):
    facts = {"name": name, "found": found, "server": "GitLab"}
    assert find_target(GIVEN | {name: found}) == Reason("note_variable_invalid", facts)


ON_GITHUB = {
    "GITHUB_ACTIONS": "true",
    "PERFCI_GITHUB_TOKEN": "ghs_Secret_of-the-tests.42",
    "GITHUB_API_URL": "https://api.github.com",
    "GITHUB_REPOSITORY": "team/kernels.fast",
    "GITHUB_REF": "refs/pull/3/merge",
}


@pytest.mark.parametrize(
    "api", ["https://api.github.com", "https://github.example.com/api/v3", "https://api.x.ghe.com/"]
)
def test_on_github_the_pull_request_is_that_of_the_workflow(api):
    target = find_target(ON_GITHUB | {"GITHUB_API_URL": api})

    assert (target.api, target.project, target.number) == (api.rstrip("/"), "team/kernels.fast", 3)


@pytest.mark.parametrize(
    ("name", "found", "kind"),
    [
        ("PERFCI_GITHUB_TOKEN", "", "comment_no_token"),
        ("PERFCI_GITHUB_TOKEN", "x\ny", "token_malformed"),
        ("GITHUB_REF", "refs/heads/main", "comment_no_pull_request"),
        ("GITHUB_REF", "refs/pull/3/../4/merge", "comment_no_pull_request"),
        ("GITHUB_REPOSITORY", "team/..", "note_variable_invalid"),
        ("GITHUB_REPOSITORY", "team/kernels/x", "note_variable_invalid"),
        ("GITHUB_API_URL", "https://api.github.com@evil.example", "note_variable_invalid"),
        ("GITHUB_API_URL", "https://api.github.com/x", "note_variable_invalid"),
    ],
)
def test_on_github_what_is_none_of_its_variables_posts_nothing(name, found, kind):
    """A job's GITHUB_TOKEN is not taken: only a step that is given the token by perfci's name posts."""
    reason = find_target(ON_GITHUB | {"GITHUB_TOKEN": "ghs_another-token-1", name: found})

    assert reason.kind == kind and wording.sentence(reason)


ONLY_GITHUB = pytest.mark.parametrize("server", ["github"], indirect=True)


@ONLY_GITHUB
@pytest.mark.parametrize("api", ["", "/api/v3"])
def test_on_github_the_user_is_asked_of_graphql_beside_the_rest_interface(server, send, api):
    send(api=server.url + api)

    assert server.calls[0].path == api.removesuffix("/v3") + "/graphql"


@ONLY_GITHUB
def test_on_github_being_asked_too_often_is_waited_for(server, send, waits):
    server.plan(server.LIST, Fault(status=403, headers={"Retry-After": "7"}))

    assert (send().problems, waits) == ((), [7.0])


# --- GitHub's summary of a step ---------------------------------------------------------------------------------------


def test_it_is_appended_to_what_is_there(examples, tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("# Before\n", encoding="utf-8")

    assert append_summary(*examples.small(), Links(), {"GITHUB_STEP_SUMMARY": str(file)}) is None
    assert file.read_text(encoding="utf-8").startswith("# Before\n\n<!-- perfci:note:check -->\n")
