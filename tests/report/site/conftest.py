"""Histories, and pages of them read back with the parser that the report's page is read with."""

import importlib.util
import sys
from pathlib import Path

import pytest

from perfci.report.site import pages

HERE = Path(__file__).parent


def load(name, path):
    """A helper module by its path, since tests are no package; the same for every test."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def histories():
    return load("perfci_histories", HERE / "histories.py")


@pytest.fixture(scope="session")
def parse():
    return load("perfci_html_parser", HERE.parent / "html" / "conftest.py").parsed


@pytest.fixture(scope="session")
def softmax(histories):
    """Sixty runs in which everything happens, with the step that was recorded of the driver."""
    runs = histories.softmax()
    return histories.kept(runs, steps=(histories.step(runs, 24),))


@pytest.fixture(scope="session")
def page(parse, softmax):
    """The page of those runs, parsed."""
    return parse(pages.render_op(softmax, ())[0])


@pytest.fixture(scope="session")
def browsers():
    return load("perfci_test_browser", HERE.parent / "html" / "browser.py")
