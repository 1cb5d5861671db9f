import logging
import sys
import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from perfci.core import wording
from perfci.core.errors import MissingPackageError
from perfci.gitlab import api as api_module
from perfci.gitlab.note import api
from perfci.gitlab.note.body import Links, marker
from perfci.gitlab.note.pictures import Picture
from perfci.gitlab.note.place import Target, target
from perfci.gitlab.note.posting import post

MARKER = marker("check")


@pytest.fixture
def fault(gitlab):
    return sys.modules["perfci_gitlab_server"].Fault


@pytest.fixture
def waits():
    return []


@pytest.fixture
def send(examples, environ, waits):
    """Post the note of an example; waiting takes no time."""

    def sent(pictures=(), name="small", **changes):
        where = target(environ)
        assert isinstance(where, Target)
        run, judgements = getattr(examples, name)()
        return post(run, judgements, replace(where, **changes), Links(), pictures, sleep=waits.append)

    return sent


def picture(tmp_path, content=b"\x89PNG one", op="softmax"):
    file = tmp_path / f"duels-{op}.png"
    file.write_bytes(content)
    return Picture(file, op)


# --- one note, updated in place ---------------------------------------------------------------------------------------


def test_the_first_run_creates_a_note(gitlab, send):
    posted = send()

    assert (posted.created, posted.problems) == (True, ())
    assert [note["id"] for note in gitlab.notes] == [posted.note]
    assert gitlab.notes[0]["body"].startswith(MARKER)


def test_the_second_run_updates_the_same_note(gitlab, send):
    first, second = send(), send(name="full")

    assert (second.note, second.created, second.problems) == (first.note, False, ())
    assert len(gitlab.notes) == 1
    assert "matmul" in gitlab.notes[0]["body"]


def test_an_unchanged_note_is_not_written_again(gitlab, send):
    send()

    assert send().problems == ()
    assert gitlab.count("PUT", "") == 0


def test_a_foreign_note_with_the_marker_is_never_touched(gitlab, send):
    foreign = gitlab.add(f"{MARKER}\nmine")

    posted = send()

    assert foreign["body"] == f"{MARKER}\nmine"
    assert posted.created
    assert posted.note != foreign["id"]


def test_own_notes_without_the_marker_and_quotations_of_it_are_not_touched(gitlab, send):
    own = sys.modules["perfci_gitlab_server"].OWN
    others = [
        gitlab.add("a word of the bot", own),
        gitlab.add(f"> {MARKER}\nquoted", own),
        gitlab.add(f"see\n{MARKER}", own),
        gitlab.add(f"{marker('other')}\nanother note of perfci", own),
        gitlab.add(f"{MARKER}\nsystem", own, system=True),
    ]
    before = [note["body"] for note in others]

    assert send().created
    assert [note["body"] for note in others] == before


def test_line_ends_of_windows_do_not_hide_a_note(gitlab, send):
    own = sys.modules["perfci_gitlab_server"].OWN
    gitlab.add(f"{MARKER}\r\n\r\nold", own)

    assert not send().created


@pytest.mark.parametrize("headers", [("X-Next-Page",), ("Link",), ("X-Next-Page", "Link"), ()])
def test_a_note_behind_hundreds_of_others_is_found(gitlab, send, headers):
    gitlab.page_headers = headers
    for index in range(250):
        gitlab.add(f"note {index}")
    own = gitlab.add(f"{MARKER}\nold", sys.modules["perfci_gitlab_server"].OWN)

    assert send().note == own["id"]


def test_a_server_with_shorter_pages_is_read_to_its_end(gitlab, send):
    gitlab.per_page_limit = 20
    for index in range(50):
        gitlab.add(f"note {index}")
    own = gitlab.add(f"{MARKER}\nold", sys.modules["perfci_gitlab_server"].OWN)

    assert send().note == own["id"]


def test_a_note_that_was_deleted_meanwhile_is_created_anew(gitlab, send, fault):
    own = gitlab.add(f"{MARKER}\nold", sys.modules["perfci_gitlab_server"].OWN)
    gitlab.plan(f"PUT /{own['id']}", fault(status=404))

    posted = send()
    assert posted.created
    assert posted.problems == ()


