import pytest

from perfci.core.model import Reason
from perfci.gitlab.note.place import Target, links, target

GIVEN = {
    "PERFCI_GITLAB_TOKEN": "glpat-Secret_of-the-tests.42",
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
    "CI_PROJECT_ID": "7",
    "CI_MERGE_REQUEST_IID": "3",
}


def test_a_merge_requests_pipeline_says_where_its_note_goes():
    found = target(GIVEN)

    assert found == Target("https://gitlab.example.com/api/v4", GIVEN["PERFCI_GITLAB_TOKEN"], None, 7, 3)


def test_a_forks_note_goes_to_the_project_of_the_merge_request():
    fork = {"CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99", "CI_MERGE_REQUEST_PROJECT_ID": "7"}

    assert target(GIVEN | fork).project == 7


@pytest.mark.parametrize(
    "api", ["http://gitlab.lan:8080/api/v4", "https://host/gitlab/api/v4/", "https://[::1]/api/v4"]
)
def test_a_server_of_ones_own_may_be_anywhere(api):
    assert target(GIVEN | {"CI_API_V4_URL": api}).api == api.rstrip("/")


def test_certificates_of_a_server_of_ones_own_are_taken_from_its_variable():
    assert target(GIVEN | {"CI_SERVER_TLS_CA_FILE": "/builds/ca.pem"}).certificates == "/builds/ca.pem"


@pytest.mark.parametrize("token", ["", "  ", None])
def test_without_a_token_nothing_is_posted_even_if_the_job_has_its_own(token):
    found = target({k: v for k, v in GIVEN.items() if k != "PERFCI_GITLAB_TOKEN"} | {"CI_JOB_TOKEN": "glcbt-1234567890"}
                   | ({"PERFCI_GITLAB_TOKEN": token} if token is not None else {}))  # fmt: skip

    assert found == Reason("note_no_token")


@pytest.mark.parametrize(
    "token", ["short", "glpat secret with blanks", "glpat-secret\r\nX: y", "glpat-s\u00e9cret-secret"]
)
def test_a_token_that_no_header_can_hold_is_refused_without_telling_it(token):
    found = target(GIVEN | {"PERFCI_GITLAB_TOKEN": token})

    assert found == Reason("note_token_malformed")


def test_a_line_end_behind_a_token_is_no_part_of_it():
    assert target(GIVEN | {"PERFCI_GITLAB_TOKEN": "glpat-secret-secret\n"}).token == "glpat-secret-secret"


def test_a_branchs_pipeline_has_no_merge_request():
    assert target({k: v for k, v in GIVEN.items() if k != "CI_MERGE_REQUEST_IID"}) == Reason("note_no_merge_request")


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
    assert target(GIVEN | {name: found}) == Reason("note_variable_invalid", {"name": name, "found": found})


def test_the_token_shows_in_no_text_of_a_target():
    assert "Secret" not in repr(target(GIVEN))
    assert "Secret" not in str(target(GIVEN))


JOB = {
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
    "CI_JOB_URL": "https://gitlab.example.com/team/kernels/-/jobs/11",
    "CI_PIPELINE_URL": "https://gitlab.example.com/team/kernels/-/pipelines/5",
}


def test_links_lead_to_report_job_and_pipeline():
    found = links(JOB, "reports/report.html")

    assert found.report == f"{JOB['CI_JOB_URL']}/artifacts/file/reports/report.html"
    assert (found.job, found.pipeline) == (JOB["CI_JOB_URL"], JOB["CI_PIPELINE_URL"])


def test_another_jobs_report_is_linked_on_the_same_server_only():
    there = "https://gitlab.example.com/team/kernels/-/jobs/10/artifacts/file/reports/report.html"

    assert links(JOB | {"PERFCI_REPORT_URL": there}).report == there
    assert links(JOB | {"PERFCI_REPORT_URL": there.replace("gitlab.example.com", "evil.example")}).report is None


@pytest.mark.parametrize("report", ["../secret", "a/../../b", "/etc/passwd", "a b", "a)b", "x\n/close"])
def test_a_report_outside_of_the_artefacts_is_not_linked(report):
    assert links(JOB, report).report is None


def test_what_is_no_address_is_left_out():
    assert links({"CI_JOB_URL": "javascript:alert(1)", "CI_PIPELINE_URL": ""}, "r.html") == links({})


def test_on_github_the_run_is_linked():
    given = {
        "GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "team/kernels",
        "GITHUB_RUN_ID": "9",
    }  # fmt: skip

    assert links(given).pipeline == "https://github.com/team/kernels/actions/runs/9"
