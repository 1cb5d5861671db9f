"""The runs of `tests/example_runs.py`, their sentences, and golden files."""

import functools
import os
from pathlib import Path

import pytest

from perfci import report
from perfci.core import wording
from tests import example_runs

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def examples():
    return example_runs


@pytest.fixture(scope="module", autouse=True)
def sentences(examples):
    """The examples' catalogue beside the real one: its sentences need runs with real reasons."""
    both = {**wording.catalogue(), **examples.SENTENCES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wording, "catalogue", lambda language="en": both)
        yield


@pytest.fixture(scope="module")
def rendered(examples, sentences, tmp_path_factory):
    """The folder of an example's report by name, rendered once a module."""

    @functools.cache
    def render(name: str) -> Path:
        run, judgements = getattr(examples, name)()
        return report.write(run, judgements, tmp_path_factory.mktemp(name)).parent

    return render


@pytest.fixture
def golden():
    """Compares with a file of `tests/golden/`. PERFCI_UPDATE_GOLDEN=1 writes it again; read it in the diff."""

    def check(name: str, text: str) -> None:
        path = TESTS / "golden" / name
        if os.environ.get("PERFCI_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8")

    return check