def test_a_forks_pipeline_writes_to_the_target_project(gitlab, environ, examples, waits):
    environ |= {"CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99"}

    posted = post(*examples.small(), target(environ), Links(), sleep=waits.append)

    assert posted.created
    assert {call.path.split("/")[4] for call in gitlab.calls if "projects" in call.path} == {"7"}


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_are_uploaded_once(gitlab, send, tmp_path):
    shown = [picture(tmp_path), picture(tmp_path, b"\x89PNG two", "matmul")]

    first, second = send(shown), send(shown, name="full")

    assert (first.uploaded, second.uploaded) == (2, 0)
    assert gitlab.uploads == [b"\x89PNG one", b"\x89PNG two"]
    assert gitlab.notes[0]["body"].count("![Plot of ") == 2


def test_a_picture_that_changed_is_uploaded_and_replaces_the_old(gitlab, send, tmp_path):
    send([picture(tmp_path)])
    old = gitlab.notes[0]["body"]

    assert send([picture(tmp_path, b"\x89PNG new")]).uploaded == 1
    assert f"/uploads/{1:032x}/" in old
    assert f"/uploads/{1:032x}/" not in gitlab.notes[0]["body"]
    assert f"/uploads/{2:032x}/" in gitlab.notes[0]["body"]


def test_two_pictures_alike_are_one_upload(gitlab, send, tmp_path):
    send([picture(tmp_path), picture(tmp_path, op="matmul")])

    assert len(gitlab.uploads) == 1
    assert gitlab.notes[0]["body"].count("![Plot of ") == 2


def test_addresses_in_a_note_that_are_no_uploads_are_not_believed(gitlab, send, tmp_path):
    send([picture(tmp_path)])
    body = gitlab.notes[0]["body"]
    gitlab.notes[0]["body"] = body.replace(f"/uploads/{1:032x}/duels-softmax.png", "https://evil.example/x.png")

    assert send([picture(tmp_path)]).uploaded == 1
    assert "evil.example" not in gitlab.notes[0]["body"]


@pytest.mark.parametrize("answer", [b'{"url": "https://evil.example/x.png"}', b'{"url": 3}', b"[]", b"null"])
def test_an_upload_without_a_proper_address_is_left_out(gitlab, send, fault, tmp_path, answer):
    gitlab.plan("POST /uploads", fault(status=201, body=answer))

    posted = send([picture(tmp_path)])
    assert posted.created
    assert "evil" not in gitlab.notes[0]["body"]
    assert [one.kind for one in posted.problems] == ["note_picture_failed"]


def test_a_note_is_posted_without_pictures_that_the_server_refuses(gitlab, send, fault, tmp_path):
    gitlab.plan("POST /uploads", fault(status=413, body=b'{"message": "too large"}'))

    posted = send([picture(tmp_path)])
    assert posted.created
    assert "![" not in gitlab.notes[0]["body"]
    assert posted.problems[0].facts == {
        "name": "duels-softmax.png", "api": gitlab.api, "status": 413, "why": "too large",
    }  # fmt: skip


def test_a_picture_that_is_gone_is_left_out(gitlab, send, tmp_path):
    assert send([Picture(tmp_path / "gone.png", "softmax")]).created
    assert gitlab.uploads == []


# --- what goes wrong is a reason --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "note_token_refused"), (403, "note_forbidden"), (404, "note_not_found"), (422, "note_refused")],
)
@pytest.mark.parametrize("call", ["GET /user", "GET /notes", "POST /notes"])
def test_what_will_not_get_better_is_told_at_once(gitlab, send, fault, waits, call, status, kind):
    gitlab.plan(call, fault(status=status, body=b'{"message": "no @all"}'))

    posted = send()
    assert [one.kind for one in posted.problems] == [kind]
    assert posted.problems[0].facts["status"] == status
    assert (posted.note, waits) == (None, [])


def test_a_wrong_token_is_refused_by_the_server(gitlab, send):
    assert [one.kind for one in send(token="glpat-of-somebody-else").problems] == ["note_token_refused"]
    assert gitlab.notes == []


