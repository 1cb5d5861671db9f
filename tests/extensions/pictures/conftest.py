"""Pages of the example runs, read back with Python's parser."""

import functools
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from perfci import report
from tests.extensions.pictures.browser import Browser

VOID = {"meta", "input", "wbr", "br", "link", "img"}


@dataclass
class Node:
    """An element with its attributes, children and texts."""

    name: str
    attributes: dict = field(default_factory=dict)
    children: list = field(default_factory=list)

    def all(self, name=None, **attributes):
        """Every element below it of a name with these attributes; class_ for one of its classes."""
        wanted = attributes.pop("class_", None)
        for child in self.children:
            if isinstance(child, Node):
                fits = name in {None, child.name} and all(child.attributes.get(k) == v for k, v in attributes.items())
                if fits and (wanted is None or wanted in child.attributes.get("class", "").split()):
                    yield child
                yield from child.all(name, **attributes, **({"class_": wanted} if wanted else {}))

    def one(self, *args, **attributes):
        return next(self.all(*args, **attributes))

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Parser(HTMLParser):
    """Builds the tree, and fails if tags do not match."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Node("root")
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop().name == tag

    def handle_data(self, data):
        self.open[-1].children.append(data)


def parsed(source: str) -> Node:
    parser = Parser()
    parser.feed(source)
    parser.close()
    assert parser.open == [parser.root]
    return parser.root


@dataclass(frozen=True)
class Page:
    """A written page."""

    path: Path
    source: str
    root: Node

    @property
    def data(self):
        """What its script draws from."""
        return json.loads(self.root.one("script", id="data").text)

    def rows(self):
        """The lines of the table of cases."""
        return list(self.root.one("table", id="table").all("tbody", **{}))


def read(path: Path) -> Page:
    source = path.read_text(encoding="utf-8")
    return Page(path, source, parsed(source))


@pytest.fixture(scope="session")
def parse():
    return parsed


@pytest.fixture(scope="session")
def page(examples, tmp_path_factory):
    """An example's page by name, written once."""

    @functools.cache
    def make(name: str) -> Page:
        run, judgements = getattr(examples, name)()
        folder = tmp_path_factory.mktemp(name)
        return read(write_page(run, judgements, folder))

    return make


def write_page(*material, **options) -> Path:
    return report.write(*material, formats=["html"], **options).with_name(report.PAGE)


@pytest.fixture(scope="session")
def read_page():
    """Writes the page of a run and its judgements, and reads it."""
    return lambda *material, **options: read(write_page(*material, **options))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
