"""Which chains a project has."""

from __future__ import annotations

import pytest

from perfci.core.errors import UsageError
from perfci.lab.chains.files import chain_files, known_chains, select


@pytest.fixture
def kernels(tmp_path):
    folder = tmp_path / "_chains"
    folder.mkdir()
    for name in ("block_chain.py", "alone_chain.py", "_helper_chain.py", "shared.py"):
        (folder / name).write_text("")
    return tmp_path


def test_a_chain_is_a_file_of_the_folder_by_its_ending(kernels):
    assert [file.name for file in chain_files(kernels)] == ["alone", "block"]


def test_all_are_chosen_where_none_is_named(kernels):
    assert len(select(chain_files(kernels), None)) == 2
    assert [file.path.name for file in select(chain_files(kernels), "block")] == ["block_chain.py"]


def test_a_name_that_none_has_is_told_with_the_nearest(kernels):
    with pytest.raises(UsageError, match="the nearest is block"):
        select(chain_files(kernels), "blok")


def test_a_project_without_chains_says_where_they_belong(tmp_path):
    assert known_chains(tmp_path) == ()
    with pytest.raises(UsageError, match=r"docs/chains\.md"):
        chain_files(tmp_path)