def test_a_busy_server_is_waited_for_as_long_as_it_asks(gitlab, send, fault, waits):
    gitlab.plan("GET /notes", fault(status=429, headers={"Retry-After": "7"}), fault(status=429))

    assert send().created
    assert waits == [7.0, 2.0]


def test_a_server_may_ask_by_date(gitlab, send, fault, waits):
    soon = datetime.now(UTC) + timedelta(seconds=30)
    gitlab.plan("POST /notes", fault(status=429, headers={"Retry-After": format_datetime(soon, usegmt=True)}))

    assert send().created
    assert 20 < waits[0] <= 30


@pytest.mark.parametrize("seconds", [90, 86_400])
def test_nobody_waits_for_minutes_or_a_day(gitlab, send, fault, waits, seconds):
    gitlab.plan("GET /user", fault(status=429, headers={"Retry-After": str(seconds)}))

    assert [one.kind for one in send().problems] == ["note_rate_limited"]
    assert waits == []


def test_a_server_that_stays_busy_is_given_up(gitlab, send, fault, waits):
    gitlab.plan("GET /user", *[fault(status=429)] * 20)

    assert [one.kind for one in send().problems] == ["note_rate_limited"]
    assert waits == list(api.WAITS_S)


def test_all_waits_together_are_bounded(gitlab, send, fault, waits):
    for call in ("GET /user", "GET /notes", "POST /notes"):
        gitlab.plan(call, *[fault(status=429, headers={"Retry-After": "45"})] * 3)

    assert [one.kind for one in send().problems] == ["note_rate_limited"]
    assert sum(waits) <= api.PATIENCE_S


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize("call", ["GET /user", "GET /notes", "POST /notes"])
def test_a_fault_of_the_server_is_tried_again(gitlab, send, fault, call, status):
    gitlab.plan(call, fault(status=status, body=b"<html>Bad Gateway</html>"))

    posted = send()
    assert posted.created
    assert posted.problems == ()
    assert len(gitlab.notes) == 1


def test_an_update_is_tried_again(gitlab, send, fault):
    number = send().note
    gitlab.plan(f"PUT /{number}", fault(status=502), fault(status=500))

    assert send(name="full").problems == ()
    assert "matmul" in gitlab.notes[0]["body"]


def test_a_server_that_stays_broken_is_given_up(gitlab, send, fault, waits):
    gitlab.plan("GET /notes", *[fault(status=502)] * 20)

    assert [one.kind for one in send().problems] == ["note_server_failed"]
    assert len(waits) == len(api.WAITS_S)


def test_no_note_is_written_twice_where_the_answer_was_lost(gitlab, send, fault):
    gitlab.plan("POST /notes", fault(status=502, done=True))

    posted = send()
    assert posted.created
    assert posted.problems == ()
    assert [note["id"] for note in gitlab.notes] == [posted.note]


def test_a_note_that_never_gets_through_is_given_up(gitlab, send, fault, waits):
    gitlab.plan("POST /notes", *[fault(status=502)] * 20)

    assert [one.kind for one in send().problems] == ["note_server_failed"]
    assert waits == list(api.WAITS_S)
    assert gitlab.notes == []


def test_a_server_that_does_not_answer_is_given_up(gitlab, send, fault, monkeypatch, waits):
    monkeypatch.setattr(api_module, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(api_module, "WAITS_S", (1.0,))
    gitlab.plan("GET /user", fault(hang=True), fault(hang=True))

    assert [one.kind for one in send().problems] == ["note_timed_out"]
    assert waits == [1.0]


@pytest.mark.parametrize("body", [b'{"id": 1', b"", b"\xff\xfe", b"<html>"])
def test_an_answer_that_is_no_json_is_told(gitlab, send, fault, body):
    gitlab.plan("GET /user", *[fault(body=body)] * 5)

    assert [one.kind for one in send().problems] == ["note_answer_unreadable"]


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"id": "x"}', b"3"])
def test_an_answer_of_another_form_is_told(gitlab, send, fault, body):
    gitlab.plan("GET /user", fault(body=body))

    assert [one.kind for one in send().problems] == ["note_answer_unreadable"]


