"""Which chains a project has."""

import pytest

from perfci.core.errors import UsageError
from perfci.extensions.lab.chains.records import find_chains, select_chains


@pytest.fixture
def kernels(tmp_path):
    folder = tmp_path / "_chains"
    folder.mkdir()
    for name in ("block_chain.py", "alone_chain.py", "_helper_chain.py", "shared.py"):
        (folder / name).write_text("")
    return tmp_path


def test_a_chain_is_a_file_of_the_folder_by_its_ending(kernels):
    assert [*find_chains(kernels)] == ["alone", "block"]
    assert len(select_chains(kernels, ())) == 2
    assert [path.name for path in select_chains(kernels, ["block"]).values()] == ["block_chain.py"]


def test_an_unknown_name_is_refused_with_the_nearest_and_a_project_without_chains_with_their_place(kernels, tmp_path):
    with pytest.raises(UsageError, match="the nearest is block"):
        select_chains(kernels, ["blok"])
    with pytest.raises(UsageError, match=r"docs/chains\.md"):
        select_chains(tmp_path / "empty", ())
