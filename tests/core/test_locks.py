import os
import sys

import pytest

from perfci import store
from perfci.core import locks
from perfci.core.errors import StoredFileError


@pytest.fixture
def opened(tmp_path):
    """Opens one file as often as it is asked to."""
    handles = []

    def again():
        handles.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
        return handles[-1]

    yield again
    for handle in handles:
        os.close(handle)


def test_a_lock_is_had_once_and_names_its_holder(opened):
    first, second = opened(), opened()

    assert locks.take(first)
    locks.sign(first)
    assert not locks.take(second)
    assert locks.holder(second).startswith(f"process {os.getpid()} on ")
    assert "since" in locks.holder(second)


def test_a_signature_replaces_a_longer_one(opened, tmp_path):
    (tmp_path / "lock").write_text("process 1 on elsewhere" * 40)

    locks.sign(handle := opened())

    assert locks.holder(handle).startswith(f"process {os.getpid()}")
    assert "elsewhere" not in locks.holder(handle)


def test_a_lock_that_nobody_signed_has_a_holder_all_the_same(opened):
    assert locks.holder(opened()) == "another process"


def test_reports_are_claimed_where_there_are_no_locks_too(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)

    with store.claim_reports(tmp_path / "reports"), store.claim_reports(tmp_path / "reports"):
        assert (tmp_path / "reports").is_dir()


def test_reports_are_free_again_after_an_exception(tmp_path):
    with pytest.raises(KeyError), store.claim_reports(tmp_path):
        raise KeyError

    with store.claim_reports(tmp_path):
        pass


def test_a_claimed_folder_says_who_has_it(tmp_path):
    words = rf"process {os.getpid()} .*is writing into {tmp_path}"

    with store.claim_reports(tmp_path), pytest.raises(StoredFileError, match=words):
        store.claim_reports(tmp_path).__enter__()