@pytest.mark.parametrize("body", [b"{}", b"null", b'[1, null, {"author": 3}, {"author": {"id": 100}, "id": 1}]'])
def test_a_list_of_another_form_has_no_note_of_ours(gitlab, send, fault, body):
    gitlab.plan("GET /notes", fault(body=body))

    assert send().created


def test_an_answer_that_breaks_off_is_asked_for_again(gitlab, send, fault):
    gitlab.plan("GET /user", fault(body=b'{"id": 100', cut=True))

    assert send().created


def test_a_server_that_is_not_there_is_told_with_its_address(send, waits):
    posted = send(api="http://127.0.0.1:9/api/v4")

    assert [one.kind for one in posted.problems] == ["note_unreachable"]
    assert posted.problems[0].facts["api"] == "http://127.0.0.1:9/api/v4"
    assert len(waits) == len(api.WAITS_S)


def test_without_python_gitlab_it_is_said_what_to_install(send, monkeypatch):
    monkeypatch.setitem(sys.modules, "gitlab", None)

    with pytest.raises(MissingPackageError) as raised:
        send()
    assert raised.value.reason.kind == "note_needs_python_gitlab"


# --- the token --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("call", ["GET /user", "GET /notes", "POST /notes"])
def test_no_redirect_is_followed_and_the_token_stays(gitlab, elsewhere, send, fault, call, status):
    gitlab.plan(call, fault(status=status, headers={"Location": f"{elsewhere.url}/api/v4/user"}))

    assert [one.kind for one in send().problems] == ["note_redirected"]
    assert elsewhere.calls == []


def test_a_link_to_a_next_page_elsewhere_is_not_followed(gitlab, elsewhere, send, fault):
    link = {"Link": f'<{elsewhere.api}/projects/7/merge_requests/3/notes?page=2>; rel="next"', "X-Next-Page": "2"}
    gitlab.plan("GET /notes", fault(headers=link, body=b"[]"))

    assert send().created
    assert elsewhere.calls == []


def test_the_session_speaks_to_one_origin_only(gitlab, elsewhere, environ):
    server = api.connect(target(environ))

    answer = server.ask("get", f"{elsewhere.api}/user", repeat_unclear=False)
    assert answer.failure.kind == "note_unreachable"
    assert elsewhere.calls == []


def test_the_token_goes_in_the_header_alone(gitlab, send, environ, tmp_path):
    token = environ["PERFCI_GITLAB_TOKEN"]
    send([picture(tmp_path)])

    assert {call.headers["private-token"] for call in gitlab.calls} == {token}
    for call in gitlab.calls:
        assert token not in call.path + repr(call.query) + call.body.decode("latin-1")
        assert [name for name, value in call.headers.items() if token in value] == ["private-token"]


FAULTS = [
    {"status": 401}, {"status": 403}, {"status": 404}, {"status": 429}, {"status": 500}, {"status": 302},
    {"status": 418}, {"body": b"{"}, {"cut": True}, {"hang": True},
]  # fmt: skip


@pytest.mark.parametrize("fault_of", FAULTS)
def test_the_token_is_in_no_message_exception_or_log(
    gitlab, send, fault, environ, monkeypatch, caplog, capfd, fault_of
):
    token = environ["PERFCI_GITLAB_TOKEN"]
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(api_module, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(api_module, "WAITS_S", ())
    told = {"body": f'{{"message": "the token {token} is bad", "error": "{token}"}}'.encode()}
    where = {"headers": {"Location": f"http://evil.invalid/?token={token}", "Retry-After": "1"}}
    gitlab.plan("GET /user", fault(**{**told, **where, **fault_of}))

    posted = send()

    assert len(posted.problems) == 1
    said = [repr(posted), *map(wording.sentence, posted.problems), caplog.text, *capfd.readouterr()]
    assert [text for text in said if token in text] == []


def test_a_traceback_through_a_call_does_not_tell_the_token(environ, monkeypatch):
    server = api.connect(target(environ))
    monkeypatch.setattr(server.client, "http_request", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError) as raised:
        server.ask("get", "/user")
    told = "".join(traceback.format_exception(raised.value)) + repr(server)
    assert environ["PERFCI_GITLAB_TOKEN"] not in told
