"""Signatures of runs. The key verifies that a run and its launches are unmodified."""

import contextlib
import hashlib
import hmac
import os
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.store.files import write_atomically
from perfci.store.launches import LAUNCHES_FILE

KEY = "PERFCI_SIGNING_KEY"  # variable with the key. By its name no worker gets it
SHORTEST = 32  # characters of a key
_LONGEST = 1000  # bytes of a signature's file


def find_key() -> bytes | None:
    """Returns the key of this job. None if it has none. Raises UsageError for one that could be guessed."""
    key = os.environ.get(KEY, "").encode()
    if key and len(key) < SHORTEST:
        raise UsageError("signing_key_short", name=KEY, least=SHORTEST)
    return key or None


def sign(path: Path, data: bytes) -> None:
    """Sign a run with this content, which is about to be stored at `path`, and the launches beside it."""
    key, place = find_key(), _find_place(path)
    if key:
        write_atomically(place, f"{_compute(key, path, data)}\n".encode())
    else:
        with contextlib.suppress(OSError):
            place.unlink()  # of another run that this one takes the place of


def check(path: Path) -> None:
    """Raise StoredFileError if this job has the key, and a run's signature is missing or wrong. Nothing without it."""
    path = path / "run.json" if path.is_dir() else path
    key, place = find_key(), _find_place(path)
    if key is None:
        return
    try:
        signature, data = read_regular(place, _LONGEST).strip(), read_regular(path)
    except FileNotFoundError as error:
        raise StoredFileError("signature_missing", path=str(path), name=KEY) from error
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error
    if not hmac.compare_digest(signature, _compute(key, path, data).encode()):
        raise StoredFileError("signature_wrong", path=str(path), name=KEY)


def _find_place(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _compute(key: bytes, path: Path, data: bytes) -> str:
    launches = path.with_name(LAUNCHES_FILE)
    parts = [data, read_regular(launches) if launches.exists() else b""]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hmac.new(key, b"perfci run 1\n" + digests, hashlib.sha256).hexdigest()
