import pytest

from perfci.core.model import Reason
from perfci.gitlab.propose.place import Target, Wishes, is_branch, prefix, target

GIVEN = {
    "PERFCI_PUSH_TOKEN": "glpat-push-token",
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4/",
    "CI_PROJECT_ID": "7",
    "CI_COMMIT_SHA": "a" * 40,
}


def kind(wishes=None, **changed):
    found = target(wishes or Wishes(), {name: value for name, value in (GIVEN | changed).items() if value is not None})
    return found.kind if isinstance(found, Reason) else None


def test_the_pipelines_own_variables_say_where():
    found = target(Wishes(), GIVEN | {"CI_DEFAULT_BRANCH": "trunk", "CI_SERVER_TLS_CA_FILE": "/ca"})

    assert found == Target(
        "https://gitlab.example.com/api/v4", "glpat-push-token", "/ca", 7, "a" * 40, "merge-request", "trunk"
    )
    assert "glpat" not in repr(found)


def test_what_is_asked_for_goes_before_the_variables():
    found = target(Wishes("data", "main", "bot", "b" * 40), GIVEN | {"CI_DEFAULT_BRANCH": "trunk"})

    assert (found.to, found.target, found.branch, found.base) == ("data", "main", "bot", "b" * 40)


def test_the_token_for_pushing_goes_before_the_notes():
    found = target(Wishes(), GIVEN | {"PERFCI_GITLAB_TOKEN": "glpat-note-token"})
    assert found.token == "glpat-push-token"
    assert kind(PERFCI_PUSH_TOKEN=None, PERFCI_GITLAB_TOKEN="glpat-note-token") is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"PERFCI_PUSH_TOKEN": None}, "propose_no_token"),
        ({"PERFCI_PUSH_TOKEN": "two words and more"}, "propose_token_malformed"),
        ({"CI_API_V4_URL": None}, "propose_variable_invalid"),
        ({"CI_API_V4_URL": "file:///etc/api/v4"}, "propose_variable_invalid"),
        ({"CI_PROJECT_ID": "7/../8"}, "propose_variable_invalid"),
        ({"CI_COMMIT_SHA": None}, "propose_no_base"),
        ({"CI_COMMIT_SHA": "HEAD"}, "propose_no_base"),
        ({"CI_COMMIT_SHA": "abc123"}, "propose_no_base"),
        ({"CI_DEFAULT_BRANCH": "a b"}, "propose_branch_invalid"),
    ],
)
def test_what_is_missing_or_malformed_is_told(changed, expected):
    assert kind(**changed) == expected


@pytest.mark.parametrize("name", ["", "-f", "a..b", "a b", "a/", ".a", "a/.b", "a.lock", "a//b", "a@{1}", "x" * 300])
def test_no_odd_name_of_a_branch_is_taken(name):
    assert not is_branch(name)
    assert kind(Wishes(branch=name)) == kind(Wishes(to=name)) == "propose_branch_invalid"


def test_the_projects_place_is_where_the_pipeline_or_git_says(tmp_path):
    assert prefix(tmp_path / "sub" / "x", {"CI_PROJECT_DIR": str(tmp_path)}, None) == "sub/x/"
    assert prefix(tmp_path / "sub", {}, tmp_path) == "sub/"
    assert prefix(tmp_path, {"CI_PROJECT_DIR": str(tmp_path)}, None) == ""
    assert prefix(tmp_path, {"CI_PROJECT_DIR": "/builds/other"}, None) == ""
