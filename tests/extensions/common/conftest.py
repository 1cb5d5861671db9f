"""A reader of Markdown as GitLab and GitHub read it."""

import pytest

from tests.gitlab import gitlab_markdown


@pytest.fixture(scope="session")
def reader():
    return gitlab_markdown
