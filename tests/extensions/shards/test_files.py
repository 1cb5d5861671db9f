"""The files of a run that are copied."""

import pytest

from perfci.core.errors import StoredFileError
from perfci.extensions.shards.plans import copy_run


def test_a_copy_of_a_run_takes_no_other_files(tmp_path):
    (tmp_path / "shard" / "logs").mkdir(parents=True)
    for name in ("run.json", "run.json.sig", "launches.jsonl.gz", "logs/relu.log", "notes"):
        (tmp_path / "shard" / name).write_text(name)
    (tmp_path / "shard" / "extra").symlink_to("/proc/self/environ")

    copy_run(tmp_path / "shard", tmp_path / "copy")

    copied = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert copied == {"run.json", "run.json.sig", "launches.jsonl.gz", "logs/relu.log"}


@pytest.mark.parametrize("name", ["run.json", "run.json.sig", "launches.jsonl.gz", "logs/relu.log"])
def test_a_copy_of_a_run_follows_no_link(tmp_path, name):
    place = tmp_path / "shard" / name
    place.parent.mkdir(parents=True)
    place.symlink_to("/proc/self/environ")

    with pytest.raises(StoredFileError) as caught:
        copy_run(tmp_path / "shard", tmp_path / "copy")

    assert caught.value.reason.kind == "file_unreadable"
    assert not (tmp_path / "copy").exists()
