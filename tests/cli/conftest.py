import pytest

from tests.git_repositories import start


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project without ops in a separate repository, and the current folder."""
    folder = start(tmp_path / "project")
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")
    monkeypatch.chdir(folder)
    return folder
