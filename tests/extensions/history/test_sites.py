import pytest

from perfci.cli.main import run
from tests import site_histories as histories
from tests.extensions.pictures.conftest import parsed
from tests.git_repositories import commit, git
from tests.history_examples import accepted, figures
from tests.stored_examples import append_history


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one history, around the current folder."""
    histories.project(tmp_path, {("nvidia-h200", "softmax"): histories.steady(count=4)})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_site_is_built_beside_the_project(project, capsys):
    assert run(["report", "--to", "site"]) == 0
    assert capsys.readouterr().out == "Site: public/index.html and 1 page.\n"
    assert (project / "public" / "nvidia-h200" / "softmax.html").is_file()


def test_no_history_is_a_warning_and_an_empty_site(project, capsys):
    (project / "baselines" / "nvidia-h200" / "softmax.history.jsonl").unlink()

    assert run(["report", "--to", "site"]) == 3
    assert "There is no history in baselines yet" in capsys.readouterr().out
    assert (project / "public" / "index.html").is_file()


def test_pages_that_are_taken_away_are_named(project, capsys):
    run(["report", "--to", "site"])
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.rename(path.with_name("renamed.history.jsonl"))
    capsys.readouterr()

    assert run(["report", "--to", "site"]) == 0
    assert "Taken away, since what it showed is gone: nvidia-h200/softmax.html" in capsys.readouterr().out


def test_changes_are_those_since_the_newest_tag_or_the_revision_named(root, capsys):
    first, *others = (commit(root, f"{number}") for number in range(4))
    git(root, "tag", "-a", "v1", "-m", "v1", others[0])
    for number, (id_, us) in enumerate(zip((first, *others), (10.0, 20.0, 20.0, 24.0), strict=True)):
        append_history(
            root / "baselines", "nvidia-h200", "softmax", accepted(number, figures(kernel_us=us), commit=id_)
        )

    def build(*more):
        code = run(["report", "--to", "site", *more])
        page = parsed((root / "public" / "index.html").read_text("utf-8"))
        return code, page.one("h2", id="cases-title").text, [*page.one("table", id="table").all("td")][4].text

    # Of the median of the first two runs, 15 us, and that of the last two, 22 us.
    assert build() == (0, "Ops and devices: change since v1", "+46.7 %")
    assert build("--against", first) == (0, f"Ops and devices: change since {first}", "+100.0 %")
    assert run(["report", "--to", "site", "--against", "v2"]) == 1
    assert "'v2'" in capsys.readouterr().err
    git(root, "tag", "-d", "v1")
    assert build()[:2] == (0, "Ops and devices: change over the kept runs")
